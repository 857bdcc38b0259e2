"""What does not matter, and rows that differ in nothing else.

Ours, not the paper's. A nuisance (language, camera, batch) has a value per row. What its values
have in common is that their means differ where nothing that matters does: along these directions
rows are shortened. What is left of it shows between rows of *different* values that are each
other's nearest: their scatter whitens, as that of groups does. A query is a row whose nuisance is
being a query.

Nearest is meant by CSLS (cross-domain similarity local scaling), the similarity less the mean
similarity to the nearest rows of the other's value: a row that is near to all others is not
everyone's nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from rpml.method.whitening import constants as const
from rpml.method.whitening.groups import group_means
from rpml.method.whitening.neighborhoods import similarities, whitening_map
from rpml.runtime.compiled import VECTORIZED, compiled
from rpml.runtime.rows import AnyArray, Array, Indices, top_columns
from rpml.runtime.threads import times, transposed_times


@dataclass(frozen=True)
class Nuisance:
    """What varies between rows and does not matter, such as their language."""

    columns: tuple[AnyArray, ...]
    """Each (n,): integer codes, -1 where unknown, or standardized numbers, NaN where unknown."""
    values: Indices
    """(n,) the value of all columns together, -1 where one is unknown."""

    def subset(self, rows: AnyArray) -> Nuisance:
        return Nuisance(tuple(column[rows] for column in self.columns), self.values[rows])

    def with_queries(self, n: int) -> Nuisance:
        """Return the nuisance of these rows and n queries, of which only that is known."""
        is_query = np.repeat(np.array([0, 1]), [len(self.values), n])
        columns = tuple(
            np.append(column, np.full(n, np.nan if column.dtype.kind == "f" else -1))
            for column in self.columns
        )
        values = np.append(self.values, np.full(n, self.values.max(initial=-1) + 1))
        return Nuisance((*columns, is_query), values)


def removal(Y: Array, columns: tuple[AnyArray, ...]) -> tuple[Array, int]:
    """Shorten rows along the directions in which the means of the values differ.

    A direction loses the share of its variance that the values explain, `REMOVAL` times over, less
    what means of so few rows differ by chance: strong nuisances are projected out, weak ones kept.

    Returns
    -------
    (ndarray of shape (q, q), int)
        The symmetric map of centered rows, and along how many directions it takes more than half.
    """
    effects, noise, rest = [], 0.0, Y
    for column in columns:
        effect, fitted, error = _explained(rest, column)
        effects.append(effect)
        rest, noise = rest - fitted, noise + error
    explained, axes = np.linalg.svd(np.concatenate(effects), full_matrices=False)[1:]
    within = np.square(times(rest, np.ascontiguousarray(axes.T, rest.dtype))).mean(axis=0)
    within = np.maximum(within.astype(np.float64), 1e-12)
    between = np.maximum(explained.astype(np.float64) ** 2 - noise * within, 0.0)
    share = const.REMOVAL * between / (const.REMOVAL * between + within)
    return np.eye(Y.shape[1]) - (axes.T * share) @ axes, int((share > 0.5).sum())


def _explained(Y: Array, column: AnyArray) -> tuple[Array, Array, float]:
    """Return F with F'F the variance a column explains, the fitted rows, and its error's share.

    All values weigh the same: a few queries differ from documents as much as many do.
    """
    fitted = np.zeros_like(Y)
    if column.dtype.kind == "f":
        known = np.isfinite(column)
        x, n = column[known].astype(Y.dtype), max(1, int(known.sum()))
        x = x - x.sum() / n
        square = float(x @ x)
        slope = x @ Y[known] / max(square, 1e-12)
        fitted[known] = x[:, None] * slope
        return slope[None] * np.sqrt(square / n), fitted, 1 / n
    known = column.astype(np.intp) >= 0
    codes = np.unique(column[known], return_inverse=True)[1]
    counts = np.bincount(codes, minlength=1)
    means = group_means(Y[known], codes)
    centered = means - means.mean(axis=0)
    fitted[known] = centered[codes]
    return centered / np.sqrt(len(counts)), fitted, float(np.mean(1 / np.maximum(counts, 1)))


def comparable_rows(values: Indices, rng: np.random.Generator) -> Indices:
    """Which rows to look for neighbors across values: a sample, of values with enough rows."""
    counts = np.bincount(values[values >= 0])
    # few values, so that each has rows to choose from; the same ones in all rows and in a sample
    common = np.argsort(-counts, kind="stable")[: const.MAX_CROSS_VALUES]
    common = common[counts[common] >= const.CROSS_VALUE_ROWS]
    rows = np.flatnonzero(np.isin(values, common))
    return np.sort(rng.permutation(rows)[: const.MAX_CROSS_ROWS])


def cross_pairs(rows: Array, values: Indices, k: int = 1) -> Indices:
    """Return (m, 2) rows of different values that are each other's k nearest of these values."""
    order = np.argsort(values, kind="stable")
    names = np.unique(values[order], return_inverse=True)[1]
    bounds = np.searchsorted(names, np.arange(names.max() + 2))
    similarity = similarities(rows[order])
    hubs = np.empty((len(bounds) - 1, len(rows)), similarity.dtype)
    nearest = np.full((k, *hubs.shape), -1, np.int32)
    mean_of_nearest(similarity, bounds, hubs)
    nearest_by_value(similarity, bounds, hubs, nearest)
    second = nearest.transpose(2, 1, 0).ravel()
    first = np.repeat(np.arange(len(rows)), len(hubs) * k)
    upper = first < second
    first, second = first[upper], second[upper]
    mutual = (nearest[:, names[first], second] == first).any(axis=0)
    return np.asarray(order[np.stack([first[mutual], second[mutual]], axis=1)])


