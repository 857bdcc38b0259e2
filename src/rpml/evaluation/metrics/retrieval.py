"""Recall@K without the n x n matrix, with ties counted against the embedding."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils import check_array

from rpml.runtime.compiled import compiled
from rpml.runtime.errors import counted
from rpml.runtime.rows import (
    AnyArray,
    Array,
    Indices,
    Integers,
    as_matrix,
    check_finite,
    row_blocks,
    slices,
    unit_rows,
)
from rpml.runtime.threads import run_chunks, times

KS = (1, 2, 4, 8)
QUERY_ROWS, CORPUS_ROWS = 1024, 8192  # one tile of scores: 32 MB in float32
_EXACT_TO = 64
Rows = slice | Indices
Tile = Callable[[Rows], Array]
Ball = tuple[NDArray[np.float64], float]
"""Center and radius of a ball around all rows."""


def recall_at_k(
    Z: ArrayLike,
    y: ArrayLike,
    ks: int | Sequence[int] = KS,
    metric: str = "cosine",
    *,
    progress: Callable[[float], object] | None = None,
) -> dict[int, float]:
    """Return the share of rows with a row of their class among their K nearest other rows.

    Parameters
    ----------
    Z : ndarray of shape (n, dimensions)
        The embedding; every row is a query against all the others.
    y : ndarray of shape (n_samples,)
        Class labels, numbers or strings.
    ks : int or sequence of int, default=(1, 2, 4, 8)
        The K of Recall@K. A K of n or more includes all other rows.
    metric : {"cosine", "euclidean"}, default="cosine"
        Similarity that ranks the rows.
    progress : callable, default=None
        Called with the finished share, in [0, 1].

    Returns
    -------
    dict of int to float
        Recall in [0, 1] for each K, in the order of `ks`.

    Notes
    -----
    A query is excluded by its index, so duplicates of it still count. Ties are broken against the
    embedding: a row of another class with the same similarity ranks before the right one. A query
    whose class has no other row is a miss and is counted, as in the literature.
    """
    wanted = checked_ks(ks)
    ranks = _ranks(Z, y, metric, max(wanted), progress or (lambda share: None))
    warn_of_trivial(y, len(ranks), wanted)
    return {k: float(np.mean(ranks < min(k, len(ranks)))) for k in wanted}


def warn_of_trivial(y: ArrayLike, n: int, ks: Sequence[int]) -> None:
    classes = np.bincount(checked_codes(y, n))
    reasons = []
    if len(classes) == 1:
        reasons.append("all rows are of one class, so that every neighbor is right")
    if classes.max() == 1:
        reasons.append("no class has two rows, so that no neighbor can be right")
    if max(ks) >= n:
        reasons.append(f"K = {max(ks)} looks at all {counted(n - 1, 'other row')}")
    if reasons:
        text = f"Recall@K says nothing about the embedding: {'; '.join(reasons)}."
        warnings.warn(text, stacklevel=3)


def first_hit_rank(Z: ArrayLike, y: ArrayLike, metric: str = "cosine") -> NDArray[np.int64]:
    """Count the rows of other classes that rank before the first right one, for each query.

    ``first_hit_rank(...) < k`` are the per-query hits of Recall@K. The rank is 0 if the nearest
    row is right, and n if the class has no other row. Ranks up to 64 are exact in double
    precision, larger ones are computed in single precision.
    """
    return _ranks(Z, y, metric, _EXACT_TO, lambda share: None)


def _ranks(
    Z: ArrayLike, y: ArrayLike, metric: str, exact_to: int, progress: Callable[[float], object]
) -> NDArray[np.int64]:
    check_metric(metric)
    rows = checked_embedding(Z)
    n, d = rows.shape
    order, own = _sort_by_class(checked_codes(y, n))
    ball = ball_around(rows) if metric == "euclidean" else None

    def in_double(which: Rows) -> Array:
        return standardize(rows[order[which]], ball)

    single = np.empty((n, d + (metric == "euclidean")), dtype=np.float32)
    for a, b in _cut(0, n):
        single[a:b] = in_double(slice(a, b))
    counts = _count_wrong(single.__getitem__, np.arange(n), own, metric, progress)
    # If single precision cannot tell which of two rows is nearer, double precision decides.
    unsure = np.flatnonzero((counts[:, 0] != counts[:, 1]) & (counts[:, 1] < exact_to))
    if len(unsure):
        counts[unsure] = _count_wrong(in_double, unsure, own, metric)
    alone = own[:, 1] - own[:, 0] == 1
    ranks = np.empty(n, dtype=np.int64)
    ranks[order] = np.where(alone, n, counts[:, 0])
    return ranks


def _sort_by_class(codes: Indices) -> tuple[Indices, NDArray[np.int64]]:
    """Return an order in which each class is contiguous, and the class's range per sorted row."""
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    stops = np.cumsum(sizes)
    own = np.stack([stops - sizes, stops], axis=1).astype(np.int64)
    return order, np.repeat(own, sizes, axis=0)


