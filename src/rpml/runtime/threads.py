"""Threads: how many to use, how to split work between them, and matrix products on them."""

import functools
import itertools
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import numpy as np
from numpy.typing import DTypeLike
from threadpoolctl import OpenBLASController, ThreadpoolController, threadpool_limits

from rpml.runtime.rows import Array

MIN_CHUNK = 8192  # triplets per chunk; with fewer, waking a thread costs more than it saves
MAX_CHUNKS = 32  # enough for as many threads, few enough for fast matrix products
SUM_CHUNKS = 4  # fewer, since each needs an accumulator that is zeroed and added
_inside = threading.local()  # set in the pool's threads: nested work runs inline


@contextmanager
def using_threads(count: int) -> Iterator[None]:
    """Set the number of threads of the calling thread, whatever the environment says."""
    before = getattr(_inside, "count", 0)
    _inside.count = count
    try:
        yield
    finally:
        _inside.count = before


@contextmanager
def using_jobs(n_jobs: int | None) -> Iterator[None]:
    """Limit the threads like scikit-learn's `n_jobs`: -1 uses all cores, None changes nothing."""
    if n_jobs is None:
        yield
        return
    count = n_jobs if n_jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + n_jobs)
    with using_threads(count), threadpool_limits(count):
        yield


def thread_count() -> int:
    """Return the cores this process may use, limited by OMP_NUM_THREADS as in BLAS."""
    if asked := getattr(_inside, "count", 0):
        return int(asked)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores or 1, int(limit) if limit.isdigit() and int(limit) else cores or 1))


