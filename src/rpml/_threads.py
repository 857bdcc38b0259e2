"""Threads: how many, and how a range of work is cut between them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def thread_count() -> int:
    """Cores this process may use, bounded by OMP_NUM_THREADS as BLAS is."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, int(limit) if limit.isdigit() and int(limit) > 0 else cores or 1))


def chunks(n: int, parts: int) -> list[tuple[int, int]]:
    """Cut range(n) into at most `parts` contiguous non-empty pieces of nearly equal size."""
    parts = max(1, min(parts, n))
    edges = [n * i // parts for i in range(parts + 1)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def run_chunks(work: Callable[[int, int, int], None], n: int, minimum: int) -> int:
    """Call work(part, start, stop) over range(n), one thread a part; return the number of parts.

    Threads release the GIL in our compiled kernels. A part has at least `minimum` items, so small
    problems run inline and pay nothing. The cut depends on n and the thread count alone, which
    keeps sums reproducible.
    """
    pieces = chunks(n, min(thread_count(), max(1, n // minimum)))
    if len(pieces) == 1:
        work(0, *pieces[0])
        return 1
    with ThreadPoolExecutor(len(pieces)) as pool:
        for future in [pool.submit(work, i, a, b) for i, (a, b) in enumerate(pieces)]:
            future.result()
    return len(pieces)
