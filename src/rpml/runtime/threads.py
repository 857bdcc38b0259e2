"""Threads: how many, and how a range of work is cut between them."""

import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import ThreadpoolController, threadpool_limits

Array = NDArray[np.floating]

MIN_CHUNK = 8192  # triplets a thread; with fewer, waking the thread costs more than it saves
MIN_PRODUCT = 2_000_000  # multiplications a thread, likewise
_inside = threading.local()  # set in the pool's threads: work within work runs inline


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Let the calling thread use so many, whatever the environment says."""
    before = getattr(_inside, "count", 0)
    _inside.count = count
    try:
        yield
    finally:
        _inside.count = before


@contextmanager
def using_jobs(n_jobs: int | None) -> Iterator[None]:
    """Bound the threads as scikit-learn's `n_jobs` does: -1 is all cores, None changes nothing."""
    if n_jobs is None:
        yield
        return
    count = n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)
    with using_threads(count), threadpool_limits(count):
        yield


def thread_count() -> int:
    """Cores this process may use, bounded by OMP_NUM_THREADS as BLAS is."""
    if asked := getattr(_inside, "count", 0):
        return int(asked)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores or 1, int(limit) if limit.isdigit() and int(limit) else cores or 1))


def chunks(n: int, minimum: int = MIN_CHUNK) -> list[tuple[int, int]]:
    """Cut range(n) into one contiguous piece a thread, each of at least `minimum` items.

    The cut depends on n and the thread count alone, which keeps sums reproducible.
    """
    parts = min(thread_count(), n // minimum) if n >= 2 * minimum else 1
    edges = [n * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def run_chunks(work: Callable[[int, int, int], object], n: int, minimum: int = MIN_CHUNK) -> None:
    """Call work(part, start, stop) over `chunks(n)`, one thread a part; small work runs inline.

    Threads help because the compiled kernels and numpy's loops release the GIL.
    """
    if n < 2 * minimum:
        work(0, 0, n)
        return
    first, *others = enumerate(chunks(n, minimum))
    if getattr(_inside, "pool", False):
        for i, piece in (first, *others):
            work(i, *piece)
        return
    futures = [_pool(os.getpid()).submit(work, i, *piece) for i, piece in others]
    try:
        work(first[0], *first[1])
    finally:
        wait(futures)
    for future in futures:
        future.result()


@functools.cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Threads kept between calls; by process, since a fork inherits none."""
    return ThreadPoolExecutor(
        os.cpu_count(), "rpml", initializer=lambda: setattr(_inside, "pool", True)
    )


def sum_chunks(
    add: Callable[[int, int, Array], None], n: int, shape: tuple[int, ...], dtype: DTypeLike
) -> Array:
    """The sum of what add(start, stop, accumulator) adds, each thread into an array of its own."""
    parts = np.zeros((len(chunks(n)), *shape), dtype)
    run_chunks(lambda i, a, b: add(a, b, parts[i]), n)
    for other in parts[1:]:
        parts[0] += other
    return np.asarray(parts[0])


class _BlasLimit:
    """One BLAS thread while anybody asks for it; asking again within costs nothing."""

    def __init__(self) -> None:
        self._lock, self._holders = threading.Lock(), 0
        self._limit: Any = None

    def take(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._limit = _blas(len(sys.modules)).limit(limits=1, user_api="blas")
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._limit is not None:
                self._limit.restore_original_limits()


_limit = _BlasLimit()


@functools.lru_cache(maxsize=1)
def _blas(_modules: int) -> ThreadpoolController:
    """The BLAS libraries of the process; modules imported since may have brought others."""
    return ThreadpoolController()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """One BLAS thread: small factorizations on a loaded machine can be 40x slower with more."""
    _limit.take()
    try:
        yield
    finally:
        _limit.release()


def times(A: Array, B: Array) -> Array:
    """A @ B, the rows of A cut between threads.

    BLAS' own threads go on spinning after a product and take a core from the loops that follow.
    """
    out = np.empty((A.shape[0], B.shape[1]), A.dtype)
    rows = _enough(A.shape[1] * B.shape[1])
    with single_blas_thread():
        run_chunks(lambda _, a, b: np.matmul(A[a:b], B, out=out[a:b]), A.shape[0], rows)
    return out


def transposed_times(A: Array, B: Array) -> Array:
    """A.T @ B, the columns of A cut between threads."""
    out = np.empty((A.shape[1], B.shape[1]), A.dtype)
    columns = _enough(A.shape[0] * B.shape[1])
    with single_blas_thread():
        run_chunks(lambda _, a, b: np.matmul(A[:, a:b].T, B, out=out[a:b]), A.shape[1], columns)
    return out


def _enough(work: int) -> int:
    """Items a thread, given the multiplications of one."""
    return 1 + MIN_PRODUCT // max(1, work)
