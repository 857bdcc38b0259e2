"""Is a nuisance one, and how strongly may it be discounted? Judged without labels.

Three questions, each on rows of which the values are known:

1. Do nearest neighbors share the value more often than by chance? If not, as with values at
   random, there is nothing to remove.
2. Take rows of different values that are each other's nearest in one half of the axes. Are they
   ranked higher in the other half by a map that other rows made, with the knowledge, than by the
   fit without it?
3. Are they ranked better than at random? Where the nuisance is the class, or a coarse class, rows
   of other values that are each other's nearest have nothing in common, and the halves disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from rpml.method.whitening import constants as const
from rpml.method.whitening.classes import padded
from rpml.method.whitening.evidence import NuisanceEvidence, ScatterChoice
from rpml.method.whitening.linear_map import Preprocessing, Spectrum
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Estimate,
    count_higher,
    cross_fitted_correlation,
    random_halves,
    rescaling_map,
    scatter_of,
    similarities,
    whitening_map,
)
from rpml.method.whitening.nuisance import (
    CrossScatter,
    Nuisance,
    comparable_rows,
    cross_pairs,
    cross_scatter,
    removal,
)
from rpml.runtime.rows import Array, Indices, Mask
from rpml.runtime.threads import single_blas_thread, times


@dataclass(frozen=True)
class KnownRows:
    """Rows in principal coordinates, with their nuisance and their queries."""

    Y: Array
    """(n, q)"""
    nuisance: Nuisance
    asks: Mask
    """(n,) rows that look for others: the queries, or all."""
    spread: Array
    """(q, q) by which axes are ranked: of the documents, or of all rows."""
    prior: Array
    """(q, q) scatter within neighborhoods."""
    choice: ScatterChoice
    """How the fit without the knowledge uses it."""
    n_components: int

    @property
    def only_queries(self) -> bool:
        """Queries are ranked among documents only, other rows among all."""
        return not self.asks.all()

    @property
    def n_mutual(self) -> int:
        """How many rows of another value may be the same as a row."""
        return const.QUERY_PAIRS if self.only_queries else 1

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of shrinkage that are tried."""
        return const.QUERY_SHARES if self.only_queries else const.CROSS_SHARES

    def subset(self, rows: Indices) -> KnownRows:
        nuisance = self.nuisance.subset(rows)
        return replace(self, Y=self.Y[rows], nuisance=nuisance, asks=self.asks[rows])

    def leading(self, n: int) -> KnownRows:
        """Return the rows on the first n axes."""
        spread, prior = (matrix[:n, :n] for matrix in (self.spread, self.prior))
        return replace(self, Y=self.Y[:, :n], spread=spread, prior=prior)


@dataclass(frozen=True)
class View:
    """Maps that half of the rows made on half of the axes, and how the other rows rank by them."""

    shortened: Array
    """(n, q / 2) the rows on these axes, after the removal."""
    made: Indices
    """The rows that made the maps."""
    maps: dict[float, Array]
    """Of these axes, per share of shrinkage."""
    size: int
    asked: Indices
    """(m, 2) mutual neighbors on the other axes, of which the first did not make the maps."""
    ranks: Array
    """Of the second for the first by the usual map, PCA and that of each share; not of all m."""


@dataclass(frozen=True)
class Discounted:
    """Rows without what does not matter, and the views by which that was judged."""

    spectrum: Spectrum
    """Their principal axes."""
    estimate: Estimate
    """The scatter that whitens them."""
    ranking: Array
    """By which axes are then ranked."""
    judged: KnownRows
    views: list[View]
    share: float
    """Of shrinkage."""


