"""Thread pools for decoding and inference; images of equal shape share a batch."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError
from rpml.runtime.wording import one_line
from rpml.vision.decode import ImageError
from rpml.vision.files import ImageFile

Tile = NDArray[np.uint8]
Prepare = Callable[[ImageFile], Sequence[Tile]]
Features = NDArray[np.floating]
Describe = Callable[[NDArray[np.uint8]], Features]


@dataclass(frozen=True)
class Failure:
    """An image that was skipped, and why."""

    id: str
    reason: str


@dataclass
class _Work:
    """The state of one run: batches in progress and results."""

    files: Sequence[ImageFile]
    done: Callable[[int], None]
    waiting: dict[tuple[int, ...], list[tuple[int, int, Tile]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    running: deque[Future[list[tuple[int, int, Features | str]]]] = field(default_factory=deque)
    missing: dict[int, int] = field(default_factory=dict)  # outstanding tiles per file
    described: dict[int, dict[int, Features]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)


class Engine:
    """Runs `prepare` on files and `describe` on batches of the tiles it returns.

    `prepare` returns the tiles of a file, arrays of shape (height, width, 3), one per view and
    scale. `describe` maps a batch (n, height, width, 3) to features and is called from several
    threads. There are `workers` threads for each, and at most `batch` tiles of equal shape per
    call. With `strict` the first image that fails raises an error instead of being skipped.
    """

    def __init__(
        self, prepare: Prepare, describe: Describe, workers: int, batch: int, strict: bool = False
    ) -> None:
        self._prepare, self._describe = prepare, describe
        self._workers, self._batch, self._strict = workers, batch, strict
        self._decoders = ThreadPoolExecutor(workers, "rpml-decode")
        self._runners = ThreadPoolExecutor(workers, "rpml-infer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for pool in (self._decoders, self._runners):
            pool.shutdown(wait=True, cancel_futures=True)

    def run(
        self, files: Sequence[ImageFile], done: Callable[[int], None] = lambda count: None
    ) -> tuple[dict[int, list[Features]], list[Failure]]:
        """Describe every file; `done` is called with the number of newly finished images.

        Returns the features of the tiles by position in `files`, and the skipped images in order.
        """
        work = _Work(files, done)
        decoding: deque[tuple[int, Future[Sequence[Tile]]]] = deque()
        for index, file in enumerate(files):
            decoding.append((index, self._decoders.submit(self._prepare, file)))
            if len(decoding) >= 4 * self._workers:
                self._queue(work, *decoding.popleft())
        while decoding:
            self._queue(work, *decoding.popleft())
        for shape in sorted(work.waiting):
            self._submit(work, work.waiting[shape])
        while work.running:
            self._collect(work)
        results = {i: [tiles[t] for t in sorted(tiles)] for i, tiles in work.described.items()}
        by_index = {i: results[i] for i in sorted(results) if i not in work.failed}
        return by_index, [Failure(files[i].id, work.failed[i]) for i in sorted(work.failed)]

    def _queue(self, work: _Work, index: int, decoded: Future[Sequence[Tile]]) -> None:
        """Queue the tiles of a decoded image by shape; submit full batches."""
        try:
            tiles = decoded.result()
        except (ImageError, MemoryError) as error:
            self._fail(work, index, str(error) or "not enough memory for it")
            return
        work.missing[index] = len(tiles)
        for number, tile in enumerate(tiles):
            waiting = work.waiting[tile.shape]
            waiting.append((index, number, tile))
            if len(waiting) >= self._batch:
                self._submit(work, waiting)

    def _submit(self, work: _Work, waiting: list[tuple[int, int, Tile]]) -> None:
        if not waiting:
            return
        work.running.append(self._runners.submit(self._describe_batch, tuple(waiting)))
        waiting.clear()
        if len(work.running) >= 2 * self._workers:
            self._collect(work)

    def _describe_batch(
        self, batch: Sequence[tuple[int, int, Tile]]
    ) -> list[tuple[int, int, Features | str]]:
        """Describe a batch; if the network fails, each tile alone; a failed tile has a reason."""
        try:
            features = self._describe(np.stack([tile for _, _, tile in batch]))
        except Exception as error:  # onnxruntime's exceptions share no public base
            if len(batch) > 1:
                return [result for one in batch for result in self._describe_batch([one])]
            (index, number, tile) = batch[0]
            reason = one_line(error)[:200]
            size = f"{tile.shape[1]} x {tile.shape[0]}"
            return [(index, number, f"the backbone failed on it at {size} pixels: {reason}")]
        return [
            (index, number, value if np.isfinite(value).all() else "the backbone gave NaN for it")
            for (index, number, _), value in zip(batch, features, strict=True)
        ]

    def _collect(self, work: _Work) -> None:
        for index, number, value in work.running.popleft().result():
            work.missing[index] -= 1
            if isinstance(value, str):
                if index not in work.failed:
                    self._fail(work, index, value, count=False)
            else:
                work.described.setdefault(index, {})[number] = value
            if work.missing[index] == 0:
                work.done(1)

    def _fail(self, work: _Work, index: int, reason: str, count: bool = True) -> None:
        if self._strict:
            raise InputError(f"{work.files[index].path}: {reason}")
        work.failed[index] = reason
        if count:
            work.done(1)


def in_parts(files: Sequence[ImageFile], size: int) -> Iterable[tuple[int, Sequence[ImageFile]]]:
    """(first position, files) of consecutive parts of the list."""
    for start in range(0, len(files), size):
        yield start, files[start : start + size]