HUB = const.CROSS_HUB  # known to the compiler, which writes a loop of so many steps out
LANES = 1024  # columns of the similarities that are read together: they stay in the cache


@compiled(VECTORIZED)
def mean_of_nearest(similarity: Array, bounds: Indices, out: Array) -> None:
    """Set out[v, i] to the mean of the largest similarities of row i to the rows of value v."""
    n, largest = len(similarity), np.empty((HUB, LANES), similarity.dtype)
    for start in range(0, n, LANES):
        width = min(LANES, n - start)
        for v in range(len(bounds) - 1):
            largest[:] = -np.inf
            for j in range(bounds[v], bounds[v + 1]):
                similar = similarity[j, start : start + width]
                for i in range(width):
                    score = similar[i]
                    for rank in range(HUB):  # each gives way to a larger one
                        kept = largest[rank, i]
                        largest[rank, i] = kept if kept > score else score
                        score = score if kept > score else kept
            size = min(HUB, bounds[v + 1] - bounds[v])
            out[v, start : start + width] = largest[:size, :width].sum(axis=0) / size


@compiled(VECTORIZED)
def nearest_by_value(similarity: Array, bounds: Indices, hubs: Array, nearest: Indices) -> None:
    """Fill nearest[:, v, i] with the rows of value v, not its own, that are nearest to row i.

    By CSLS; equally near rows come in their order.
    """
    half = hubs.dtype.type(0.5)
    best, bar = np.empty((2, LANES), hubs.dtype)
    found, last = np.empty((2, LANES), np.int32)
    for own in range(len(hubs)):
        for start in range(bounds[own], bounds[own + 1], LANES):
            width = min(LANES, bounds[own + 1] - start)
            for v in range(len(hubs)):
                best[:width], found[:width] = np.inf, -1
                for rank in range(len(nearest) if v != own else 0):
                    bar[:], last[:] = best, found  # only rows after those are looked at
                    best[:width], found[:width] = -np.inf, -1
                    for j in range(bounds[v], bounds[v + 1]):
                        hub, row = half * hubs[own, j], np.int32(j)
                        similar = similarity[j, start : start + width]
                        for i in range(width):
                            score = similar[i] - hub
                            after = (score < bar[i]) | ((score == bar[i]) & (row > last[i]))
                            higher = after & (score > best[i])
                            best[i] = score if higher else best[i]
                            found[i] = row if higher else found[i]
                    nearest[rank, v, start : start + width] = found[:width]


