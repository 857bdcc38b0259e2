"""Which directions tell classes apart? Whitening by the scatter within neighborhoods.

Ours, not the paper's. Whitening divides every direction by its spread; better is to divide by the
spread *within* a class and to keep the spread between classes. Without labels the nearest
neighbors stand in for the class, but a direction that helped to find a neighbor makes it look
close. So they are cross-fitted: the principal axes are split in two halves, neighbors are found
with one and the scatter is measured on the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, sparse

from rpml.method.graph.heaps import nearest_by_unions
from rpml.method.whitening import constants as const
from rpml.method.whitening.linear_map import Preprocessing, Spectrum
from rpml.runtime.compiled import VECTORIZED, compiled
from rpml.runtime.rows import AnyArray, Array, Indices, Mask, float_dtype, unit_rows
from rpml.runtime.threads import outer, times, transposed_times

if TYPE_CHECKING:
    from rpml.method.whitening.evidence import ScatterChoice


Estimate = tuple[Array, "ScatterChoice"]
"""A scatter, and how it is used."""


@dataclass(frozen=True)
class Coordinates:
    """(A sample of) the rows in whitened principal coordinates."""

    W: Array  # (n, q), each column of unit variance
    deviations: Array  # (q,) standard deviations, largest first
    n_components: int  # dimension everything is chosen for

    @property
    def every(self) -> Mask:
        """All axes."""
        return np.ones(len(self.deviations), bool)

    def subset(self, chosen: AnyArray) -> Coordinates:
        return Coordinates(self.W[chosen], self.deviations, self.n_components)

    def leading(self, n_axes: int) -> Coordinates:
        return Coordinates(self.W[:, :n_axes], self.deviations[:n_axes], self.n_components)

    def embed_by(self, scatter: Array, choice: ScatterChoice, spread: Array | None = None) -> Array:
        """The rows of unit norm, reduced by a choice; by default axes rank by all rows' spread."""
        spread = np.diag(self.deviations**2) if spread is None else spread
        inner = chosen_map(scatter, choice, spread, self.n_components)[:, : self.n_components]
        return unit_rows(self._through(self.every, inner))

    def embed(self, scatter: Array, half: Mask, shrinkage: float, size: int) -> Array:
        """The rows seen through some of the axes, whitened by the smoothed scatter."""
        spread = np.diag(self.deviations[half] ** 2)
        inner = whitening_map(scatter[np.ix_(half, half)], spread, shrinkage, self.n_components)
        return self._through(half, inner[:, :size])

    def whitened(self, scatter: Array, half: Mask, added: float) -> Array:
        """The rows seen through some of the axes, whitened by the scatter with `added` variance.

        In any basis: cosines are the same in all of them, and this one is the cheapest.
        """
        return self._through(half, rescaling_map(scatter[np.ix_(half, half)], added))

    def _through(self, half: Mask, inner: Array) -> Array:
        scaled = self.deviations[half][:, None] * inner
        return times(columns(self.W, half), scaled.astype(self.W.dtype))


def coordinates(
    X: Array, rows: Indices, spectrum: Spectrum, unit_input: bool, n_components: int, least: int = 0
) -> Coordinates:
    """Project the given rows of X on the leading principal axes, `least` of them or more."""
    q = n_leading_axes(len(rows), len(spectrum.variances), n_components)
    q = min(max(q, least), len(spectrum.variances))
    W = projected(X, rows, spectrum, unit_input, q)
    return Coordinates(W, np.sqrt(spectrum.variances[:q]), n_components)