@single_blas_thread()
def discount(
    rows: KnownRows, source: str, spectrum: Spectrum, rng: np.random.Generator
) -> tuple[Discounted | None, NuisanceEvidence]:
    """Return what is left of the rows where the evidence supports it, else None, and the evidence.

    `spectrum` is that of all rows.
    """
    common, chance = shared(rows.Y, rows.nuisance.values, rows.asks, rng)
    before = NuisanceEvidence(source, False, "", 0, common, chance, common)
    comparable = rows.subset(comparable_rows(rows.nuisance.values, rng))
    if len(np.unique(comparable.nuisance.values)) < 2:
        return None, replace(before, reason="fewer than two of its values have enough rows")
    if rows.Y.shape[1] < 2:  # one half of the axes judges what the other says
        return None, replace(before, reason="the rows vary in one direction only")
    if (common - chance) / max(1e-9, 1 - chance) < const.CROSS_EXCESS:
        hardly = "that is hardly more than by chance: there is nothing to remove"
        return None, replace(before, reason=hardly)
    K, n_removed = removal(rows.Y, rows.nuisance.columns)
    spectrum, made, size = _discounted(comparable, K, spectrum)
    judged = comparable.subset(rng.permutation(len(comparable.Y))[: const.CROSS_JUDGED_ROWS])
    if not rows.only_queries:  # which are few, so that all axes have to tell
        judged = judged.leading(const.CROSS_AXES * rows.n_components)
    views = list(_views(judged, rng))
    if rows.only_queries and judged.asks.sum() < const.FEW_QUERIES:
        views += _views(judged, rng)
    share, gains, reason = judge(comparable, views, made.n_pairs)
    if share is None:
        return None, replace(before, reason=reason)
    choice = ScatterChoice(
        source=source,
        shrinkage=made.shrinkage(share, size),
        evidence={made.shrinkage(share, size): gain for share, gain in gains.items()},
        reason=reason,
        trains=rows.only_queries and rows.choice.trains,
    )
    evidence = replace(before, used=True, reason=reason, n_removed=n_removed)
    found = Discounted(spectrum, (made.scatter, choice), made.ranking(share), judged, views, share)
    return found, evidence


def known_rows(
    data: Coordinates, usual: Estimate, nuisance: Nuisance | None, queries: Array | None
) -> KnownRows:
    """Return the sampled rows, then the queries, in principal coordinates.

    `usual` is the estimate of the fit without the knowledge; queries are in standard deviations.
    """
    deviations = data.deviations.astype(data.W.dtype)
    Y, n = data.W * deviations, len(data.W)
    values, asks = nuisance or Nuisance((), np.zeros(n, np.intp)), np.ones(n, bool)
    if queries is not None:
        Y = np.concatenate([Y, queries * deviations])
        values = values.with_queries(len(queries))
        # without a nuisance documents look for nothing
        asks = np.append(np.full(n, nuisance is not None), np.ones(len(queries), bool))
    spread, prior = np.diag(data.deviations**2), padded(data, *usual)
    return KnownRows(Y, values, asks, spread, prior, usual[1], data.n_components)


def _discounted(
    rows: KnownRows, K: Array, spectrum: Spectrum
) -> tuple[Spectrum, CrossScatter, int]:
    """Return the principal axes of the shortened rows, their scatter across values and size."""
    q = len(K)
    variances, turn = np.linalg.eigh(K @ rows.spread @ K)
    significant = np.flatnonzero(variances > variances[-1] * 1e-9)[::-1]
    variances, turn = variances[significant], K @ turn[:, significant]
    shortened = Spectrum(spectrum.mean, spectrum.axes[:, :q] @ turn, variances)
    prior = turn.T @ rows.prior @ turn
    Y = times(rows.Y, turn.astype(rows.Y.dtype))
    size = min(rows.n_components, len(variances))
    values = rows.nuisance.values
    made = cross_scatter(Y, values, np.diag(variances), prior, size, rows.n_mutual)
    return shortened, made, size


def shared_after(
    rows: KnownRows, spectrum: Spectrum, applied: Preprocessing, rng: np.random.Generator
) -> float:
    """Return how often a row's nearest row shares its value in the embedding."""
    axes, matrix = spectrum.axes[:, : rows.Y.shape[1]], applied.matrix[:, : rows.n_components]
    Y = times(rows.Y, (axes.T @ matrix).astype(rows.Y.dtype))
    return shared(Y, rows.nuisance.values, rows.asks, rng)[0]


