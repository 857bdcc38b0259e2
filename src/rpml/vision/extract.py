"""Descriptors of images, computed in parts so that an interrupted run can resume.

One thread per image, as many as cores: nothing waits for the slowest part of a layer.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rpml.io.datasets.image_sets import VIEW_MARK
from rpml.runtime.context import Arrays, Context, Json, Progress
from rpml.runtime.errors import InputError, counted, one_line
from rpml.runtime.rows import Array, Floats, slices, unit_rows
from rpml.runtime.threads import thread_count
from rpml.vision.backbone import Backbone
from rpml.vision.images import (
    MAX_PIXELS,
    ImageError,
    ImageFile,
    Views,
    as_array,
    fit_long_side,
    load_rgb,
)
from rpml.vision.pooling import KINDS, pool_maps

SCALES = (512, 362, 256)
Tile = NDArray[np.uint8]
Failure = tuple[str, str]  # the id of an image that was skipped, and why
Item = TypeVar("Item")
Result = TypeVar("Result")


def call_threads(workers: int | None) -> int:
    """Return the threads per call of a network; None means one image per core at a time."""
    return max(1, thread_count() // (workers or thread_count()))


def describe_images(
    files: Sequence[ImageFile],
    prepare: Callable[[ImageFile], Sequence[Tile]],
    describe: Callable[[NDArray[np.uint8]], Array],
    workers: int | None = None,
    strict: bool = False,
    done: Callable[[int], None] = lambda count: None,
) -> tuple[dict[int, list[Array]], list[Failure]]:
    """Run `prepare` on files and `describe` on the tiles that it returns, a file per thread.

    `prepare` returns the tiles of a file, arrays of shape (height, width, 3), one per view and
    scale. `describe` maps a batch (n, height, width, 3) to features. `strict` stops at the first
    image that cannot be used. `done` is called with the number of newly finished images. Returns
    the features of the tiles by position in `files`, and the skipped images.
    """

    def work(file: ImageFile) -> list[Array] | str:
        try:
            return _describe_tiles(prepare(file), describe)
        except (ImageError, MemoryError) as error:
            return str(error) or "not enough memory for it"

    found: dict[int, list[Array]] = {}
    failures: list[Failure] = []
    workers = workers or thread_count()
    pool = ThreadPoolExecutor(workers, "rpml-images")
    try:
        for index, result in enumerate(run_ahead(pool, work, files, 2 * workers)):
            features = result.result()
            if not isinstance(features, str):
                found[index] = features
            elif strict:
                raise InputError(f"{files[index].path}: {features}")
            else:
                failures.append((files[index].id, features))
            done(1)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return found, failures


def _describe_tiles(
    tiles: Sequence[Tile], describe: Callable[[NDArray[np.uint8]], Array]
) -> list[Array] | str:
    """Describe the tiles of a file, those of equal shape together; the reason if that fails."""
    features: dict[int, Array] = {}
    for height, width, _ in dict.fromkeys(tile.shape for tile in tiles):
        same = [i for i, tile in enumerate(tiles) if tile.shape[:2] == (height, width)]
        try:
            values = describe(np.stack([tiles[i] for i in same]))
        except Exception as error:  # onnxruntime's exceptions share no public base
            reason = one_line(error)[:200]
            return f"the backbone failed on it at {width} x {height} pixels: {reason}"
        if not np.isfinite(values).all():
            return "the backbone gave NaN for it"
        features.update(zip(same, values, strict=True))
    return [features[i] for i in range(len(tiles))]


def run_ahead(
    pool: ThreadPoolExecutor, function: Callable[[Item], Result], items: Iterable[Item], limit: int
) -> Iterator[Future[Result]]:
    """Yield the futures of function(item) in order, at most `limit` submitted ahead."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) >= limit:
            yield waiting.popleft()
    yield from waiting