def projected(X: Array, rows: Indices, spectrum: Spectrum, unit_input: bool, q: int) -> Array:
    """Return (n, q), the given rows of X along the leading axes in their standard deviations."""
    deviations = np.sqrt(spectrum.variances[:q])
    to_axes = (spectrum.axes[:, :q] / deviations).astype(np.float32)
    # BLAS rounds by the shape of a product: of one shape, more axes do not change the first ones
    padded = np.pad(to_axes, ((0, 0), (0, -q % const.BLOCK_AXES)))
    blocks = np.stack(np.hsplit(padded, padded.shape[1] // const.BLOCK_AXES))
    W = np.empty((len(rows), padded.shape[1]), np.float32)
    mean = spectrum.mean.astype(float_dtype(X))  # in float32 rows far from 0 would hardly differ
    for start in range(0, len(rows), const.BLOCK_ROWS):
        part = slice(start, start + const.BLOCK_ROWS)
        chosen = np.asarray(X[rows[part]], mean.dtype)
        centered = (unit_rows(chosen) if unit_input else chosen) - mean
        centered = centered.astype(np.float32, copy=False)
        for block, out in zip(blocks, np.hsplit(W[part], len(blocks)), strict=True):
            np.matmul(centered, block, out=out)
    return np.ascontiguousarray(W[:, :q])


def n_leading_axes(n: int, available: int, n_components: int) -> int:
    """How many principal axes are looked at: what n rows can tell apart, and 512 are enough."""
    return min(available, max(const.LEADING_AXES, 2 * n_components), max(n // 3, n_components))


def whiten_by(
    spectrum: Spectrum,
    scatter: Array,
    choice: ScatterChoice,
    n_components: int,
    unit_input: bool,
    spread: Array | None = None,
) -> Preprocessing:
    """The preprocessing that whitens by the smoothed scatter, its axes in order of the spread.

    That is the spread of all rows unless another is given; all axes are kept. Principal axes that
    are only rescaled keep their order.
    """
    q = len(scatter)
    spread = np.diag(spectrum.variances[:q]) if spread is None else spread
    inner = chosen_map(scatter, choice, spread, n_components)
    return Preprocessing(unit_input, spectrum.mean, spectrum.axes[:, :q] @ inner, unit_input)


def chosen_map(scatter: Array, choice: ScatterChoice, spread: Array, n_components: int) -> Array:
    """(q, q): what the choice makes of principal coordinates, best axes first."""
    if np.isfinite(choice.ridge):
        return rescaling_map(scatter, choice.ridge * float(np.trace(scatter)))
    return whitening_map(scatter, spread, choice.shrinkage, n_components)


def whitening_map(scatter: Array, spread: Array, shrinkage: float, n_components: int) -> Array:
    """(q, q): rows whitened by S_w + shrinkage I, turned to the axes of the largest spread first.

    That is the generalized eigenproblem of the spread against the smoothed within-scatter.
    """
    q = len(scatter)
    # the shrinkage drowns the scatter, or that is rounding alone: the principal axes themselves
    least = np.finfo(np.float32).eps * float(np.trace(spread))
    if np.isinf(shrinkage) or float(np.trace(scatter)) <= least:
        return np.eye(q)
    added = shrinkage * float(np.trace(scatter)) / n_components
    smoothed = scatter + added * np.eye(q, dtype=scatter.dtype)
    diagonal = np.diag(spread)
    if np.count_nonzero(spread) == q and diagonal.min() > 0:  # a standard eigenproblem is cheaper
        deviations = np.sqrt(diagonal)
        values, axes = linalg.eigh(smoothed / np.outer(deviations, deviations), driver="evd")
        return np.asarray(axes / (deviations[:, None] * np.sqrt(values)))
    _, axes = linalg.eigh(spread, smoothed, driver="gvd")
    return np.asarray(axes[:, ::-1])


def rescaling_map(scatter: Array, added: float) -> Array:
    """(q, q): rows whitened by S_w + added I; the first k columns are of the first k axes alone.

    So a prefix of k components is the embedding that a fit of that size gives.
    """
    factor = np.linalg.cholesky(scatter + added * np.eye(len(scatter)))
    return np.asarray(linalg.solve_triangular(factor, np.eye(len(factor)), lower=True).T)


def shrinkage_share(whitened: Preprocessing, choice: ScatterChoice | None, L: Array) -> Array:
    """(l, l): which part of the smoothed scatter, along the axes of L, is the shrinkage.

    A whitening for k instead of l components has a shrinkage l / k times as high.
    """
    if choice is None or np.isinf(choice.shrinkage):
        return np.zeros((L.shape[1], L.shape[1]))
    M, ratio = whitened.matrix, choice.shrinkage / L.shape[1]
    # M' (S + f I) M = I with f = ratio tr S: the trace of S + f I is that of (M' M)^-1
    shrinkage = ratio * np.trace(np.linalg.inv(M.T @ M)) / (1 + ratio * M.shape[1])
    return np.asarray(shrinkage * (M @ L).T @ (M @ L))


def cross_fitted_correlation(data: Coordinates, repeats: int, rng: np.random.Generator) -> Array:
    """(q, q): correlation C of a row and its cross-fitted neighbors, largest eigenvalue below 1.

    Two rounds of `repeats` halvings of the axes: neighbors by half-whitened axes first, then by
    what these taught. The scatter within neighborhoods is D (I - C) D.
    """
    root = np.sqrt(data.deviations).astype(data.W.dtype)
    quarters = _quarters(data.W.shape[1], rng)
    seen = [columns(data.W, quarter) * root[quarter] for quarter in quarters]
    first = _correlate(data.W, quarters, seen, const.SIDES[: 2 * repeats])
    return taught_correlation(data, first, repeats, rng)


def taught_correlation(
    data: Coordinates, teacher: Array, repeats: int, rng: np.random.Generator
) -> Array:
    """Another round: neighbors by the axes as the teacher's correlation whitens them.

    Each quarter of the axes is whitened by itself. That finds as good neighbors as whitening each
    side of a halving (see docs/performance.md), and a search of all sides then needs each product
    once.
    """
    scatter = scatter_of(teacher, data.deviations)
    quarters = _quarters(data.W.shape[1], rng)
    seen = [
        data.whitened(scatter, quarter, np.trace(scatter) / len(scatter)) for quarter in quarters
    ]
    return _correlate(data.W, quarters, seen, const.SIDES[: 2 * repeats])


def scatter_of(correlation: Array, deviations: Array) -> Array:
    """S = D (I - C) D."""
    inner = np.eye(len(correlation)) - correlation
    return np.asarray(inner * np.outer(deviations, deviations))


def _correlate(
    W: Array, quarters: Sequence[Mask], seen: Sequence[Array], sides: Sequence[tuple[int, int]]
) -> Array:
    """Neighbors by two quarters of the axes as `seen`, measured on the other two."""
    q = W.shape[1]
    total, count = np.zeros((q, q)), np.zeros((q, q))
    for (i, j), neighbors in zip(
        sides, nearest_by_unions(seen, sides, const.NEIGHBORS), strict=True
    ):
        unseen = ~(quarters[i] | quarters[j])
        measured = np.ix_(unseen, unseen)
        n, m = neighbors.shape
        edges = np.ones(n * m, np.float32), neighbors.ravel(), np.arange(0, n * m + 1, m)
        graph = sparse.csr_matrix(edges, shape=(n, n))
        total[measured] += _correlation(columns(W, unseen), graph)
        count[measured] += 1
    correlation = total / np.maximum(count, 1)
    return np.asarray(correlation * (const.KAPPA / _largest_beyond_one(correlation)))


def _largest_beyond_one(correlation: Array) -> float:
    """The largest eigenvalue, or 1 if it is smaller, which a Cholesky factor shows at less cost."""
    q = len(correlation)
    try:
        np.linalg.cholesky(np.eye(q) - correlation)
    except np.linalg.LinAlgError:
        return float(linalg.eigvalsh(correlation, subset_by_index=[q - 1, q - 1])[0])
    return 1.0


def _quarters(q: int, rng: np.random.Generator) -> list[Mask]:
    """Four parts of the axes, one of every four successive ones each, at random."""
    part = rng.permuted(np.tile(np.arange(4), (-(-q // 4), 1)), axis=1).ravel()[:q]
    return [part == i for i in range(4)]


def columns(W: Array, chosen: Mask) -> Array:
    """W[:, chosen], eight times as fast for a few hundred columns."""
    return np.compress(chosen, W, axis=1)


def random_halves(q: int, rng: np.random.Generator) -> Mask:
    """One axis of every two successive ones, so that both halves have a similar spectrum."""
    first = rng.integers(0, 2, (q + 1) // 2).astype(bool)
    return np.stack([first, ~first], axis=1).ravel()[:q]


def similarities(rows: Array, queries: Indices | None = None) -> Array:
    """Cosines of the queries, or all rows, to all rows; to itself below any cosine."""
    rows = unit_rows(rows)
    similarity = outer(rows) if queries is None else times(rows[queries], rows.T)
    queries = np.arange(len(rows)) if queries is None else queries
    similarity[np.arange(len(queries)), queries] = -2
    return similarity


@compiled(VECTORIZED)
def count_higher(scores: Array, rows: Indices, chosen: Indices) -> Indices:
    """[i]: how many scores of row rows[i] are higher than its score in the column chosen[i]."""
    counts = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        own = scores[rows[i]]
        bar, count = own[chosen[i]], np.int32(0)
        for j in range(len(own)):  # eight times as fast as over the scores themselves
            count += np.int32(1) if own[j] > bar else np.int32(0)
        counts[i] = count
    return counts


def mean_log_ranks(rows: Array, queries: Indices, chosen: Indices) -> Array:
    """Per query, the mean of log(1 + rank) of chosen rows among all rows; rank 0 is the nearest."""
    at = np.repeat(np.arange(len(queries)), chosen.shape[1])
    ranks = count_higher(similarities(rows, queries), at, np.ascontiguousarray(chosen).ravel())
    return np.asarray(np.log1p(ranks).reshape(chosen.shape).mean(axis=1))


def _correlation(B: Array, graph: sparse.csr_matrix) -> Array:
    """Symmetric correlation of the columns of B across the edges of the graph."""
    ends = (np.asarray(graph.sum(axis=0)).ravel() + np.asarray(graph.sum(axis=1)).ravel()) / 2
    ends = (ends / ends.sum()).astype(B.dtype)
    B = B - ends @ B
    across = transposed_times(B, graph @ B) / graph.nnz
    scale = np.sqrt(np.maximum(ends @ (B * B), 1e-9))
    return np.asarray((across + across.T) / 2 / np.outer(scale, scale))
