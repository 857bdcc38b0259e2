"""Descriptors of images, computed in parts so that an interrupted run can resume."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rpml.io.datasets.image_sets import VIEW_MARK
from rpml.runtime.context import Arrays, Context, Json, Progress
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, unit_rows
from rpml.runtime.schema import ArraySpec, Schema
from rpml.runtime.threads import thread_count
from rpml.runtime.wording import counted
from rpml.vision.backbone import Backbone
from rpml.vision.decode import MAX_PIXELS, as_array, fit_long_side, load_rgb
from rpml.vision.engine import Describe, Engine, Failure, Tile, in_parts
from rpml.vision.files import ImageFile
from rpml.vision.pooling import Pooling
from rpml.vision.views import Views

SCALES = (512, 362, 256)


@dataclass(frozen=True)
class Recipe:
    """The settings of a descriptor, without the network."""

    scales: tuple[int, ...] = SCALES
    """Longer side of the image in pixels; the unit vectors of all scales are summed."""
    pooling: Pooling = field(default_factory=Pooling)
    views: Views = field(default_factory=Views)
    """Augmented views added to each image."""
    average_views: bool = False
    """One row per image: the mean of the unit vectors of the image and its views."""
    max_pixels: int = MAX_PIXELS
    """Larger images are left out."""

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) < 1:
            raise InputError(f"scales must be positive numbers of pixels, got {self.scales}")
        if self.average_views and not self.views.count:
            raise InputError("there are no views to average: give --views N, or views=Views(N)")

    def settings(self) -> dict[str, object]:
        """All settings as JSON values."""
        plain: dict[str, object] = asdict(
            replace(self, pooling=replace(self.pooling, region_whitening=None))
        )
        whitening = self.pooling.region_whitening
        plain["region_whitening"] = whitening and (
            hashlib.sha256(whitening.mean.tobytes() + whitening.matrix.tobytes()).hexdigest()
        )
        return plain


@dataclass(frozen=True)
class Execution:
    """Threads and batches; the descriptors depend on them only by rounding."""

    workers: int | None = None
    """Batches processed in parallel; None means one per core."""
    batch: int = 4
    """Images of equal shape per call of the network."""
    part: int = 50
    """Images per part; an interrupted run loses at most one part."""
    strict: bool = False
    """Stop at the first image that cannot be used."""

    def threads(self) -> tuple[int, int]:
        """(workers, threads per call of the network)."""
        workers = self.workers or thread_count()
        return workers, max(1, thread_count() // workers)


@dataclass(frozen=True)
class Job:
    """Files, network, recipe and execution of an extraction."""

    files: Sequence[ImageFile]
    backbone: Backbone
    recipe: Recipe = field(default_factory=Recipe)
    execution: Execution = field(default_factory=Execution)

    def settings(self) -> Json:
        """Everything that changes the descriptors besides the files, as JSON values."""
        return {
            **self.recipe.settings(),
            "backbone": self.backbone.fingerprint(),
            "part": self.execution.part,
            "batch": self.execution.batch,
        }

    def engine(self, describe: Describe) -> Engine:
        """The engine that calls `describe` on batches of the tiles of the files."""
        workers, _ = self.execution.threads()
        prepare = tile_maker(self.recipe, self.backbone)
        return Engine(prepare, describe, workers, self.execution.batch, self.execution.strict)


@dataclass(frozen=True)
class Part:
    """Descriptors of consecutive images; `view` is 0 for the image itself."""

    image: NDArray[np.int64]
    view: NDArray[np.int64]
    values: NDArray[np.float32]
    failures: tuple[Failure, ...] = ()


def files_digest(files: Sequence[ImageFile]) -> str:
    """Return a digest of the names, sizes and modification times of the files."""
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
    """Return the id of a row: that of the image, with the index of the view if it is one."""
    return file.id if view == 0 else f"{file.id}{VIEW_MARK}{view}"


def extract(
    files: Sequence[ImageFile],
    backbone: Backbone,
    recipe: Recipe | None = None,
    execution: Execution | None = None,
) -> Part:
    """Compute descriptors of images with an ONNX backbone.

    The default recipe is R-MAC at three scales without views. Rows have unit norm, each image
    followed by its views; images that cannot be used are in `failures`.
    """
    job = Job(files, backbone, recipe or Recipe(), execution or Execution())
    parts = list(iter_parts(job, Context()))
    failures = tuple(failure for part in parts for failure in part.failures)
    parts = [part for part in parts if len(part.values)]
    if not parts:
        raise nothing_left(failures)
    image, view, values = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("image", "view", "values")
    )
    return Part(image, view, values, failures)


def nothing_left(failures: Sequence[Failure]) -> InputError:
    """Return the error for the case that every image failed."""
    first = failures[0]
    return InputError(
        f"none of {counted(len(failures), 'image')} could be used, the first for this reason: "
        f"{first.id}: {first.reason}"
    )


def iter_parts(job: Job, context: Context) -> Iterator[Part]:
    """Yield parts in order, each loaded from the context's store or computed and stored."""
    done, total = 0, len(job.files)

    def count(images: int) -> None:
        nonlocal done
        done += images
        context.report(Progress("images", done, total))

    def describe(tiles: NDArray[np.uint8]) -> Array:
        return job.recipe.pooling(job.backbone(tiles))

    with job.engine(describe) as engine:
        for start, files in in_parts(job.files, job.execution.part):
            name = f"part-{start:09d}"
            saved = context.load(name, _part_schema(start, len(files), job.recipe))
            if saved is None:
                part = _compute(engine, start, files, job.recipe, count)
                context.save(name, *_as_arrays(part))
            else:
                part = _from_arrays(*saved)
                done += len(files)
                if done == total:  # no later part reports the end
                    count(0)
            yield part


