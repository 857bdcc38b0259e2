"""Exact nearest neighbors by products of blocks of rows, each pair of blocks once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rpml.method.graph.heaps import (
    Heaps,
    empty_heaps,
    push_columns,
    push_rows,
    push_scores,
    push_sums,
    resume_heaps,
    sort_heaps,
    store_heaps,
)
from rpml.runtime.context import WORKING_MEMORY, LoopState
from rpml.runtime.rows import Array, first_not_finite, slices, unit_rows
from rpml.runtime.threads import run_chunks, single_blas_thread, times

Progress = Callable[[float], object]
Pair = tuple[int, int]

_BLOCK = 736  # rows: enough for fast products; of 1024, columns of scores share cache sets
_HOLDERS = 8  # threads; fixed, since products of other blocks would round differently
_TINY = 1e-30  # squared norm of a row that has no direction
_LARGEST = 1e18  # beyond, squared distances overflow float32


@dataclass(frozen=True)
class SearchCorpus:
    """Rows prepared for the search in blocks, so that a large X is never copied as a whole.

    The score of row j for row i is x_i x_j - half_j, largest for the nearest; the squared distance
    is 2 (half_i - score), in units of unit^2.
    """

    X: Array
    metric: str
    center: NDArray[np.float64]
    unit: float
    half: NDArray[np.float64]  # half squared norms
    memory_limit: int  # bytes for the working blocks
    ready: NDArray[np.float32] | None = None  # all prepared rows, if memory allows

    @property
    def count(self) -> int:
        return int(self.X.shape[0])

    def block(self, rows: slice | NDArray[np.integer], dtype: DTypeLike = np.float32) -> Array:
        if self.ready is not None and dtype == np.float32:
            return self.ready[rows]
        return prepare(self.X[rows], self.metric, dtype, self.center, self.unit)

    def prepared(self) -> SearchCorpus:
        """Prepare all rows once instead of for every pair of blocks, if they fit the limit."""
        if 4 * self.X.shape[0] * self.X.shape[1] > self.memory_limit // 2:
            return self
        ready = np.empty(self.X.shape, np.float32)
        run_chunks(lambda _, a, b: np.copyto(ready[a:b], self.block(slice(a, b))), len(ready), 1024)
        return replace(self, ready=ready)

    def squares(self, rows: slice | NDArray[np.integer], scores: Array) -> NDArray[np.float64]:
        """Return squared distances from the scores of the given rows."""
        return np.asarray(np.maximum(2.0 * (self.half[rows, None] - scores), 0.0))


def prepare(
    block: Array,
    metric: str,
    dtype: DTypeLike = np.float64,
    center: NDArray[np.float64] | float = 0.0,
    unit: float = 1.0,
) -> Array:
    """Prepare rows for products: unit norm (cosine), or centered in `unit`s (Euclidean)."""
    if metric == "euclidean":
        rows = np.asarray(block, dtype=np.result_type(block, dtype))
        rows = rows - np.asarray(center, dtype=rows.dtype)
        return np.asarray(rows if unit == 1.0 else rows / unit, dtype=dtype)
    return np.asarray(unit_rows(np.asarray(block, np.result_type(block, dtype))), dtype=dtype)


def measure(X: Array, metric: str, memory_limit: int) -> SearchCorpus:
    """Read all rows once: check that they are finite; find their center and norms."""
    n, d = X.shape
    parts = list(slices(n, max(1, memory_limit // (32 * d))))
    low, high, mean = np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d)
    for part in parts:
        if (bad := first_not_finite(X[part])) is not None:
            raise ValueError(f"X[{part.start + bad[0]}, {bad[1]}] is {X[part][bad]}")
        if metric == "euclidean":
            block: Array = np.asarray(X[part], dtype=np.float64)
            low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
            mean += (block / n).sum(axis=0)
    if metric == "cosine":
        return SearchCorpus(X, metric, np.zeros(d), 1.0, np.full(n, 0.5), memory_limit)
    center, unit = _center_and_unit(low, high, mean)
    half = np.empty(n)
    for part in parts:
        block = prepare(X[part], metric, np.float64, center, unit)
        half[part] = 0.5 * np.einsum("ij,ij->i", block, block)
    return SearchCorpus(X, metric, center, unit, half, memory_limit)


def _center_and_unit(
    low: NDArray[np.float64], high: NDArray[np.float64], mean: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return column means, rounded to a power of two near the column's spread, and a unit.

    |x - y|^2 = |x|^2 + |y|^2 - 2xy cancels if the norms are large compared to the distance, so the
    data are centered. A coarse center is sufficient and keeps integers and other round values
    round, so that their products, and hence ties, are exact. The unit is 1 unless squares would
    overflow float32.
    """
    largest = float(max(np.abs(low).max(), np.abs(high).max()))
    if largest > _LARGEST:
        raise ValueError(f"X has values up to {largest:.3g}; divide it to stay below {_LARGEST:g}")
    spread = (high - low) / 4.0
    grid = np.exp2(np.ceil(np.log2(np.where(spread > 0, spread, 1.0))))
    center = np.where(spread > 0, np.round(mean / grid) * grid, low)
    widest = float(spread.max())
    extreme = widest > 1e6 or 0 < widest < 1e-6
    return center, float(np.exp2(np.round(np.log2(widest)))) if extreme else 1.0