def cross_triplets(rows: Array, values: Indices, limit: int, rng: np.random.Generator) -> Indices:
    """Return (m, 3): an anchor, its nearest row of another value, a near one of its own value.

    The paper's triplets with this knowledge: the positive shows the same although the nuisance
    differs, the negative something else although the nuisance is the same.
    """
    pairs = cross_pairs(rows, values)
    pairs = rng.permutation(np.concatenate([pairs, pairs[:, ::-1]]))
    near, count = np.zeros((len(rows), const.CROSS_NEAR), np.intp), np.zeros(len(rows), np.intp)
    for value in np.unique(values):
        same = np.flatnonzero(values == value)
        if len(same) > 1:
            count[same] = k = min(const.CROSS_NEAR, len(same) - 1)
            near[same, :k] = same[top_columns(similarities(rows[same]), k)]
    pairs = pairs[count[pairs[:, 0]] > 0][: limit // 2].repeat(2, axis=0)
    anchors = pairs[:, 0]
    return np.column_stack([pairs, near[anchors, rng.integers(0, count[anchors])]])


@dataclass(frozen=True)
class CrossScatter:
    """How rows of different values that show the same differ."""

    scatter: Array
    """(q, q)"""
    spread: Array
    """(q, q), of all rows, or of the documents."""
    n_pairs: int
    """That were found before any scatter."""

    def map(self, share: float, size: int) -> Array:
        """Return the map (q, q) by the scatter, of which a `share` is shrunk to a sphere.

        Its first `size` axes are for an embedding of that size. In single precision, for judging.
        """
        scatter, ranking = (a.astype(np.float32) for a in (self.scatter, self.ranking(share)))
        return whitening_map(scatter, ranking, self.shrinkage(share, size), size)

    def ranking(self, share: float) -> Array:
        """Return by what axes are ranked: what rows differ in beyond such pairs."""
        return self.spread - (1 - share) * self.scatter

    def shrinkage(self, share: float, size: int) -> float:
        """Return the shrinkage, as a multiple of trace / size, that makes up this share."""
        return share / (1 - share) * size / len(self.scatter)


def pair_differences(Y: Array, pairs: Indices) -> Array:
    """Return half the mean of (y_i - y_j)(y_i - y_j)' over pairs: the Laplacian of their graph."""
    ends = np.ones(2 * len(pairs), Y.dtype), (pairs.T.ravel(), pairs[:, ::-1].T.ravel())
    graph = sparse.csr_matrix(ends, shape=(len(Y), len(Y)))
    degrees = np.asarray(graph.sum(axis=1), Y.dtype)
    products = np.asarray(transposed_times(Y, degrees * Y - graph @ Y), np.float64)
    return (products + products.T) / (4 * len(pairs))


def cross_scatter(
    Y: Array, values: Indices, spread: Array, prior: Array, size: int, k: int = 1
) -> CrossScatter:
    """Return the scatter of pairs across values, found again in the space it gives.

    There, rows are paired with up to k of each value. Few pairs are blended with the scatter
    within neighborhoods, the prior.
    """
    q = Y.shape[1]
    spread = spread + 1e-8 * np.trace(spread) / q * np.eye(q)
    seen, n_pairs = Y, 0
    for last in (False, True):
        pairs = cross_pairs(seen, values, k if last else 1)
        if len(pairs) == 0:
            break
        n_pairs = n_pairs or len(pairs)
        scatter = pair_differences(Y, pairs)
        weight = len(pairs) / (len(pairs) + const.PRIOR_PAIRS)
        scaled = prior * (np.trace(scatter) / np.trace(prior))
        scatter = weight * scatter + (1 - weight) * scaled
        made = CrossScatter(scatter, spread, n_pairs)
        if not last:
            seen = times(Y, made.map(const.CROSS_START, size)[:, :size])
    else:
        return made
    return CrossScatter(np.eye(q) * np.trace(spread) / q, spread, n_pairs)
