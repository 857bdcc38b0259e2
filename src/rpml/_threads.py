"""Threads: how many, and how a range of work is cut between them."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import cast

import numpy as np
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import ThreadpoolController

MIN_CHUNK = 8192  # triplets a thread; with fewer, starting the thread costs more than it saves


def thread_count() -> int:
    """Cores this process may use, bounded by OMP_NUM_THREADS as BLAS is."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores or 1, int(limit) if limit.isdigit() and int(limit) else cores or 1))


def chunks(n: int, minimum: int = MIN_CHUNK) -> list[tuple[int, int]]:
    """Cut range(n) into one contiguous piece a thread, each of at least `minimum` items.

    The cut depends on n and the thread count alone, which keeps sums reproducible.
    """
    parts = max(1, min(thread_count(), n // minimum))
    edges = [n * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


def run_chunks(work: Callable[[int, int, int], None], n: int, minimum: int = MIN_CHUNK) -> None:
    """Call work(part, start, stop) over `chunks(n)`, one thread a part; small work runs inline.

    Threads help because the compiled kernels and numpy's loops release the GIL.
    """
    pieces = chunks(n, minimum)
    if len(pieces) == 1:
        work(0, *pieces[0])
        return
    with ThreadPoolExecutor(len(pieces)) as pool:
        for future in [pool.submit(work, i, a, b) for i, (a, b) in enumerate(pieces)]:
            future.result()


def sum_chunks(
    add: Callable[[int, int, NDArray[np.floating]], None],
    n: int,
    shape: tuple[int, ...],
    dtype: DTypeLike,
) -> NDArray[np.floating]:
    """The sum of what add(start, stop, accumulator) adds, each thread into an array of its own."""
    parts = np.zeros((len(chunks(n)), *shape), dtype)
    run_chunks(lambda i, a, b: add(a, b, parts[i]), n)
    return np.asarray(parts[0] if len(parts) == 1 else parts.sum(axis=0))


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def single_blas_thread() -> AbstractContextManager[object]:
    """One BLAS thread: small factorizations on a loaded machine can be 40x slower with more."""
    return cast("AbstractContextManager[object]", _blas().limit(limits=1, user_api="blas"))