def block_size(n: int, d: int, memory_limit: int) -> int:
    """Return the rows per block: several blocks per thread, eight of them within the limit."""
    size = min(_BLOCK, max(256, -(-n // 8)))
    while size > 32 and 4 * _HOLDERS * size * (size + 8 * d) > memory_limit:
        size //= 2
    return size


def search_all(rows: SearchCorpus, k: int, progress: Progress, state: LoopState | None) -> Heaps:
    """Find the top k of every row among all others; a killed search continues by its `state`."""
    n, d = rows.X.shape
    rows = rows.prepared()
    blocks = list(slices(n, block_size(n, d, rows.memory_limit)))
    ids, half = np.arange(n, dtype=np.int32), rows.half.astype(np.float32)
    vals, idx = heaps = empty_heaps(n, k)

    def search(a: int, b: int) -> None:
        left, right = blocks[a], blocks[b]
        first = rows.block(left)
        scores = first @ (first if a == b else rows.block(right)).T
        push_rows(scores, half[right], ids[left], ids[right], vals[left], idx[left])
        if a != b:
            push_columns(scores, half[left], ids[left], vals[right], idx[right])

    def finished(rounds: int) -> None:
        store_heaps(heaps, state, rounds)
        progress(rounds / len(blocks))

    run_pairs(search, len(blocks), resume_heaps(heaps, state), finished)
    sort_heaps(heaps)
    return heaps


def run_pairs(
    search: Callable[[int, int], None],
    count: int,
    first: int = 0,
    finished: Callable[[int], None] = lambda rounds: None,
) -> None:
    """Call search(a, b) for all pairs a <= b of blocks, so that each product is used both ways.

    In round r the pairs with a + b = r modulo `count` run in parallel. No block is in two of
    them, so no two threads use the same heap, and every heap sees its pairs in a fixed order.
    """
    with single_blas_thread():
        for r in range(first, count):
            pairs = [(a, (r - a) % count) for a in range(count) if a <= (r - a) % count]

            def work(_: int, start: int, stop: int, pairs: list[Pair] = pairs) -> None:
                for a, b in pairs[start:stop]:
                    search(a, b)

            run_chunks(work, len(pairs), 1)
            finished(r + 1)


def search_rows(
    rows: SearchCorpus,
    queries: NDArray[np.intp],
    k: int,
    dtype: DTypeLike = np.float64,
) -> Heaps:
    """Find the top k of the given rows among all rows."""
    n, d = rows.X.shape
    ids = np.arange(n, dtype=np.int32)
    heaps = empty_heaps(queries.size, k, dtype)
    size = block_size(16 * _BLOCK, 2 * d, rows.memory_limit // 2)
    half = rows.half.astype(dtype)
    for a in slices(queries.size, size):
        left = rows.block(queries[a], dtype)
        for b in slices(n, size):
            scores = times(left, rows.block(b, dtype).T)
            push_scores(scores, half[b], ids[queries[a]], ids[b], (heaps[0][a], heaps[1][a]))
    sort_heaps(heaps)
    return heaps


def nearest_by_unions(
    parts: Sequence[Array], unions: Sequence[Pair], k: int
) -> list[NDArray[np.int32]]:
    """Find the k other rows of highest cosine, per union of two parts of the columns, in any order.

    Inner products add up, so each part is multiplied once, however many unions it is in.

    `parts` are columns of the rows in float32, (n, any). Returns (n, k) row numbers per union.
    """
    n, width = len(parts[0]), sum(part.shape[1] for part in parts)
    squares = [np.vecdot(part, part) for part in parts]
    scales = [1 / np.sqrt(np.maximum(squares[i] + squares[j], _TINY)) for i, j in unions]
    found = [empty_heaps(n, min(k, n - 1)) for _ in unions]
    blocks = list(slices(n, block_size(n, width, WORKING_MEMORY)))
    ids = np.arange(n, dtype=np.int32)

    def search(a: int, b: int) -> None:
        left, right = blocks[a], blocks[b]
        products = [part[left] @ part[right].T for part in parts]
        for (i, j), scale, (scores, rows) in zip(unions, scales, found, strict=True):
            push_sums(
                products[i],
                products[j],
                (scale[left], ids[left], scores[left], rows[left]),
                (scale[right], ids[right], scores[right], rows[right]),
                a != b,
            )

    run_pairs(search, len(blocks))
    return [rows for _, rows in found]
