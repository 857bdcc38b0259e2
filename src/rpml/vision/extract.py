"""Images -> descriptors, part by part, so that a killed run continues where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.context import Context, Progress
from rpml.runtime.errors import InputError
from rpml.runtime.rows import unit_rows
from rpml.runtime.threads import thread_count
from rpml.vision.backbone import Backbone
from rpml.vision.decode import MAX_PIXELS, as_array, fit_long_side, load_rgb
from rpml.vision.engine import Describe, Engine, Failure, Tile, in_parts
from rpml.vision.files import ImageFile
from rpml.vision.pooling import Pooling
from rpml.vision.views import Views

Array = NDArray[np.floating]
SCALES = (512, 362, 256)


@dataclass(frozen=True)
class Recipe:
    """What decides a descriptor besides the network.

    Parameters
    ----------
    scales : tuple of int
        Longer side of the image, in pixels; the unit vectors of all scales are summed.
    pooling : Pooling
        From feature map to vector.
    views : Views
        Augmented views added to each image.
    max_pixels : int
        Larger images are left out.
    """

    scales: tuple[int, ...] = SCALES
    pooling: Pooling = field(default_factory=Pooling)
    views: Views = field(default_factory=Views)
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) < 1:
            raise InputError(f"scales must be positive numbers of pixels, got {self.scales}")

    def settings(self) -> dict[str, Any]:
        """Everything that changes the result, as JSON values."""
        plain = asdict(replace(self, pooling=replace(self.pooling, region_whitening=None)))
        whitening = self.pooling.region_whitening
        plain["region_whitening"] = None if whitening is None else _digest_of(whitening)
        return plain


def _digest_of(whitening: Any) -> str:
    return hashlib.sha256(whitening.mean.tobytes() + whitening.matrix.tobytes()).hexdigest()


@dataclass(frozen=True)
class Execution:
    """How the work is done; the descriptors do not depend on it beyond rounding.

    Parameters
    ----------
    workers : int or None
        Batches run at once; None: one a core.
    batch : int
        Most images of one shape in a call of the network.
    part : int
        Images in a part, which is what a killed run loses at most.
    strict : bool
        Stop at the first image that cannot be used.
    """

    workers: int | None = None
    batch: int = 4
    part: int = 256
    strict: bool = False

    def threads(self) -> tuple[int, int]:
        """(workers, threads of one call of the network)."""
        workers = self.workers or thread_count()
        return workers, max(1, thread_count() // workers)


@dataclass(frozen=True)
class Job:
    """What is to be described, by which network, how."""

    files: Sequence[ImageFile]
    backbone: Backbone
    recipe: Recipe = field(default_factory=Recipe)
    execution: Execution = field(default_factory=Execution)

    def engine(self, describe: Describe) -> Engine:
        """Threads that prepare the files and call `describe` on batches of their tiles."""
        workers, _ = self.execution.threads()
        prepare = tile_maker(self.recipe, self.backbone)
        return Engine(prepare, describe, workers, self.execution.batch, self.execution.strict)


@dataclass(frozen=True)
class Part:
    """Descriptors of consecutive images; a view has the number 1 or more."""

    image: NDArray[np.int64]
    view: NDArray[np.int64]
    values: NDArray[np.float32]
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Extraction:
    """All descriptors, with what identifies their rows."""

    values: NDArray[np.float32]
    ids: list[str]
    groups: NDArray[np.int64]
    failures: tuple[Failure, ...] = field(default=())


def files_digest(files: Sequence[ImageFile]) -> str:
    """One string that changes with the names, sizes and times of the files."""
    state = hashlib.sha256()
    for file in files:
        try:
            status = file.path.stat()
            stamp = f"{status.st_size}:{status.st_mtime_ns}"
        except OSError:
            stamp = "missing"
        state.update(f"{file.id}\0{stamp}\0".encode())
    return state.hexdigest()


def row_id(file: ImageFile, view: int) -> str:
    """The id of a row: the image's own, or with the number of the view."""
    return file.id if view == 0 else f"{file.id}#view{view}"


