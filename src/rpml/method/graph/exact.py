"""Exact nearest neighbors by products of blocks of rows, each pair of blocks once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rpml.method.graph import kernels as kernels
from rpml.runtime.blas import single_blas_thread, times
from rpml.runtime.context import Arrays, LoopState
from rpml.runtime.memory import WORKING_MEMORY
from rpml.runtime.rows import Array, first_not_finite, slices, unit_rows
from rpml.runtime.threads import run_chunks

Progress = Callable[[float], object]
Pair = tuple[int, int]
Heaps = tuple[Array, NDArray[np.int32]]  # (scores, rows), best first

_BLOCK = 736  # rows: enough for fast products; of 1024, columns of scores share cache sets
_HOLDERS = 8  # threads; fixed, since products of other blocks would round differently
_TINY = 1e-30  # squared norm of a row that has no direction
_LARGEST = 1e18  # beyond, squared distances overflow float32
EMPTY_SLOT = int(np.iinfo(np.int32).max)  # an empty position in a heap


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
    ready: NDArray[np.float32] | None = None  # all prepared rows, if memory allows

    @property
    def count(self) -> int:
        return int(self.X.shape[0])

    def block(self, rows: slice | NDArray[np.integer], dtype: DTypeLike = np.float32) -> Array:
        if self.ready is not None and dtype == np.float32:
            return self.ready[rows]
        return prepare(self.X[rows], self.metric, dtype, self.center, self.unit)

    def prepared(self, memory_limit: int) -> SearchCorpus:
        """Prepare all rows once instead of for every pair of blocks, if they fit the limit."""
        if self.ready is not None or 4 * self.X.shape[0] * self.X.shape[1] > memory_limit // 2:
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
    if metric == "cosine":
        for part in slices(n, _chunk(d, memory_limit)):
            _check_finite(X[part], part.start)
        return SearchCorpus(X, metric, np.zeros(d), 1.0, np.full(n, 0.5))
    low, high, mean = _range(X, memory_limit)
    center, unit = center_and_unit(low, high, mean)
    half = np.empty(n)
    for part in slices(n, _chunk(d, memory_limit)):
        block = prepare(X[part], metric, np.float64, center, unit)
        half[part] = 0.5 * np.einsum("ij,ij->i", block, block)
    return SearchCorpus(X, metric, center, unit, half)


def _range(X: Array, memory_limit: int) -> tuple[NDArray[np.float64], ...]:
    """Return minimum, maximum and mean of each column; ValueError if a value is not finite."""
    n, d = X.shape
    low, high, mean = np.full(d, np.inf), np.full(d, -np.inf), np.zeros(d)
    for part in slices(n, _chunk(d, memory_limit)):
        block = np.asarray(X[part], dtype=np.float64)
        _check_finite(block, part.start)
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
        mean += (block / n).sum(axis=0)
    return low, high, mean


def _check_finite(block: Array, first: int) -> None:
    bad = first_not_finite(block)
    if bad is not None:
        raise ValueError(f"X[{first + bad[0]}, {bad[1]}] is {block[bad]}")


def center_and_unit(
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


def _chunk(d: int, memory_limit: int) -> int:
    return max(1, memory_limit // (32 * d))


def block_size(n: int, d: int, memory_limit: int) -> int:
    """Return the rows per block: several blocks per thread, eight of them within the limit."""
    size = min(_BLOCK, max(256, -(-n // 8)))
    while size > 32 and 4 * _HOLDERS * size * (size + 8 * d) > memory_limit:
        size //= 2
    return size


def search_pairs(
    rows: SearchCorpus,
    blocks: Sequence[NDArray[np.int32]],
    pairs: Iterable[Pair],
    k: int,
    progress: Progress,
    state: LoopState | None = None,
) -> Heaps:
    """Find the top k of every row among the rows of the blocks paired with its own.

    The product of a pair is used in both directions. Pairs run in rounds without a common block,
    so no two threads use the same heap, and every heap sees its pairs in a fixed order.
    """
    order = np.concatenate(blocks)
    edges = np.cumsum([0, *map(len, blocks)])
    vals, idx = empty_heaps(order.size, k)
    half = rows.half.astype(np.float32)[order]
    places = [_as_slice(block) for block in blocks]

    def search(a: int, b: int) -> None:
        left, right = slice(edges[a], edges[a + 1]), slice(edges[b], edges[b + 1])
        first = rows.block(places[a])
        scores = first @ (first if a == b else rows.block(places[b])).T
        size, width = scores.shape
        mine, theirs = (vals[left], idx[left]), (vals[right], idx[right])
        kernels.push_rows(scores, half[right], blocks[a], blocks[b], *mine, 0, size)
        if a != b:
            kernels.push_columns(scores, half[left], blocks[a], *theirs, 0, width)

    run_pairs(search, pairs, np.diff(edges), progress, HeapState(state, (vals, idx)))
    sort(vals, idx)
    back = np.empty_like(order)
    back[order] = np.arange(order.size, dtype=order.dtype)
    return vals[back], idx[back]


@dataclass(frozen=True)
class HeapState:
    """The heaps of a search, and where they are kept between two rounds, if anywhere."""

    state: LoopState | None
    heaps: Heaps

    def resume(self) -> int:
        """Fill the heaps with those of a killed search; return how many rounds it had finished."""
        scores, rows = self.heaps
        done = self.state.resume(self._arrays()) if self.state else 0
        if done and ((rows < 0) | ((rows >= len(rows)) & (rows != EMPTY_SLOT))).any():
            done = 0  # not what a search of these rows has stored
            scores[:], rows[:] = empty_heaps(*rows.shape)
        return done

    def finished(self, rounds: int) -> None:
        if self.state:
            self.state.finished(rounds, self._arrays())

    def _arrays(self) -> Arrays:
        return {"scores": self.heaps[0], "rows": self.heaps[1]}


def _as_slice(rows: NDArray[np.int32]) -> slice | NDArray[np.int32]:
    """Return consecutive rows as a slice, which avoids a copy."""
    if len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def run_pairs(
    search: Callable[[int, int], None],
    pairs: Iterable[Pair],
    sizes: NDArray[np.intp],
    progress: Progress,
    heaps: HeapState | None = None,
) -> None:
    """Call search(a, b) for all pairs of blocks, in parallel where they share no block."""
    rounds = disjoint_rounds(pairs)
    areas = [sum(int(sizes[a] * sizes[b]) for a, b in turn) for turn in rounds]
    first = heaps.resume() if heaps else 0
    with single_blas_thread():
        for number, turn in enumerate(rounds[first:], first + 1):
            turn.sort(key=lambda pair: -int(sizes[pair[0]] * sizes[pair[1]]))  # the longest first

            def work(_: int, start: int, stop: int, turn: list[Pair] = turn) -> None:
                for a, b in turn[start:stop]:
                    search(a, b)

            run_chunks(work, len(turn), 1)
            if heaps:
                heaps.finished(number)
            progress(sum(areas[:number]) / sum(areas))


def disjoint_rounds(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Distribute pairs to rounds in which no block appears twice (greedy edge coloring)."""
    busy: defaultdict[int, int] = defaultdict(int)  # bit r: the block is in round r
    rounds: list[list[Pair]] = []
    for a, b in pairs:
        taken = busy[a] | busy[b]
        free = ~taken & (taken + 1)
        busy[a] |= free
        busy[b] |= free
        at = free.bit_length() - 1
        if at == len(rounds):
            rounds.append([])
        rounds[at].append((a, b))
    return rounds