def standardize(rows: Array, ball: Ball | None) -> NDArray[np.float64]:
    """Map rows to double-precision ones whose inner products rank like the metric.

    Cosine, without a ball: unit rows. Euclidean: rows centered and scaled into the unit ball
    (neither changes the order of distances), with -|b|^2/2 appended, so that [a, 1].[b, -|b|^2/2]
    falls with |a - b|.
    """
    if ball is None:
        return np.asarray(unit_rows(rows.astype(np.float64)))
    center, radius = ball
    inside = (rows.astype(np.float64) - center) / radius
    half = np.einsum("ij,ij->i", inside, inside) / -2
    return np.concatenate([inside, half[:, None]], axis=1)


def score_error(dtype: DTypeLike, n_columns: int) -> float:
    """Bound the rounding error of the inner product of two standardized rows."""
    # scores are at most 1.5 in size; the factor covers the rounding of operands and sums
    return float(3 * np.finfo(dtype).eps * (2 + np.sqrt(n_columns)))


def ball_around(Z: Array) -> Ball:
    """Return the mean of the rows and the largest distance to it (1 if all rows are equal)."""
    center = np.zeros(Z.shape[1])
    for _, block in row_blocks(Z, np.float64):
        center += block.sum(axis=0) / len(Z)
    widest = max(float(np.abs(block - center).max()) for _, block in row_blocks(Z, np.float64))
    if widest == 0:
        return center, 1.0
    norms = [
        np.linalg.norm((block - center) / widest, axis=1).max()
        for _, block in row_blocks(Z, np.float64)
    ]
    return center, widest * float(max(norms))


def _count_wrong(
    tile: Tile,
    queries: Indices,
    own: NDArray[np.int64],
    metric: str,
    progress: Callable[[float], object] = lambda share: None,
) -> NDArray[np.int64]:
    """Count the rows of other classes at or above the best right score, possibly and certainly.

    The two counts per query differ by the rounding error of the scores, read against the embedding
    (rows within it are ties) and in its favor.
    """
    counts = np.zeros((len(queries), 2), dtype=np.int64)
    for block in slices(len(queries), QUERY_ROWS):
        rows = np.array(tile(queries[block]))
        if metric == "euclidean":
            rows[:, -1] = 1
        _count_block(tile, rows, queries[block], own, counts[block])
        progress(block.stop / len(queries))
    return counts


def _count_block(
    tile: Tile, rows: Array, queries: Indices, ranges: NDArray[np.int64], counts: NDArray[np.int64]
) -> None:
    own = ranges[queries]
    best = np.full(len(rows), -np.inf, dtype=rows.dtype)
    for a, b in _cut(int(own[0, 0]), int(own[-1, 1])):
        _in_parts(best_in_own_class, rows @ tile(slice(a, b)).T, (a, b), own, queries, best)
    error = score_error(rows.dtype, rows.shape[1])
    thresholds = np.stack([best - error, best + error], axis=1).astype(rows.dtype)
    for a, b in _cut(0, len(ranges)):
        _in_parts(count_other_classes, rows @ tile(slice(a, b)).T, (a, b), own, thresholds, counts)


def _in_parts(
    kernel: Callable[..., None], scores: Array, columns: tuple[int, int], *per_row: AnyArray
) -> None:
    """Run a kernel over the rows of a tile of scores, split between threads."""

    def work(_: int, i: int, j: int) -> None:
        kernel(scores[i:j], columns, *(array[i:j] for array in per_row))

    run_chunks(work, len(scores), 64)


