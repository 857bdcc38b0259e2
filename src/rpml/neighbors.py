"""X -> the nearest neighbours of every row: exact by blocked products, approximate beyond."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml import _kernels_graph as kernels
from rpml._threads import run_chunks

logger = logging.getLogger(__name__)

Progress = Callable[[float], None]
EXACT_ROWS = 100_000  # beyond this many rows method="auto" prefers the approximate index
_RELATIVE_ERROR = 1e-4  # squared distances known worse than this are computed again
_EPS32 = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class Neighbors:
    """The nearest neighbours of every row, itself excluded.

    Attributes
    ----------
    indices : (n, k) int32 array
        Rows, nearest first; equal distances in the order of the rows.
    distances : (n, k) float32 array
        Euclidean distances; for metric="cosine" between the rows scaled to unit norm, that is
        sqrt(2 - 2 cos), where a zero row has cosine 0 with every other.
    metric : "euclidean" or "cosine"
    recall : float
        Share of the true neighbours found: 1.0 for an exact search, measured on a sample else.
    method : str
        What found them.
    """

    indices: NDArray[np.int32]
    distances: NDArray[np.float32]
    metric: str = "euclidean"
    recall: float = 1.0
    method: str = "exact"

    @property
    def n_neighbors(self) -> int:
        return int(self.indices.shape[1])


@dataclass(frozen=True)
class _Rows:
    """Rows as the search sees them, made block by block: X itself is never copied whole."""

    X: Any
    metric: str
    center: NDArray[np.float64]
    half: NDArray[np.float64]  # half squared norms

    def block(self, rows: slice | NDArray[np.intp], dtype: Any = np.float32) -> NDArray[Any]:
        return _prepare(self.X[rows], self.metric, self.center, dtype)


def nearest_neighbors(
    X: Any,
    n_neighbors: int = 50,
    *,
    metric: str = "cosine",
    method: str = "auto",
    memory_limit: int = 512 * 2**20,
    progress: Progress | None = None,
) -> Neighbors:
    """Find the `n_neighbors` nearest other rows of every row.

    Parameters
    ----------
    X : (n, d) array
        float16, float32, float64 or integers, in memory or memory-mapped; read block by block.
    n_neighbors : int
        Reduced, with a warning, to n - 1 when there are fewer rows.
    metric : "cosine" or "euclidean"
    method : "auto", "exact" or "ann"
        "auto" is exact up to about 100,000 rows and approximate beyond.
    memory_limit : int
        Bytes the working blocks may take (the result itself comes on top).
    progress : callable, optional
        Called with the finished share, in [0, 1].

    Returns
    -------
    Neighbors
    """
    k = _check(X, n_neighbors, metric, method)
    rows = _rows(X, metric, memory_limit)
    if method == "ann" or (method == "auto" and X.shape[0] > EXACT_ROWS):
        return _exact(rows, k, memory_limit, progress or _silent)
    return _exact(rows, k, memory_limit, progress or _silent)


def _silent(share: float) -> None:
    """No progress wanted."""


def _check(X: Any, n_neighbors: int, metric: str, method: str) -> int:
    if getattr(X, "ndim", None) != 2:
        raise ValueError(f"X must be a two-dimensional array, got {type(X).__name__}")
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f"metric={metric!r}: use 'cosine' or 'euclidean'")
    if method not in ("auto", "exact", "ann"):
        raise ValueError(f"method={method!r}: use 'auto', 'exact' or 'ann'")
    n = X.shape[0]
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors={n_neighbors}: must be at least 1")
    if n < 2:
        raise ValueError(f"X has {n} row(s): neighbours need at least 2")
    if n_neighbors >= n:
        warnings.warn(
            f"n_neighbors={n_neighbors} but a row has only {n - 1} others; using {n - 1}",
            UserWarning,
            stacklevel=3,
        )
    return int(min(n_neighbors, n - 1))


def _prepare(block: Any, metric: str, center: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Rows ready for the product: unit norm (cosine) or centred (Euclidean)."""
    if metric == "euclidean":
        wide = np.asarray(block, dtype=np.result_type(block, dtype))
        return np.asarray(wide - center.astype(wide.dtype), dtype=dtype)
    wide = np.asarray(block, dtype=dtype)
    scale = np.max(np.abs(wide), axis=1, keepdims=True, initial=0.0)  # keeps squares finite
    wide = wide / np.where(scale > 0, scale, 1)
    norm = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return np.asarray(wide / np.where(norm > 0, norm, 1)[:, None], dtype=dtype)