def search_rows(
    rows: SearchCorpus,
    queries: NDArray[np.intp],
    k: int,
    memory_limit: int,
    dtype: DTypeLike = np.float64,
) -> Heaps:
    """Find the top k of the given rows among all rows."""
    n, d = rows.X.shape
    ids = np.arange(n, dtype=np.int32)
    heaps = empty_heaps(queries.size, k, dtype)
    size = block_size(16 * _BLOCK, 2 * d, memory_limit // 2)
    half = rows.half.astype(dtype)
    for a in slices(queries.size, size):
        left = rows.block(queries[a], dtype)
        for b in slices(n, size):
            scores = times(left, rows.block(b, dtype).T)
            push_scores(scores, half[b], ids[queries[a]], ids[b], (heaps[0][a], heaps[1][a]))
    sort(*heaps)
    return heaps


def empty_heaps(n: int, k: int, dtype: DTypeLike = np.float32) -> Heaps:
    """Return n heaps of k empty slots."""
    return np.full((n, k), -np.inf, dtype=dtype), np.full((n, k), EMPTY_SLOT, dtype=np.int32)


def push_scores(
    scores: Array, half: Array, rows: NDArray[np.int32], cols: NDArray[np.int32], heaps: Heaps
) -> None:
    """Push every score to the heap of its row; the rows are split between threads."""

    def work(_: int, start: int, stop: int) -> None:
        kernels.push_rows(scores, half, rows, cols, *heaps, start, stop)

    run_chunks(work, scores.shape[0], 64)


def sort(vals: Array, idx: NDArray[np.integer]) -> None:
    """Sort heaps into lists, best first."""
    run_chunks(lambda _, a, b: kernels.sort_heaps(vals, idx, a, b), vals.shape[0], 256)


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
            kernels.push_sums(
                products[i],
                products[j],
                (scale[left], ids[left], scores[left], rows[left]),
                (scale[right], ids[right], scores[right], rows[right]),
                a != b,
            )

    pairs = ((a, b) for a in range(len(blocks)) for b in range(a, len(blocks)))
    sizes = np.array([part.stop - part.start for part in blocks])
    run_pairs(search, pairs, sizes, lambda share: None)
    return [rows for _, rows in found]