def extract(
    files: Sequence[ImageFile],
    backbone: Backbone,
    recipe: Recipe | None = None,
    execution: Execution | None = None,
    context: Context | None = None,
) -> Extraction:
    """Describe images by an ONNX backbone.

    Parameters
    ----------
    files : sequence of ImageFile
        As `find_images` gives them.
    backbone : Backbone
        The network.
    recipe : Recipe, optional
        Scales, pooling and views; by default R-MAC at three scales, no views.
    execution : Execution, optional
        Threads, batches, and what to do with images that fail.
    context : Context, optional
        Its store keeps finished parts, its `report` hears of progress.

    Returns
    -------
    Extraction
        Unit rows, image after image, each followed by its views; images that cannot be used are
        in `failures` instead.
    """
    job = Job(files, backbone, recipe or Recipe(), execution or Execution())
    parts = list(iter_parts(job, context or Context()))
    failures = tuple(failure for part in parts for failure in part.failures)
    parts = [part for part in parts if len(part.values)]
    if not parts:
        raise nothing_left(failures)
    image = np.concatenate([part.image for part in parts])
    view = np.concatenate([part.view for part in parts])
    return Extraction(
        np.concatenate([part.values for part in parts]),
        [row_id(files[i], v) for i, v in zip(image, view, strict=True)],
        image,
        failures,
    )


def nothing_left(failures: Sequence[Failure]) -> InputError:
    """What to say when every image failed."""
    first = failures[0]
    return InputError(
        f"none of the {len(failures)} images could be used, the first for this reason: "
        f"{first.id}: {first.reason}"
    )


def iter_parts(job: Job, context: Context) -> Iterator[Part]:
    """Parts in order, each taken from the context's store or computed and kept there."""
    count = _Counter(len(job.files), context)

    def describe(tiles: NDArray[np.uint8]) -> Array:
        return job.recipe.pooling(job.backbone(tiles))

    with job.engine(describe) as engine:
        for start, some in in_parts(job.files, job.execution.part):
            name = f"part-{start:09d}"
            saved = context.load(name)
            if saved is None:
                part = _compute(engine, start, some, job.recipe, count)
                context.save(name, *_as_arrays(part))
            else:
                part = _from_arrays(*saved)
                count.found(len(some))
            yield part


def _compute(
    engine: Engine, start: int, files: Sequence[ImageFile], recipe: Recipe, count: _Counter
) -> Part:
    described, failures = engine.run(files, count)
    views = recipe.views.count + 1
    rows = [
        _sum_scales(tiles[v * len(tiles) // views : (v + 1) * len(tiles) // views])
        for tiles in described.values()
        for v in range(views)
    ]
    return Part(
        np.repeat(np.fromiter(described, np.int64, len(described)) + start, views),
        np.tile(np.arange(views, dtype=np.int64), len(described)),
        np.stack(rows).astype(np.float32) if rows else np.empty((0, 0), np.float32),
        tuple(failures),
    )


def _sum_scales(vectors: Sequence[Array]) -> Array:
    return np.asarray(unit_rows(np.sum(vectors, axis=0, keepdims=True))[0])


class _Counter:
    """Tells the context how many images are done."""

    def __init__(self, total: int, context: Context) -> None:
        self._done, self._total, self._report = 0, total, context.report

    def __call__(self, count: int) -> None:
        self._done += count
        self._report(Progress("images", self._done, self._total))

    def found(self, count: int) -> None:
        """Count without a word, unless these are the last: they took no time to describe."""
        self._done += count
        if self._done == self._total:
            self(0)


def _as_arrays(part: Part) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    arrays: dict[str, NDArray[Any]] = {
        "image": part.image,
        "view": part.view,
        "values": part.values,
    }
    return arrays, {"failures": [[f.id, f.reason] for f in part.failures]}


def _from_arrays(arrays: dict[str, NDArray[Any]], metadata: dict[str, Any]) -> Part:
    failures = tuple(Failure(*pair) for pair in metadata["failures"])
    return Part(arrays["image"], arrays["view"], arrays["values"], failures)


def tile_maker(recipe: Recipe, backbone: Backbone) -> Callable[[ImageFile], list[Tile]]:
    """What a file becomes before the network: its views, each at every scale."""
    least, fixed = backbone.convention.min_side, backbone.fixed_size

    def prepare(file: ImageFile) -> list[Tile]:
        image = load_rgb(file.path, recipe.max_pixels, enough=2 * max(recipe.scales))
        return [
            as_array(view, fixed or fit_long_side(view.size, scale, least))
            for view in recipe.views.of(image, file.id)
            for scale in (recipe.scales if fixed is None else (0,))
        ]

    return prepare
