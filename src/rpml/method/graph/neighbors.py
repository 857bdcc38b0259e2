"""The nearest neighbors of every row: exact by blocked products, approximate for many rows.

The approximate search assigns rows to cells around k-means centers. A sample is searched exactly,
and the cells of its true neighbors determine how many cells each row must search, so there is no
parameter to choose. The rows that search a cell are compared with it by one matrix product, which
costs far less per comparison than traversing an index row by row.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph.heaps import (
    EMPTY_SLOT,
    Heaps,
    Progress,
    SearchCorpus,
    block_pairs,
    block_size,
    empty_heaps,
    nearest_rows,
    prepare,
    push_columns,
    push_rows,
    run_rounds,
    search_rows,
    sort_heaps,
)
from rpml.runtime.context import WORKING_MEMORY
from rpml.runtime.errors import counted
from rpml.runtime.rows import Array, Floats, Indices, Integers, first_not_finite, slices, unit_rows

logger = logging.getLogger(__name__)

EXACT_ROWS = 100_000  # beyond, method="auto" uses the approximate search
_SPARE = 16  # candidates beyond k if products are inexact
_RELATIVE_ERROR = 1e-4  # squared distances with a larger error are recomputed
_LARGEST = 1e18  # beyond, squared distances overflow float32
_EPS32 = float(np.finfo(np.float32).eps)
# of the approximate search: benchmarks/ann.py and benchmarks/knn.py
CELL_RECALL = 0.98  # share of the true neighbors that the searched cells must contain
CELL_ROWS = 600  # rows
CELL_SAMPLE = 800  # rows searched exactly: half to choose, half to measure
CELL_TRAINING = 64  # rows per cell to place the centers
CELL_ROUNDS = 8  # of k-means
CELL_SEED = 0  # cells and sample are part of the method, not of the caller's randomness


@dataclass(frozen=True)
class Neighbors:
    """The nearest neighbors of every row, excluding itself."""

    indices: NDArray[np.int32]
    """(n, k) row numbers, nearest first; ties by row number."""
    distances: Floats
    """(n, k) Euclidean distances; for metric="cosine" those of unit rows, sqrt(2 - 2 cos), where a
    zero row has cosine 0 with all others."""
    metric: str = "euclidean"
    recall: float = 1.0
    """Share of the true neighbors: 1 for an exact search, otherwise measured on a sample."""
    method: str = "exact"

    @property
    def n_neighbors(self) -> int:
        return int(self.indices.shape[1])

    def first(self, k: int) -> Neighbors:
        """Return the k nearest of them, or all if there are fewer."""
        return replace(self, indices=self.indices[:, :k], distances=self.distances[:, :k])


def nearest_neighbors(
    X: Array,
    n_neighbors: int = 50,
    *,
    metric: str = "cosine",
    method: str = "auto",
    memory_limit: int = WORKING_MEMORY,
    progress: Progress | None = None,
) -> Neighbors:
    """Find the `n_neighbors` nearest other rows of every row, or all others if there are fewer.

    `X` may be memory-mapped and of any number type: it is read in blocks, for which `memory_limit`
    bytes are used in addition to the result. The metric is "cosine" or "euclidean". The method
    "ann" partitions the rows into cells and only searches the nearest ones, or searches exactly,
    with a warning, if cells do not help; "auto" is "exact" up to 100,000 rows and "ann" beyond.
    `progress` is called with the finished share; a killed search with an equal `LoopState`
    continues where it was.
    """
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f"metric={metric!r}: use 'cosine' or 'euclidean'")
    n, d = X.shape
    if n < 2 or d < 1:
        raise ValueError(f"X has shape {X.shape}: neighbors need 2 rows and 1 column at least")
    if n_neighbors >= n:
        warnings.warn(
            f"n_neighbors={n_neighbors} needs more than {counted(n, 'row')}; "
            f"{counted(n - 1, 'neighbor is', 'neighbors are')} used",
            stacklevel=2,
        )
    k = int(min(n_neighbors, n - 1))
    rows = measure(X, metric, memory_limit)
    if method == "auto":
        method = "ann" if n > EXACT_ROWS else "exact"
    if method == "ann":
        if (found := search_cells(rows, k, progress)) is not None:
            return _finish(rows, *found, "ann")
        warnings.warn(
            f"These {counted(n, 'row')} have no cells that an approximate search could use, so "
            "they are searched exactly: the time grows with the square of the rows. A sample of "
            "them may do.",
            stacklevel=2,
        )
    return _finish(rows, search_all(rows, k, progress), 1.0, "exact")


def search_all(rows: SearchCorpus, k: int, progress: Progress | None) -> Heaps:
    """Find the top k of every row among all others."""
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

    run_rounds(search, [block_pairs(r, len(blocks)) for r in range(len(blocks))], heaps, progress)
    sort_heaps(heaps)
    return heaps


def search_cells(
    rows: SearchCorpus, k: int, progress: Progress | None
) -> tuple[Heaps, float] | None:
    """Return the neighbors found in cells and their recall; None if cells do not help."""
    rng = np.random.default_rng(CELL_SEED)
    sample = rng.choice(rows.count, min(CELL_SAMPLE, rows.count), replace=False)
    true = search_rows(rows, sample, k, np.float32)[1]
    probes = _choose_probes(rows, sample[::2], true[::2])
    if probes is None:
        return None
    scores, found = _visit_cells(rows, probes, k, progress)
    short = np.flatnonzero((found == EMPTY_SLOT).any(axis=1))
    if short.size:  # rows that met fewer than k others
        scores[short], found[short] = search_rows(rows, short, k)
    hits = [np.isin(true[i], found[sample[i]]).mean() for i in range(1, len(sample), 2)]
    return (scores, found), float(np.mean(hits))


def _choose_probes(
    rows: SearchCorpus, sample: Indices, true: NDArray[np.int32]
) -> NDArray[np.int32] | None:
    """Return the cells that each row searches, its own first; None if they would be most cells."""
    count = rows.count // CELL_ROWS
    if count < 4:
        return None
    centers = _centers(rows, count)
    ranking = _nearest_centers(rows, sample, centers, count)
    rank = np.empty_like(ranking)
    np.put_along_axis(rank, ranking, np.arange(count, dtype=np.int32)[None, :], axis=1)
    theirs = _nearest_centers(rows, true.ravel(), centers, 1)
    place = np.take_along_axis(rank, theirs.reshape(true.shape), axis=1)
    needed = int(np.quantile(place, CELL_RECALL, method="higher")) + 1
    logger.info("%d cells, a row looks into %d", count, needed)
    if needed > count // 3:  # the exact search uses each product in both directions
        return None
    return _nearest_centers(rows, np.arange(rows.count), centers, needed)


def _centers(rows: SearchCorpus, count: int) -> Floats:
    """Run k-means on a sample of the rows; an empty cell keeps its center."""
    rng = np.random.default_rng(CELL_SEED)
    chosen = rng.choice(rows.count, min(rows.count, CELL_TRAINING * count), replace=False)
    centers = rows.block(chosen[:count])
    training = np.sort(chosen)
    for _ in range(CELL_ROUNDS):
        cell = _nearest_centers(rows, training, centers, 1)[:, 0]
        sums = np.zeros(centers.shape)
        for part in slices(training.size, max(1, rows.memory_limit // (32 * centers.shape[1]))):
            order = np.argsort(cell[part], kind="stable")
            block = rows.block(training[part], np.float64)[order]
            present, first = np.unique(cell[part][order], return_index=True)
            sums[present] += np.add.reduceat(block, first, axis=0)
        size = np.bincount(cell, minlength=count)[:, None]
        centers = np.where(size > 0, sums / np.maximum(size, 1), centers).astype(np.float32)
    return centers


def _nearest_centers(
    rows: SearchCorpus, which: Integers, centers: Floats, probes: int
) -> NDArray[np.int32]:
    """Return the nearest centers of the given rows, nearest first."""
    out = np.empty((which.size, probes), dtype=np.int32)
    half = 0.5 * np.einsum("ij,ij->i", centers, centers)
    for part in slices(which.size, max(1, min(8192, rows.memory_limit // (64 * centers.shape[1])))):
        out[part] = nearest_rows(rows.block(which[part]), centers, probes, half=half)[1]
    return out


def _visit_cells(
    rows: SearchCorpus, probes: NDArray[np.int32], k: int, progress: Progress | None
) -> Heaps:
    """Find the top k of every row among the rows of the cells it searches.

    Round t compares every row with its t-th cell, in which a row appears once.
    """
    vals, idx = heaps = empty_heaps(rows.count, k)
    half = rows.half.astype(np.float32)
    count = int(probes.max()) + 1
    members, edges = _group(probes[:, 0], count)
    size = block_size(rows.count, rows.X.shape[1], rows.memory_limit)

    def visits(turn: int) -> Iterator[tuple[NDArray[np.int32], int]]:
        visitors, cuts = _group(probes[:, turn], count)
        for cell in np.argsort(-np.diff(cuts) * np.diff(edges), kind="stable"):  # longest first
            yield visitors[cuts[cell] : cuts[cell + 1]], int(cell)

    def compare(visitors: NDArray[np.int32], cell: int) -> None:
        base = members[edges[cell] : edges[cell + 1]]
        for block in slices(visitors.size, size):
            mine = visitors[block]
            left, scores, found = rows.block(mine), vals[mine], idx[mine]
            for part in slices(base.size, size):
                near = base[part]
                push_rows(left @ rows.block(near).T, half[near], mine, near, scores, found)
            vals[mine], idx[mine] = scores, found

    run_rounds(compare, [visits(turn) for turn in range(probes.shape[1])], heaps, progress)
    sort_heaps(heaps)
    return heaps


def _group(cell: NDArray[np.int32], count: int) -> tuple[NDArray[np.int32], Indices]:
    """Return rows in the order of their cells, and where each cell begins."""
    order = np.argsort(cell, kind="stable").astype(np.int32)
    return order, np.searchsorted(cell[order], np.arange(count + 1))


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


def _finish(rows: SearchCorpus, heaps: Heaps, recall: float, method: str) -> Neighbors:
    """Convert scores to distances; recompute where float32 was not precise enough."""
    n, scores, idx = rows.count, *heaps
    distances = np.empty(idx.shape, dtype=np.float32)
    for part in slices(n, max(1, rows.memory_limit // (64 * idx.shape[1]))):
        squares = rows.squares(part, scores[part])
        refine(rows, squares, idx[part], np.arange(n)[part])
        np.sqrt(squares, out=distances[part], casting="same_kind")
    error = 4 * _EPS32 * (rows.half + rows.half.max())
    doubtful = np.flatnonzero(error > _RELATIVE_ERROR * np.square(distances[:, -1], dtype=float))
    if doubtful.size and method == "exact":
        logger.info("%d of %d rows searched again in double precision", doubtful.size, n)
        # more than k by float64 products, then their distances from differences: for two tight
        # groups far apart even these products are inexact
        k = idx.shape[1]
        scores, near = search_rows(rows, doubtful, min(k + _SPARE, n - 1))
        squares = rows.squares(doubtful, scores)
        refine(rows, squares, near, doubtful)
        idx[doubtful], distances[doubtful] = near[:, :k], np.sqrt(squares[:, :k])
    if rows.unit != 1.0:
        distances *= np.float32(rows.unit)
    return Neighbors(idx, distances, rows.metric, recall, method)


def refine(
    rows: SearchCorpus, squares: NDArray[np.float64], near: NDArray[np.int32], which: Indices
) -> None:
    """Recompute squared distances lost to cancellation from differences, and sort again.

    Row r of `squares` and `near`, which change in place, belongs to row which[r] of the data.
    """
    error = 4 * _EPS32 * (rows.half[which, None] + rows.half[near])
    r, c = np.nonzero(squares * _RELATIVE_ERROR < error)
    if not r.size:
        return
    lengths = pair_distances(
        rows.X, which[r], near[r, c], metric=rows.metric, memory_limit=rows.memory_limit
    )
    squares[r, c] = (lengths / rows.unit) ** 2
    touched = np.unique(r)
    order = np.lexsort((near[touched], squares[touched]))
    squares[touched] = np.take_along_axis(squares[touched], order, axis=1)
    near[touched] = np.take_along_axis(near[touched], order, axis=1)


def pair_distances(
    X: Array,
    left: Integers,
    right: Integers,
    *,
    metric: str = "euclidean",
    memory_limit: int = WORKING_MEMORY,
) -> NDArray[np.float64]:
    """Return distances between the rows left[t] and right[t] of X, from their differences.

    For metric="cosine" rows are scaled to unit norm first; a zero row has distance sqrt(2) to all.
    """
    out = np.empty(len(left))
    for part in slices(len(left), max(1, memory_limit // (64 * X.shape[1]))):
        ends = [np.asarray(X[rows[part]], np.float64) for rows in (left, right)]
        a, b = map(unit_rows, ends) if metric == "cosine" else ends
        out[part] = np.linalg.norm(a - b, axis=1)
        if metric == "cosine":
            out[part][~(a.any(axis=1) & b.any(axis=1))] = np.sqrt(2.0)
    return out