def judge(
    rows: KnownRows, views: list[View], n_pairs: int
) -> tuple[float | None, dict[float, float], str]:
    """Judge the knowledge by the rows of which it is known; `n_pairs` would make the map.

    Where all rows make many pairs, they support a stronger whitening than the best one for the
    few pairs of half of the rows and axes. Returns the share of shrinkage that the scatter gets,
    None if the knowledge is not used; the rank gain per share; and the reason.
    """
    if not sum(len(view.ranks) for view in views):
        return None, {}, "too few rows of different values are each other's nearest"
    ranks, asking = (
        np.concatenate(parts)
        for parts in zip(*((v.ranks, v.asked[: len(v.ranks), 0]) for v in views), strict=True)
    )
    usual, pca, *known = ranks.mean(axis=0)
    best = int(np.argmin(known))
    gains = usual - np.array(known)
    fall = ranks[:, 0] - ranks[:, 2 + best]
    if rows.only_queries:  # a query has several documents, and is judged by both halves of the axes
        queries, pairs = np.unique(asking, return_inverse=True, return_counts=True)[1:]
        fall = np.bincount(queries, fall) / pairs
    error = float(fall.std() / np.sqrt(len(fall)))
    many = n_pairs >= const.CROSS_MANY and not rows.only_queries
    needed = const.CROSS_CLEAR * error
    if many or rows.only_queries:  # few pairs make a map that is no better than the judged ones
        needed -= const.CROSS_HANDICAP
    evidence = dict(zip(rows.shares, gains.tolist(), strict=True))
    if -known[best] < const.CROSS_AGREES:
        what = "rows of different values that are each other's nearest have little in common"
        return None, evidence, f"{what}: it may be what matters"
    who = "rows rank their counterparts of other values"
    who = "queries rank their documents" if rows.only_queries else who
    change = f"{_share(gains[best])} {'higher' if gains[best] >= 0 else 'lower'}"
    measured = f"held-out {who} {change} than without it"
    if gains[best] < needed:
        unsure = f"{measured}, and {_share(needed)} would be needed to be sure"
        return None, evidence, unsure
    if gains[best] < 0:
        measured += ", by a map that only half of the rows made"
    near = const.CROSS_NEAR_BEST if many else 1.0
    over_pca = pca - np.array(known)
    strongest = int((over_pca >= near * over_pca[best]).argmax())
    return rows.shares[strongest], evidence, measured


def _share(gain: float) -> str:
    """Return by which share of it a rank falls, or rises."""
    return f"{1 - np.exp(-abs(gain)):.0%}"


def shared(Y: Array, values: Indices, asks: Mask, rng: np.random.Generator) -> tuple[float, float]:
    """Return how often a row's nearest row has its value, and how often a random one has."""
    known = rng.permutation(comparable_rows(values, rng))[: const.CHECKED_ROWS]
    names, asking = values[known], np.flatnonzero(asks[known])
    if len(asking) == 0:
        return 0.0, 0.0
    everyone = None if len(asking) == len(known) else asking
    found = names[similarities(Y[known], everyone).argmax(axis=1)] == names[asking]
    counts = np.bincount(names)[names[asking]]
    return float(found.mean()), float(((counts - 1) / (len(known) - 1)).mean())