def _compute(
    engine: Engine,
    start: int,
    files: Sequence[ImageFile],
    recipe: Recipe,
    count: Callable[[int], None],
) -> Part:
    described, failures = engine.run(files, count)
    views = recipe.views.count + 1
    rows = [
        np.sum(tiles[v * len(tiles) // views : (v + 1) * len(tiles) // views], axis=0)
        for tiles in described.values()
        for v in range(views)
    ]  # the scales of a view
    values = unit_rows(np.stack(rows)) if rows else np.empty((0, 0))
    if recipe.average_views and rows:
        values = unit_rows(values.reshape(len(described), views, -1).mean(axis=1))
        views = 1
    return Part(
        np.repeat(np.fromiter(described, np.int64, len(described)) + start, views),
        np.tile(np.arange(views, dtype=np.int64), len(described)),
        values.astype(np.float32),
        tuple(failures),
    )


def _as_arrays(part: Part) -> tuple[Arrays, dict[str, object]]:
    arrays: Arrays = {"image": part.image, "view": part.view, "values": part.values}
    return arrays, {"failures": [{"id": f.id, "reason": f.reason} for f in part.failures]}


def _part_schema(start: int, count: int, recipe: Recipe) -> Schema:
    """Return the schema of `_as_arrays` for the part of `count` images from `start` on."""
    arrays = {
        "image": ArraySpec("i", ("rows",), start, start + count - 1),
        "view": ArraySpec("i", ("rows",), 0, recipe.views.count),
        "values": ArraySpec("f", ("rows", "features")),
    }
    return Schema(arrays, {"failures": [{"id": str, "reason": str}]})


def _from_arrays(arrays: Arrays, metadata: Json) -> Part:
    failures = tuple(Failure(f["id"], f["reason"]) for f in metadata["failures"])
    return Part(arrays["image"], arrays["view"], arrays["values"], failures)


def tile_maker(recipe: Recipe, backbone: Backbone) -> Callable[[ImageFile], list[Tile]]:
    """Return a function from a file to its tiles: its views, each at every scale."""
    least, fixed = backbone.convention.min_side, backbone.fixed_size

    def prepare(file: ImageFile) -> list[Tile]:
        image = load_rgb(file.path, recipe.max_pixels, enough=2 * max(recipe.scales))
        return [
            as_array(view, fixed or fit_long_side(view.size, scale, least))
            for view in recipe.views.of(image, file.id)
            for scale in (recipe.scales if fixed is None else (0,))
        ]

    return prepare
