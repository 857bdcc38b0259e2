"""Threads that keep every core busy: decoding overlaps inference, equal shapes share a batch."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError
from rpml.vision.decode import ImageError
from rpml.vision.files import ImageFile

Tile = NDArray[np.uint8]
Prepare = Callable[[ImageFile], Sequence[Tile]]
Describe = Callable[[NDArray[np.uint8]], NDArray[Any]]


@dataclass(frozen=True)
class Failure:
    """An image that was left out, and why."""

    id: str
    reason: str


@dataclass
class _Work:
    """One pass over some files: what is under way and what has come out."""

    files: Sequence[ImageFile]
    done: Callable[[int], None]
    waiting: dict[tuple[int, ...], list[tuple[int, int, Tile]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    running: deque[Future[list[tuple[int, int, NDArray[Any] | str]]]] = field(default_factory=deque)
    missing: dict[int, int] = field(default_factory=dict)  # tiles of a file still to come
    described: dict[int, dict[int, NDArray[Any]]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)


class Engine:
    """Runs `prepare` on files and `describe` on batches of what it gives.

    Parameters
    ----------
    prepare : callable
        A file's tiles: arrays (height, width, 3) for its views and scales.
    describe : callable
        Results of a batch (n, height, width, 3), the first axis as long; called from several
        threads.
    workers : int
        Batches described at once, and images decoded at once.
    batch : int
        Most tiles of one shape in a call of `describe`.
    strict : bool
        Raise on the first image that fails instead of leaving it out.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pool in (self._decoders, self._runners):
            pool.shutdown(wait=True, cancel_futures=True)

    def run(
        self, files: Sequence[ImageFile], done: Callable[[int], None] = lambda count: None
    ) -> tuple[dict[int, list[NDArray[Any]]], list[Failure]]:
        """Describe every file.

        Returns
        -------
        dict of int to list of array
            For each position in `files` that succeeded, the results of its tiles in order.
        list of Failure
            The others, in order.
        """
        work = _Work(files, done)
        decoding: deque[tuple[int, Future[Sequence[Tile]]]] = deque()
        for index, file in enumerate(files):
            decoding.append((index, self._decoders.submit(self._prepare, file)))
            if len(decoding) >= 4 * self._workers:
                self._take(work, *decoding.popleft())
        while decoding:
            self._take(work, *decoding.popleft())
        for shape in sorted(work.waiting):
            self._start(work, work.waiting[shape])
        while work.running:
            self._collect(work)
        results = {i: [tiles[t] for t in sorted(tiles)] for i, tiles in work.described.items()}
        kept = {i: results[i] for i in sorted(results) if i not in work.failed}
        return kept, [Failure(files[i].id, work.failed[i]) for i in sorted(work.failed)]

    def _take(self, work: _Work, index: int, decoded: Future[Sequence[Tile]]) -> None:
        """Sort a decoded image's tiles by shape; a full batch starts at once."""
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
                self._start(work, waiting)

    def _start(self, work: _Work, waiting: list[tuple[int, int, Tile]]) -> None:
        if not waiting:
            return
        work.running.append(self._runners.submit(self._describe_batch, tuple(waiting)))
        waiting.clear()
        if len(work.running) >= 2 * self._workers:
            self._collect(work)

    def _describe_batch(
        self, batch: Sequence[tuple[int, int, Tile]]
    ) -> list[tuple[int, int, NDArray[Any] | str]]:
        """Results of a batch; if the network fails on it, of each tile alone or the reason."""
        try:
            found = self._describe(np.stack([tile for _, _, tile in batch]))
        except Exception as error:  # onnxruntime's exceptions share no public base
            if len(batch) > 1:
                return [result for one in batch for result in self._describe_batch([one])]
            (index, number, tile) = batch[0]
            reason = " ".join(str(error).split())[:200]
            size = f"{tile.shape[1]} x {tile.shape[0]}"
            return [(index, number, f"the backbone failed on it at {size} pixels: {reason}")]
        return [
            (index, number, value if np.isfinite(value).all() else "the backbone gave NaN for it")
            for (index, number, _), value in zip(batch, found, strict=True)
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
    """(first position, files) of consecutive parts."""
    for start in range(0, len(files), size):
        yield start, files[start : start + size]