def _views(rows: KnownRows, rng: np.random.Generator) -> Iterator[View]:
    """Yield a view per half of the axes and of the rows that ask; of many rows each judges once."""
    half = random_halves(rows.Y.shape[1], rng)
    order = rng.permutation(np.flatnonzero(rows.asks))
    folds = order[: len(order) // 2], order[len(order) // 2 :]
    documents = np.flatnonzero(~rows.asks)
    makers = [np.concatenate([documents, fold]) for fold in folds]
    priors = [neighborhood_scatter(rows, made, rng) for made in makers]
    for i, seen in enumerate((half, ~half)):
        pairs = _mutual(rows, ~seen)
        for j in (0, 1) if rows.only_queries else (i,):
            asked = rng.permutation(pairs[np.isin(pairs[:, 0], folds[1 - j])])
            view = _view(rows, makers[j], priors[j], seen, asked)
            if view is not None:
                yield view


def neighborhood_scatter(rows: KnownRows, made: Indices, rng: np.random.Generator) -> Array:
    """Return the scatter within neighborhoods of the rows that make a map."""
    if not rows.choice.whitens:
        return rows.prior
    deviations = np.sqrt(np.diag(rows.spread))
    W = rows.Y[made] / deviations.astype(rows.Y.dtype)
    data = Coordinates(W, deviations, rows.n_components)
    repeats = const.JUDGED_REPEATS if rows.only_queries else 1  # which decides alike otherwise
    return scatter_of(cross_fitted_correlation(data, repeats, rng), deviations)


def _view(rows: KnownRows, made: Indices, prior: Array, seen: Mask, asked: Indices) -> View | None:
    """Return the maps that the rows `made` make on some axes; None if values have too few rows."""
    known = made[rows.nuisance.values[made] >= 0]
    counts = np.bincount(rows.nuisance.values[known])
    frequent = known[counts[rows.nuisance.values[known]] >= const.CROSS_VALUE_ROWS]
    values, half = rows.nuisance.values[frequent], np.ix_(seen, seen)
    if len(np.unique(values)) < 2:
        return None
    size = max(1, min(rows.n_components, int(seen.sum()) // 2))
    Y, spread, scatter = np.compress(seen, rows.Y, axis=1), rows.spread[half], prior[half]
    K, shortened = _shortened(rows, made, Y)
    scatters = K @ spread @ K, K @ scatter @ K
    learned = cross_scatter(shortened[frequent], values, *scatters, size, rows.n_mutual)
    if np.isfinite(rows.choice.ridge):
        added = rows.choice.ridge * float(np.trace(prior))
        usual: Array = np.eye(len(scatter), size) @ rescaling_map(scatter[:size, :size], added)
    else:
        shrinkage = rows.choice.shrinkage
        usual = whitening_map(scatter, spread, shrinkage, rows.n_components)[:, :size]
    maps = {share: learned.map(share, size) for share in rows.shares}
    by_share = [times(shortened, A[:, :size]) for A in maps.values()]
    embeddings = [times(Y, usual.astype(Y.dtype)), Y[:, :size], *by_share]
    ranks = log_ranks(rows, embeddings, asked[: const.JUDGED_CROSS])
    return View(shortened, frequent, maps, size, asked, ranks)


def _shortened(rows: KnownRows, made: Indices, Y: Array) -> tuple[Array, Array]:
    """Return the removal that the rows `made` give on some of the axes, and the rows after it."""
    K = removal(Y[made], rows.nuisance.subset(made).columns)[0]
    return K, times(Y, K.astype(Y.dtype))


def _mutual(rows: KnownRows, seen: Mask) -> Indices:
    """Return (m, 2) mutual neighbors across values on half of the axes, in both orders."""
    known = np.flatnonzero(rows.nuisance.values >= 0)
    Y = _shortened(rows, known, np.compress(seen, rows.Y, axis=1))[1]
    pairs = known[cross_pairs(Y[known], rows.nuisance.values[known], rows.n_mutual)]
    return np.concatenate([pairs, pairs[:, ::-1]])


def log_ranks(rows: KnownRows, embeddings: list[Array], pairs: Indices) -> Array:
    """Return (n_pairs, n_embeddings): log(1 + rank) of the second row of each pair by the first.

    Among the documents, or all rows; less its mean over random rows, so that negative values are
    better than chance.
    """
    pool = ~rows.asks if rows.only_queries else np.ones(len(rows.asks), bool)
    queries, at = np.unique(pairs[:, 0], return_inverse=True)
    ranks = []
    for Y in embeddings:
        similarity = similarities(Y, queries)
        similarity[:, ~pool] = -2
        ranks.append(count_higher(similarity, at, pairs[:, 1]))
    return np.asarray(np.log1p(np.stack(ranks, axis=1)) - (np.log(pool.sum()) - 1))