def _cut(start: int, stop: int) -> list[tuple[int, int]]:
    return [(a, min(a + CORPUS_ROWS, stop)) for a in range(start, stop, CORPUS_ROWS)]


@compiled()
def best_in_own_class(
    scores: Array, columns: tuple[int, int], own: Integers, rows: Indices, best: Array
) -> None:
    """Raise best[i] to the largest score of a same-class column other than row i itself."""
    first, last = columns
    for i in range(scores.shape[0]):
        top = best[i]
        for j in range(max(own[i, 0], first), min(own[i, 1], last)):
            if j != rows[i] and scores[i, j - first] > top:
                top = scores[i, j - first]
        best[i] = top


@compiled()
def count_other_classes(
    scores: Array, columns: tuple[int, int], own: Integers, thresholds: Array, counts: Integers
) -> None:
    """Add to counts[i] how many columns of other classes score at least each threshold of row i."""
    first, last = columns
    for i in range(scores.shape[0]):
        low, high = thresholds[i, 0], thresholds[i, 1]
        before = min(max(own[i, 0] - first, 0), last - first)
        after = min(max(own[i, 1] - first, 0), last - first)
        possible = 0
        above = 0
        for j in range(before):
            possible += scores[i, j] >= low
            above += scores[i, j] >= high
        for j in range(after, last - first):
            possible += scores[i, j] >= low
            above += scores[i, j] >= high
        counts[i, 0] += possible
        counts[i, 1] += above


def ndcg_at_10(found: AnyArray, wanted: AnyArray, classes: AnyArray) -> float:
    """Return the mean nDCG@10 of queries, whose relevant rows are those of the wanted class.

    `found` has the classes of the first ten rows of each query, `classes` those of all rows.
    """
    discounts = 1 / np.log2(np.arange(2, 12))
    relevant = np.minimum((classes == wanted[:, None]).sum(axis=1), 10)
    gains = (found == wanted[:, None]) @ discounts
    return float(np.mean(gains / np.cumsum(discounts)[relevant - 1]))


def check_metric(metric: str) -> None:
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f"metric must be 'cosine' or 'euclidean', got {metric!r}")


def checked_ks(ks: int | Sequence[int]) -> list[int]:
    listed: list[int] = np.atleast_1d(ks).tolist()
    if not listed or not all(type(k) is int and k >= 1 for k in listed):
        raise ValueError(f"every K in ks must be an integer of at least 1, got {ks!r}")
    return listed


def checked_embedding(Z: ArrayLike, name: str = "Z") -> Array:
    """Return Z as a finite 2-D array of floats; float32, float64 and memory maps are not copied."""
    floats = (np.float64, np.float32)
    array: Array = check_array(
        as_matrix(Z), dtype=floats, ensure_all_finite=False, ensure_min_samples=2, input_name=name
    )
    check_finite(array, name)
    return array


def checked_codes(y: ArrayLike, n: int, name: str = "y") -> Indices:
    """Convert labels of any sortable type to codes 0..classes-1, one per row."""
    array = np.asanyarray(y)
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, one label per row, got shape {array.shape}")
    if len(array) != n:
        raise ValueError(
            f"{name} must have one label per row, got {counted(len(array), 'label')} for "
            f"{counted(n, 'row')}"
        )
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{name} has a NaN or infinite label at row {row}")
    try:
        return np.unique(array, return_inverse=True)[1].astype(np.intp, copy=False)
    except TypeError as error:
        raise TypeError(f"{name} mixes labels of kinds that cannot be compared ({error})") from None


def recall_across(Z: Array, y: Array, values: Indices) -> float:
    """Return the Recall@1 among rows of other known values, of the rows that have a right one."""
    rows, hits, count = unit_rows(np.asarray(Z, np.float32)), 0, 0
    for part in slices(len(rows), 1024):
        similarity = times(rows[part], rows.T)
        other = (values[part, None] != values) & (values >= 0) & (values[part, None] >= 0)
        same = y[part, None] == y
        asked = (other & same).any(axis=1)
        nearest = np.where(other, similarity, -np.inf).argmax(axis=1)
        hits += int((same[np.arange(len(same)), nearest] & asked).sum())
        count += int(asked.sum())
    return hits / count if count else float("nan")
