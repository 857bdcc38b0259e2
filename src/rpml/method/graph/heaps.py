"""The best k rows of many rows at a time: heaps of scores, filled by products of blocks of rows.

`nearest_rows` is the search for the nearest of some rows to others; `rpml.method.graph.neighbors`
finds the neighbors of all rows among themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rpml.runtime.compiled import compiled
from rpml.runtime.context import WORKING_MEMORY, LoopState
from rpml.runtime.rows import Array, Floats, Indices, Integers, slices, unit_rows
from rpml.runtime.threads import run_chunks, single_blas_thread, times

Heaps = tuple[Array, NDArray[np.int32]]  # (scores, rows); best first once sorted
Progress = Callable[[float], object]  # called with the finished share
EMPTY_SLOT = int(np.iinfo(np.int32).max)  # an empty position in a heap
_BLOCK = 1024  # rows per block of scores
_PAIRED = 736  # rows of a pair of blocks: of 1024, columns of scores share cache sets
_HOLDERS = 8  # threads; fixed, since products of other blocks would round differently
_TINY = 1e-30  # squared norm of a row that has no direction
# Scores that are compared at a time: a count of those above a bar is vectorized, unlike a maximum.
# Unsigned, like the column counters: a signed index may count from the end, and checking for that
# would prevent vectorization.
_LANES = np.uint64(32)


def nearest_rows(
    queries: Array,
    rows: Array,
    k: int = 1,
    *,
    own: Integers | None = None,
    half: Array | None = None,
) -> tuple[Array, Indices]:
    """Return scores and numbers, both (n_queries, k), of the rows with the largest inner products.

    Best first, equal scores by number. `own` is one row per query to skip, such as the query
    itself. `half` is subtracted from the products: with half of the squared norms of the rows, the
    best are the nearest by Euclidean distance.
    """
    heaps = empty_heaps(len(queries), min(k, len(rows) - (own is not None)), queries.dtype)
    if k == 1 and own is None and len(rows) <= 4 * _BLOCK:  # a heap would be slower
        columns = np.ascontiguousarray(rows.T)
        for a in slices(len(queries), _BLOCK):
            scores = times(queries[a], columns)
            if half is not None:
                scores -= half
            heaps[1][a, 0] = scores.argmax(axis=1)
            heaps[0][a] = np.take_along_axis(scores, heaps[1][a], axis=1)
        return heaps[0], heaps[1].astype(np.intp)
    half = np.zeros(len(rows), queries.dtype) if half is None else half
    names = np.arange(len(rows), dtype=np.int32)
    skipped = np.full(len(queries), -1, np.int32) if own is None else names[own]
    for a in slices(len(queries), _BLOCK):
        for b in slices(len(rows), _BLOCK):
            scores = times(queries[a], rows[b].T)
            push_scores(scores, half[b], skipped[a], names[b], (heaps[0][a], heaps[1][a]))
    sort_heaps(heaps)
    return heaps[0], heaps[1].astype(np.intp)


def nearest_others(rows: Array, which: Integers, k: int = 1) -> Indices:
    """Return (n, k), the other rows of highest cosine to the rows `which`, nearest first."""
    units = unit_rows(rows)
    return nearest_rows(units[which], units, k, own=which)[1]


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
    ready: Floats | None = None  # all prepared rows, if memory allows

    @property
    def count(self) -> int:
        return int(self.X.shape[0])

    def block(self, rows: slice | Integers, dtype: DTypeLike = np.float32) -> Array:
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

    def squares(self, rows: slice | Integers, scores: Array) -> NDArray[np.float64]:
        """Return squared distances from the scores of the given rows."""
        return np.asarray(np.maximum(2.0 * (self.half[rows, None] - scores), 0.0))


def prepare(
    block: Array, metric: str, dtype: DTypeLike, center: NDArray[np.float64], unit: float
) -> Array:
    """Prepare rows for products: unit norm (cosine), or centered in `unit`s (Euclidean)."""
    if metric == "euclidean":
        rows = np.asarray(block, dtype=np.result_type(block, dtype))
        rows = rows - np.asarray(center, dtype=rows.dtype)
        return np.asarray(rows if unit == 1.0 else rows / unit, dtype=dtype)
    return np.asarray(unit_rows(np.asarray(block, np.result_type(block, dtype))), dtype=dtype)


def search_rows(
    rows: SearchCorpus, queries: Indices, k: int, dtype: DTypeLike = np.float64
) -> Heaps:
    """Find the top k of the given rows among all rows."""
    n, d = rows.X.shape
    ids = np.arange(n, dtype=np.int32)
    heaps = empty_heaps(queries.size, k, dtype)
    size = block_size(n, 2 * d, rows.memory_limit // 2)
    half = rows.half.astype(dtype)
    for a in slices(queries.size, size):
        left = rows.block(queries[a], dtype)
        for b in slices(n, size):
            scores = times(left, rows.block(b, dtype).T)
            push_scores(scores, half[b], ids[queries[a]], ids[b], (heaps[0][a], heaps[1][a]))
    sort_heaps(heaps)
    return heaps


def block_size(n: int, d: int, memory_limit: int) -> int:
    """Return the rows per block: several blocks per thread, eight of them within the limit."""
    size = min(_PAIRED, max(256, -(-n // 8)))
    while size > 32 and 4 * _HOLDERS * size * (size + 8 * d) > memory_limit:
        size //= 2
    return size


def block_pairs(r: int, count: int) -> list[tuple[int, int]]:
    """Return the pairs a <= b of `count` blocks with a + b = r modulo `count`.

    So `count` rounds have all pairs, and each product is used both ways; no block is in two pairs
    of a round.
    """
    return [(a, (r - a) % count) for a in range(count) if a <= (r - a) % count]


def run_rounds(
    search: Callable[..., None],
    rounds: Sequence[Iterable[tuple[Any, ...]]],
    heaps: Heaps | None = None,
    progress: Progress | None = None,
) -> None:
    """Call search(*task) for the tasks of each round, those of one round in parallel.

    No two of these may use the same heap; every heap then sees its tasks in a fixed order. Between
    rounds the heaps are stored by a `LoopState`, from where a killed search continues.
    """
    state = progress if isinstance(progress, LoopState) else None
    with single_blas_thread():
        for r in range(resume_heaps(heaps, state) if heaps else 0, len(rounds)):
            tasks = list(rounds[r])

            def work(_: int, start: int, stop: int, tasks: list[tuple[Any, ...]] = tasks) -> None:
                for task in tasks[start:stop]:
                    search(*task)

            run_chunks(work, len(tasks), 1)
            if state and heaps:
                state.finished(r + 1, {"scores": heaps[0], "rows": heaps[1]})
            if progress:
                progress((r + 1) / len(rounds))


def nearest_by_unions(
    parts: Sequence[Array], unions: Sequence[tuple[int, int]], k: int
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

    run_rounds(search, [block_pairs(r, len(blocks)) for r in range(len(blocks))])
    return [rows for _, rows in found]


def empty_heaps(n: int, k: int, dtype: DTypeLike = np.float32) -> Heaps:
    return np.full((n, k), -np.inf, dtype=dtype), np.full((n, k), EMPTY_SLOT, dtype=np.int32)


def push_scores(
    scores: Array, half: Array, rows: NDArray[np.int32], cols: NDArray[np.int32], heaps: Heaps
) -> None:
    """Push every score to the heap of its row; the rows are split between threads."""
    vals, idx = heaps
    run_chunks(
        lambda _, a, b: push_rows(scores[a:b], half, rows[a:b], cols, vals[a:b], idx[a:b]),
        scores.shape[0],
        64,
    )


def sort_heaps(heaps: Heaps) -> None:
    vals, idx = heaps
    run_chunks(lambda _, a, b: _sort(vals[a:b], idx[a:b]), len(vals), 256)


def resume_heaps(heaps: Heaps, state: LoopState | None) -> int:
    """Fill the heaps with those of a killed search; return how many rounds it had finished."""
    scores, rows = heaps
    done = state.resume({"scores": scores, "rows": rows}) if state else 0
    if done and ((rows < 0) | ((rows >= len(rows)) & (rows != EMPTY_SLOT))).any():
        done = 0  # not what a search of these rows has stored
        scores[:], rows[:] = empty_heaps(*rows.shape)
    return done


@compiled()
def _push(vals, idx, value, index):  # type: ignore[no-untyped-def]
    """Replace the worst entry of a heap by (value, index).

    The root is the worst entry: the smallest value and, among equal values, the largest index.
    """
    k = vals.shape[0]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        right = child + 1
        if right < k and (
            vals[right] < vals[child] or (vals[right] == vals[child] and idx[right] > idx[child])
        ):
            child = right
        if vals[child] > value or (vals[child] == value and idx[child] < index):
            break
        vals[at] = vals[child]
        idx[at] = idx[child]
        at = child
    vals[at] = value
    idx[at] = index


@compiled()
def push_rows(scores, half, rows, cols, vals, idx):  # type: ignore[no-untyped-def]
    """Push scores[r, c] - half[c] to the heap vals[r], idx[r] of its row.

    `rows` and `cols` are the indices of the block's rows and columns in the data, `half` the half
    squared norms of the columns. A row is never pushed to its own heap.
    """
    width = np.uint64(scores.shape[1])
    for r in range(len(scores)):
        me = rows[r]
        bar = vals[r, 0]
        line = scores[r]
        c0 = np.uint64(0)
        while c0 < width:
            c1 = min(c0 + _LANES, width)
            above = np.int32(0)
            for c in range(c0, c1):
                above += np.int32(line[c] - half[c] >= bar)
            if above:
                for c in range(c0, c1):
                    value = line[c] - half[c]
                    better = value > bar or (value == bar and cols[c] < idx[r, 0])
                    if better and cols[c] != me:
                        _push(vals[r], idx[r], value, cols[c])
                        bar = vals[r, 0]
            c0 = c1


@compiled()
def push_columns(scores, half, rows, vals, idx):  # type: ignore[no-untyped-def]
    """Push scores[r, c] - half[r] to the heap vals[c], idx[c] of its column.

    Since distances are symmetric, one product serves the rows and the columns of a block.
    """
    bars = vals[:, 0].copy()
    width = np.uint64(scores.shape[1])
    for r in range(scores.shape[0]):
        shift = half[r]
        line = scores[r]
        c0 = np.uint64(0)
        while c0 < width:
            c1 = min(c0 + _LANES, width)
            above = np.int32(0)
            for c in range(c0, c1):
                above += np.int32(line[c] - shift >= bars[c])
            if above:
                for c in range(c0, c1):
                    value = line[c] - shift
                    if value > bars[c] or (value == bars[c] and rows[r] < idx[c, 0]):
                        _push(vals[c], idx[c], value, rows[r])
                        bars[c] = vals[c, 0]
            c0 = c1


@compiled()
def push_sums(first, second, left, right, both):  # type: ignore[no-untyped-def]
    """Push the scaled scores first + second to the heaps of their rows and, if `both`, columns.

    `left` and `right` hold, of the rows and of the columns: scales, indices and heaps. A score is
    multiplied by the scale of the other side; the own scale would not change the order in a heap.
    """
    row_scale, rows, vals, idx = left
    column_scale, columns, column_vals, column_idx = right
    bars = column_vals[:, 0].copy()
    if not both:
        bars[:] = np.inf
    width = np.uint64(first.shape[1])
    for r in range(len(first)):
        scale, bar = row_scale[r], vals[r, 0]
        one, two = first[r], second[r]
        c0 = np.uint64(0)
        while c0 < width:
            c1 = min(c0 + _LANES, width)
            above = np.int32(0)
            for c in range(c0, c1):
                score = one[c] + two[c]
                above += np.int32((score * column_scale[c] > bar) | (score * scale > bars[c]))
            if above:
                for c in range(c0, c1):
                    score = one[c] + two[c]
                    mine, theirs = score * column_scale[c], score * scale
                    if mine > bar and columns[c] != rows[r]:
                        _push(vals[r], idx[r], mine, columns[c])
                        bar = vals[r, 0]
                    if theirs > bars[c]:
                        _push(column_vals[c], column_idx[c], theirs, rows[r])
                        bars[c] = column_vals[c, 0]
            c0 = c1


@compiled()
def _sort(vals, idx):  # type: ignore[no-untyped-def]
    """Sort each heap into a list, best first (equal values by ascending index)."""
    for r in range(len(vals)):
        for size in range(vals.shape[1] - 1, 0, -1):
            value, index = vals[r, 0], idx[r, 0]
            _push(vals[r, :size], idx[r, :size], vals[r, size], idx[r, size])
            vals[r, size] = value
            idx[r, size] = index
