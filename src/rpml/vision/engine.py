"""Thread pools for decoding and inference; images of equal shape share a batch."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError
from rpml.runtime.threads import thread_count
from rpml.runtime.wording import one_line
from rpml.vision.decode import ImageError
from rpml.vision.files import ImageFile

Tile = NDArray[np.uint8]
IndexedTile = tuple[int, int, Tile]  # position of its file, its number within the file
Features = NDArray[np.floating]
Failure = tuple[str, str]  # the id of an image that was skipped, and why
Item = TypeVar("Item")
Result = TypeVar("Result")


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


def describe_images(
    files: Sequence[ImageFile],
    prepare: Callable[[ImageFile], Sequence[Tile]],
    describe: Callable[[NDArray[np.uint8]], Features],
    execution: Execution,
    done: Callable[[int], None] = lambda count: None,
) -> tuple[dict[int, list[Features]], list[Failure]]:
    """Run `prepare` on files and `describe` on batches of the tiles that it returns.

    `prepare` returns the tiles of a file, arrays of shape (height, width, 3), one per view and
    scale. `describe` maps a batch (n, height, width, 3) to features; both are called from several
    threads. `done` is called with the number of newly finished images. Returns the features of the
    tiles by position in `files`, and the skipped images in order.
    """
    failed: dict[int, str] = {}
    missing: dict[int, int] = {}  # outstanding tiles per file
    described: dict[int, dict[int, Features]] = defaultdict(dict)
    workers, _ = execution.threads()
    decoders = ThreadPoolExecutor(workers, "rpml-decode")
    runners = ThreadPoolExecutor(workers, "rpml-infer")

    def fail(index: int, reason: str) -> None:
        if execution.strict:
            raise InputError(f"{files[index].path}: {reason}")
        failed.setdefault(index, reason)

    def tiles() -> Iterator[IndexedTile]:
        for index, decoded in enumerate(run_ahead(decoders, prepare, files, 4 * workers)):
            try:
                made = decoded.result()
            except (ImageError, MemoryError) as error:
                fail(index, str(error) or "not enough memory for it")
                done(1)
                continue
            missing[index] = len(made)
            yield from ((index, number, tile) for number, tile in enumerate(made))

    try:
        batches = _by_shape(tiles(), execution.batch)
        run = partial(_describe_batch, describe)
        for batch in run_ahead(runners, run, batches, 2 * workers):
            for index, number, value in batch.result():
                if isinstance(value, str):
                    fail(index, value)
                else:
                    described[index][number] = value
                missing[index] -= 1
                if missing[index] == 0:
                    done(1)
    finally:
        for pool in (decoders, runners):
            pool.shutdown(wait=True, cancel_futures=True)
    by_index = {
        index: [described[index][number] for number in sorted(described[index])]
        for index in sorted(described)
        if index not in failed
    }
    return by_index, [(files[i].id, failed[i]) for i in sorted(failed)]


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


def _by_shape(tiles: Iterable[IndexedTile], size: int) -> Iterator[list[IndexedTile]]:
    """Yield batches of `size` tiles of equal shape, smaller ones at the end."""
    waiting: dict[tuple[int, ...], list[IndexedTile]] = defaultdict(list)
    for tile in tiles:
        shape = tile[2].shape
        waiting[shape].append(tile)
        if len(waiting[shape]) >= size:
            yield waiting.pop(shape)
    for shape in sorted(waiting):
        yield waiting[shape]


def _describe_batch(
    describe: Callable[[NDArray[np.uint8]], Features], batch: Sequence[IndexedTile]
) -> list[tuple[int, int, Features | str]]:
    """Describe a batch; if the network fails, each tile alone; a failed tile has a reason."""
    try:
        features = describe(np.stack([tile for _, _, tile in batch]))
    except Exception as error:  # onnxruntime's exceptions share no public base
        if len(batch) > 1:
            return [result for one in batch for result in _describe_batch(describe, [one])]
        (index, number, tile) = batch[0]
        reason = one_line(error)[:200]
        size = f"{tile.shape[1]} x {tile.shape[0]}"
        return [(index, number, f"the backbone failed on it at {size} pixels: {reason}")]
    return [
        (index, number, value if np.isfinite(value).all() else "the backbone gave NaN for it")
        for (index, number, _), value in zip(batch, features, strict=True)
    ]