def chunks(n: int, minimum: int = MIN_CHUNK, most: int = MAX_CHUNKS) -> list[tuple[int, int]]:
    """Split range(n) into at most `most` contiguous chunks of at least `minimum` items.

    The chunks do not depend on the number of threads, so rounding does not either.
    """
    parts = max(1, min(most, n // minimum))
    edges = [n * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def run_chunks(work: Callable[[int, int, int], object], n: int, minimum: int = MIN_CHUNK) -> None:
    """Call work(index, start, stop) for each of `chunks(n, minimum)`, in parallel.

    Threads help because the compiled kernels and numpy's loops release the GIL.
    """
    waiting = deque((i, *piece) for i, piece in enumerate(chunks(n, minimum)))
    if len(waiting) == 1:
        work(*waiting.pop())
        return

    def run() -> None:
        while waiting:
            try:
                piece = waiting.popleft()
            except IndexError:  # another thread has taken the last one
                return
            work(*piece)

    threads = 1 if getattr(_inside, "pool", False) else min(thread_count(), len(waiting))
    futures = [_pool(os.getpid()).submit(run) for _ in range(threads - 1)]
    try:
        run()
    finally:
        waiting.clear()
        wait(futures)
    for future in futures:
        future.result()


@functools.cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return the threads of a process, kept between calls; a forked process inherits none."""
    return ThreadPoolExecutor(
        os.cpu_count(), "rpml", initializer=lambda: setattr(_inside, "pool", True)
    )


def sum_chunks(
    fill: Callable[[int, int, Array], object],
    n: int,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    minimum: int = MIN_CHUNK,
) -> Array:
    """Sum what fill(start, stop, out) writes to `out`, an empty array, over all chunks.

    The parts are added in order; at most one more than there are threads is held at a time.
    """
    pieces = chunks(n, minimum, SUM_CHUNKS)
    threads = thread_count()
    total: Array | None = None
    for first in range(0, len(pieces), threads):
        batch = pieces[first : first + threads]
        parts = [np.empty(shape, dtype) for _ in batch]

        def work(i: int, _start: int, _stop: int) -> None:
            fill(*batch[i], parts[i])  # noqa: B023 (called in this round)

        run_chunks(work, len(batch), 1)
        for part in parts:
            total = part if total is None else np.add(total, part, out=total)
    assert total is not None  # there is always a chunk
    return total


MIN_PRODUCT = 2_000_000  # multiplications per chunk: fewer are not worth waking a thread
MIN_ROWS = 256  # per chunk of a product: BLAS packs all of the other matrix for each of them
MIN_SUMMED = 1024  # per chunk of a transposed product: each adds a matrix to the sum
CACHE_LINE = 64  # bytes
FIXED_ROWS = 128  # of every product in `rowwise_times`


_lock = threading.Lock()
_limits: list[threadpool_limits] = []  # the limit, once for each block that is at work


def _let_this_thread_limit() -> None:
    """Let any thread set limits: from 3.8 on, threadpoolctl only obeys the first one."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@functools.lru_cache(maxsize=1)
def _blas(_modules: int) -> ThreadpoolController:
    """Return the loaded BLAS libraries; later imports may have loaded others."""
    return ThreadpoolController()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Use one BLAS thread: on a busy machine small factorizations can be 40x slower with more."""
    with _lock:
        if not _limits:
            _let_this_thread_limit()
            _limits.append(_blas(len(sys.modules)).limit(limits=1, user_api="blas"))
        else:
            _limits.append(_limits[0])
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()
            if not _limits:
                _let_this_thread_limit()
                limit.restore_original_limits()


def times(A: Array, B: Array) -> Array:
    """Compute A @ B with the rows of A split between threads.

    BLAS threads keep spinning after a product and would take a core from the loops that follow.
    """
    out = aligned((A.shape[0], B.shape[1]), A.dtype)
    rows = max(MIN_ROWS, _enough(B.size))
    with single_blas_thread():
        run_chunks(lambda _, a, b: np.matmul(A[a:b], B, out=out[a:b]), A.shape[0], rows)
    return out


def rowwise_times(A: Array, B: Array, out: Array | None = None) -> Array:
    """Compute A @ B so that a row's result does not depend on the others, to the last bit.

    BLAS chooses its loops by the shape of a product: here all products have the same one.
    """
    out = np.empty((len(A), B.shape[1]), A.dtype) if out is None else out
    rest = len(A) % FIXED_ROWS
    whole = len(A) - rest
    products = out[:whole].reshape(-1, FIXED_ROWS, B.shape[1])
    np.matmul(A[:whole].reshape(-1, FIXED_ROWS, A.shape[1]), B, out=products)
    if rest:
        padded = np.zeros((FIXED_ROWS, A.shape[1]), A.dtype)
        padded[:rest] = A[whole:]
        out[whole:] = (padded @ B)[:rest]
    return out


def aligned(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Return an empty array that starts at a cache line, like all rows of a multiple of its size.

    Elsewhere every vector of 64 bytes is read from two lines.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def aligned_rows(n: int, columns: int, dtype: DTypeLike) -> Array:
    """Return an empty array of n rows with at least so many columns, each at a cache line."""
    per_line = CACHE_LINE // np.dtype(dtype).itemsize
    return aligned((n, -(-columns // per_line) * per_line), dtype)


def transposed_times(A: Array, B: Array) -> Array:
    """Compute A.T @ B with the rows of both split between threads.

    Split by columns of A instead, every chunk would pack all of B anew for BLAS. A.T @ A takes half
    of the time: numpy notices that both are one matrix.
    """
    shape = A.shape[1], B.shape[1]

    def product(start: int, stop: int, out: Array) -> None:
        np.matmul(A[start:stop].T, B[start:stop], out=out)

    with single_blas_thread():
        minimum = max(MIN_SUMMED, *shape, _enough(math.prod(shape)))
        return sum_chunks(product, len(A), shape, A.dtype, minimum)


def outer(A: Array) -> Array:
    """Compute A @ A.T, each entry once: at little more than half the cost of a product."""
    out = aligned((len(A), len(A)), A.dtype)

    def fill(_: int, start: int, stop: int) -> None:
        np.matmul(A[start:stop], A[start:].T, out=out[start:stop, start:])
        out[stop:, start:stop] = out[start:stop, stop:].T

    with single_blas_thread():
        run_chunks(fill, len(A), max(MIN_ROWS, _enough(A.size)))
    return out


def _enough(work: int) -> int:
    """Return the items per chunk, given the multiplications per item."""
    return 1 + MIN_PRODUCT // max(1, work)
