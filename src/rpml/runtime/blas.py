"""Matrix products on our threads, and BLAS held to one thread meanwhile."""

import functools
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import DTypeLike
from threadpoolctl import OpenBLASController, ThreadpoolController, threadpool_limits

from rpml.runtime.rows import Array
from rpml.runtime.threads import run_chunks, sum_chunks

MIN_PRODUCT = 2_000_000  # multiplications per chunk: fewer are not worth waking a thread
MIN_ROWS = 256  # per chunk of a product: BLAS packs all of the other matrix for each of them
MIN_SUMMED = 1024  # per chunk of a transposed product: each adds a matrix to the sum
CACHE_LINE = 64  # bytes


class _BlasLimit:
    """Limits BLAS to one thread while anyone needs it; nested requests cost nothing."""

    def __init__(self) -> None:
        self._lock, self._holders = threading.Lock(), 0
        self._limit: threadpool_limits | None = None

    def take(self) -> None:
        with self._lock:
            if self._holders == 0:
                _let_this_thread_limit()
                self._limit = _blas(len(sys.modules)).limit(limits=1, user_api="blas")
            self._holders += 1

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._limit is not None:
                _let_this_thread_limit()
                self._limit.restore_original_limits()


def _let_this_thread_limit() -> None:
    """Let any thread set limits: from 3.8 on, threadpoolctl only obeys the first one."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_limit = _BlasLimit()


@functools.lru_cache(maxsize=1)
def _blas(_modules: int) -> ThreadpoolController:
    """Return the loaded BLAS libraries; later imports may have loaded others."""
    return ThreadpoolController()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Use one BLAS thread: on a busy machine small factorizations can be 40x slower with more."""
    _limit.take()
    try:
        yield
    finally:
        _limit.release()


def times(A: Array, B: Array) -> Array:
    """Compute A @ B with the rows of A split between threads.

    BLAS threads keep spinning after a product and would take a core from the loops that follow.
    """
    out = aligned((A.shape[0], B.shape[1]), A.dtype)
    rows = max(MIN_ROWS, _enough(B.size))
    with single_blas_thread():
        run_chunks(lambda _, a, b: np.matmul(A[a:b], B, out=out[a:b]), A.shape[0], rows)
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

    Split by columns of A instead, every chunk would pack all of B anew for BLAS.
    """
    shape = A.shape[1], B.shape[1]

    def product(start: int, stop: int, out: Array) -> None:
        np.matmul(A[start:stop].T, B[start:stop], out=out)

    with single_blas_thread():
        minimum = max(MIN_SUMMED, *shape, _enough(math.prod(shape)))
        return sum_chunks(product, len(A), shape, A.dtype, minimum)


def gram(A: Array) -> Array:
    """Compute A.T @ A, at half the cost of a product: numpy notices that both are one matrix."""
    return transposed_times(A, A)


def _enough(work: int) -> int:
    """Return the items per chunk, given the multiplications per item."""
    return 1 + MIN_PRODUCT // max(1, work)