def _rows(X: Any, metric: str, memory_limit: int) -> _Rows:
    """Measure what the products need: the centre and the half squared norms."""
    n, d = X.shape
    if metric == "cosine":
        return _Rows(X, metric, np.zeros(d), np.full(n, 0.5))
    center = _rough_center(X, memory_limit)
    half = np.empty(n)
    for part in _slices(n, max(1, memory_limit // (16 * d))):
        block = _prepare(X[part], metric, center, np.float64)
        half[part] = 0.5 * np.einsum("ij,ij->i", block, block)
    return _Rows(X, metric, center, half)


def _rough_center(X: Any, memory_limit: int) -> NDArray[np.float64]:
    """Column means, rounded to a power of two near the column's spread.

    |x - y|^2 = |x|^2 + |y|^2 - 2xy cancels when the norms are large against the distance, so the
    data is centred. A coarse centre does that as well and keeps integers and other round values
    round, hence their products, and so their ties, exact.
    """
    n, d = X.shape
    total, square = np.zeros(d), np.zeros(d)
    first = np.asarray(X[0], dtype=np.float64)
    for part in _slices(n, max(1, memory_limit // (16 * d))):
        block = np.asarray(X[part], dtype=np.float64) - first
        total += block.sum(axis=0)
        square += np.einsum("ij,ij->j", block, block)
    mean = total / n
    spread = np.sqrt(np.maximum(square / n - mean**2, 0.0))
    grid = np.exp2(np.ceil(np.log2(np.where(spread > 0, spread, 1.0))))
    return np.asarray(np.where(spread > 0, np.round((mean + first) / grid) * grid, first))


def _slices(n: int, size: int) -> Iterator[slice]:
    return (slice(a, min(a + size, n)) for a in range(0, n, size))


def _exact(rows: _Rows, k: int, memory_limit: int, progress: Progress) -> Neighbors:
    """Blocked products, a heap a row, and a second look where float32 was not enough."""
    n = rows.X.shape[0]
    vals, idx = _all_pairs(rows, k, memory_limit, progress)
    squares = _squares(vals, rows.half)
    _refine(rows, squares, idx, np.arange(n), memory_limit)
    error = 4 * _EPS32 * (rows.half + rows.half.max())
    doubtful = np.flatnonzero(error > _RELATIVE_ERROR * squares[:, -1])
    if doubtful.size:
        logger.info("%d of %d rows searched again in double precision", doubtful.size, n)
        vals64, idx[doubtful] = _search_again(rows, doubtful, k, memory_limit)
        again = _squares(vals64, rows.half[doubtful])
        _refine(rows, again, idx, doubtful, memory_limit)
        squares[doubtful] = again
    progress(1.0)
    return Neighbors(idx, np.sqrt(squares, dtype=np.float32), rows.metric)


def _squares(vals: NDArray[Any], half: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.maximum(2.0 * (half[:, None] - vals), 0.0))


def _block_size(d: int, memory_limit: int) -> int:
    """Side b of a square block: two blocks of rows (b, d) and their temporaries, scores (b, b)."""
    size = 2048
    while size > 64 and 4 * size * (size + 5 * d) > memory_limit:
        size //= 2
    return size


def _all_pairs(
    rows: _Rows, k: int, memory_limit: int, progress: Progress
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Top k of every row; each pair of blocks is multiplied once and read both ways."""
    n, d = rows.X.shape
    ids = np.arange(n, dtype=np.int32)
    half = rows.half.astype(np.float32)
    vals = np.full((n, k), -np.inf, dtype=np.float32)
    idx = np.full((n, k), np.iinfo(np.int32).max, dtype=np.int32)
    parts = list(_slices(n, _block_size(d, memory_limit)))
    for number, a in enumerate(parts):
        left = rows.block(a)
        for b in parts[number:]:
            scores = left @ (left if a == b else rows.block(b)).T
            _offer(scores, half[b], ids[a], ids[b], (vals[a], idx[a]))
            if a != b:
                _offer_columns(scores, half[a], ids[a], (vals[b], idx[b]))
        progress(1.0 - (1.0 - (number + 1) / len(parts)) ** 2)
    _sort(vals, idx)
    return vals, idx


Heaps = tuple[NDArray[Any], NDArray[np.int32]]


def _offer(scores: Any, half: Any, rows: Any, cols: Any, heaps: Heaps) -> None:
    def work(_: int, start: int, stop: int) -> None:
        kernels.push_rows(scores, half, rows, cols, *heaps, start, stop)

    run_chunks(work, scores.shape[0], 64)


def _offer_columns(scores: Any, half: Any, rows: Any, heaps: Heaps) -> None:
    def work(_: int, start: int, stop: int) -> None:
        kernels.push_columns(scores, half, rows, *heaps, start, stop)

    run_chunks(work, scores.shape[1], 64)


def _sort(vals: NDArray[Any], idx: NDArray[np.int32]) -> None:
    run_chunks(lambda _, a, b: kernels.sort_heaps(vals, idx, a, b), vals.shape[0], 256)


def _search_again(
    rows: _Rows, wanted: NDArray[np.intp], k: int, memory_limit: int
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Top k of the wanted rows, products in float64."""
    n, d = rows.X.shape
    ids = np.arange(n, dtype=np.int32)
    vals = np.full((wanted.size, k), -np.inf)
    idx = np.full((wanted.size, k), np.iinfo(np.int32).max, dtype=np.int32)
    size = _block_size(2 * d, memory_limit // 2)
    for a in _slices(wanted.size, size):
        left = rows.block(wanted[a], np.float64)
        for b in _slices(n, size):
            scores = left @ rows.block(b, np.float64).T
            _offer(scores, rows.half[b], ids[wanted[a]], ids[b], (vals[a], idx[a]))
    _sort(vals, idx)
    return vals, idx


def _refine(
    rows: _Rows,
    squares: NDArray[np.float64],
    idx: NDArray[np.int32],
    which: NDArray[np.intp],
    memory_limit: int,
) -> None:
    """Compute again, from differences, the squared distances lost to cancellation; sort anew.

    Row r of `squares` belongs to row which[r] of the data and of `idx`; both change in place.
    """
    error = 4 * _EPS32 * (rows.half[which, None] + rows.half[idx[which]])
    r, c = np.nonzero(squares * _RELATIVE_ERROR < error)
    if not r.size:
        return
    squares[r, c] = (
        pair_distances(
            rows.X, which[r], idx[which[r], c], metric=rows.metric, memory_limit=memory_limit
        ).astype(np.float64)
        ** 2
    )
    touched = np.unique(r)
    order = np.lexsort((idx[which[touched]], squares[touched]))
    squares[touched] = np.take_along_axis(squares[touched], order, axis=1)
    idx[which[touched]] = np.take_along_axis(idx[which[touched]], order, axis=1)


def pair_distances(
    X: Any,
    left: NDArray[Any],
    right: NDArray[Any],
    *,
    metric: str = "euclidean",
    memory_limit: int = 512 * 2**20,
) -> NDArray[np.float64]:
    """Distances between the rows left[t] and right[t] of X, from their differences.

    For metric="cosine" the rows are scaled to unit norm first; a zero row is sqrt(2) from all.
    """
    out = np.empty(len(left))
    zero = np.zeros(X.shape[1])
    for part in _slices(len(left), max(1, memory_limit // (48 * X.shape[1]))):
        a = _prepare(X[left[part]], metric, zero, np.float64)
        b = _prepare(X[right[part]], metric, zero, np.float64)
        out[part] = np.linalg.norm(a - b, axis=1)
        if metric == "cosine":
            out[part][~(a.any(axis=1) & b.any(axis=1))] = np.sqrt(2.0)
    return out