@dataclass(frozen=True)
class Recipe:
    """The settings of a descriptor, without the network."""

    scales: tuple[int, ...] = SCALES
    """Longer side of the image in pixels; the unit vectors of all scales are summed."""
    pooling: str = "rmac"
    """One of `rpml.vision.pooling.KINDS`."""
    views: Views = field(default_factory=Views)
    """Augmented views added to each image."""
    average_views: bool = False
    """One row per image: the mean of the unit vectors of the image and its views."""
    max_pixels: int = MAX_PIXELS
    """Larger images are left out."""

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) < 1:
            raise InputError(f"scales must be positive numbers of pixels, got {self.scales}")
        if self.pooling not in KINDS:
            raise InputError(f"pooling must be one of {', '.join(KINDS)}, got {self.pooling!r}")
        if self.average_views and not self.views.count:
            raise InputError("there are no views to average: give --views N, or views=Views(N)")


@dataclass(frozen=True)
class Job:
    """Files, network and recipe of an extraction, and how it runs."""

    files: Sequence[ImageFile]
    backbone: Backbone
    recipe: Recipe = field(default_factory=Recipe)
    workers: int | None = None
    """Images processed in parallel; None means one per core."""
    strict: bool = False
    """Stop at the first image that cannot be used."""
    part: int = 50
    """Images per part; an interrupted run loses at most one part."""

    def settings(self) -> Json:
        """Everything that changes the descriptors besides the files, as JSON values."""
        fixed = {"backbone": self.backbone.fingerprint(), "part": self.part}
        return {**asdict(self.recipe), **fixed}

    def tiles(self, file: ImageFile) -> list[Tile]:
        """Return the views of an image, each at every scale."""
        recipe, fixed = self.recipe, self.backbone.fixed_size
        image = load_rgb(file.path, recipe.max_pixels, enough=2 * max(recipe.scales))
        least = self.backbone.convention.min_side
        return [
            as_array(view, fixed or fit_long_side(view.size, scale, least))
            for view in recipe.views.all(image, file.id)
            for scale in (recipe.scales if fixed is None else (0,))
        ]


@dataclass(frozen=True)
class Part:
    """Descriptors of consecutive images; `view` is 0 for the image itself."""

    image: NDArray[np.int64]
    view: NDArray[np.int64]
    values: Floats
    failures: Sequence[Failure] = ()


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
    workers: int | None = None,
    strict: bool = False,
) -> Part:
    """Compute descriptors of images with an ONNX backbone.

    The default recipe is R-MAC at three scales without views. Rows have unit norm, each image
    followed by its views; images that cannot be used are in `failures`, or with `strict` an error.
    """
    job = Job(files, backbone, recipe or Recipe(), workers, strict)
    part = _compute(job, slice(0, len(files)), lambda images: None)
    if not len(part.values):
        raise nothing_left(part.failures)
    return part


def nothing_left(failures: Sequence[Failure]) -> InputError:
    """Return the error for the case that every image failed."""
    name, reason = failures[0]
    return InputError(
        f"none of {counted(len(failures), 'image')} could be used, the first for this reason: "
        f"{name}: {reason}"
    )


def iter_parts(job: Job, context: Context) -> Iterator[Part]:
    """Yield parts in order, each loaded from the context's store or computed and stored."""
    done, total = 0, len(job.files)

    def count(images: int) -> None:
        nonlocal done
        done += images
        context.report(Progress("images", done, total))

    for place in slices(total, job.part):
        name, size = f"part-{place.start:09d}", place.stop - place.start
        saved = context.load(name)
        if saved is None:
            part = _compute(job, place, count)
            arrays: Arrays = {"image": part.image, "view": part.view, "values": part.values}
            context.save(name, arrays, {"failures": part.failures})
        else:
            arrays, metadata = saved
            part = Part(**arrays, failures=[(name, why) for name, why in metadata["failures"]])
            done += size
            if done == total:  # no later part reports the end
                count(0)
        yield part


def _compute(job: Job, place: slice, count: Callable[[int], None]) -> Part:
    recipe = job.recipe

    def describe(tiles: NDArray[np.uint8]) -> Array:
        return pool_maps(job.backbone(tiles), recipe.pooling)

    described, failures = describe_images(
        job.files[place], job.tiles, describe, job.workers, job.strict, count
    )
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
        np.repeat(np.fromiter(described, np.int64, len(described)) + place.start, views),
        np.tile(np.arange(views, dtype=np.int64), len(described)),
        values.astype(np.float32),
        failures,
    )
