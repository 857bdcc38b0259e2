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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.method.whitening.constants import (
    CROSS_AGREES,
    CROSS_CLEAR,
    CROSS_EXCESS,
    CROSS_HANDICAP,
    CROSS_MANY,
    CROSS_NEAR_BEST,
    CROSS_SHARES,
    CROSS_VALUE_ROWS,
    FEW_QUERIES,
    JUDGED_QUERIES,
    JUDGED_REPEATS,
    JUDGED_ROWS,
    QUERY_PAIRS,
    QUERY_SHARES,
)
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Mask,
    count_higher,
    cross_fitted_correlation,
    random_halves,
    rescaling_map,
    scatter_of,
    similarities,
    whitening_map,
)
from rpml.method.whitening.nuisance import Index, Nuisance, cross_pairs, cross_scatter, removal
from rpml.method.whitening.scatter_choice import ScatterChoice
from rpml.runtime.blas import single_blas_thread, times
from rpml.runtime.rows import Array

CHECKED_ROWS = 2000


@dataclass(frozen=True)
class KnownRows:
    """Rows in principal coordinates, and what is known of them."""

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
        return QUERY_PAIRS if self.only_queries else 1

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of shrinkage that are tried."""
        return QUERY_SHARES if self.only_queries else CROSS_SHARES

    def subset(self, rows: Index) -> KnownRows:
        return KnownRows(
            self.Y[rows],
            self.nuisance.subset(rows),
            self.asks[rows],
            self.spread,
            self.prior,
            self.choice,
            self.n_components,
        )


@dataclass(frozen=True)
class Verdict:
    """What the evidence says."""

    share: float | None
    """Of shrinkage that the scatter gets; None: the knowledge is not used."""
    gains: dict[float, float]
    """Per share: the rank gain of mutual neighbors across values."""
    reason: str


@single_blas_thread()
def judge(rows: KnownRows, n_pairs: int, rng: np.random.Generator) -> Verdict:
    """Judge the knowledge by the rows of which it is known; `n_pairs` would make the map.

    The map is judged with half of the rows and of the axes. Where all make many pairs, they
    support a stronger whitening than the best one for the few of that half.
    """
    values = rows.nuisance.values
    found, chance = shared(rows.Y, values, rows.asks, rng)
    excess = (found - chance) / max(1e-9, 1 - chance)
    if excess < CROSS_EXCESS:
        return Verdict(None, {}, "that is hardly more than by chance: there is nothing to remove")
    judged = rows.subset(rng.permutation(len(values))[:JUDGED_ROWS])
    views = list(_views(judged, rng))
    if rows.only_queries and judged.asks.sum() < FEW_QUERIES:
        views += _views(judged, rng)
    if not sum(len(ranks) for ranks, _ in views):
        return Verdict(None, {}, "too few rows of different values are each other's nearest")
    ranks, asking = (np.concatenate(parts) for parts in zip(*views, strict=True))
    usual, pca, *known = ranks.mean(axis=0)
    best = int(np.argmin(known))
    gains = usual - np.array(known)
    fall, n_judged = ranks[:, 0] - ranks[:, 2 + best], len(ranks) / 2  # by both halves of the axes
    if rows.only_queries:  # a query has several documents
        queries, pairs = np.unique(asking, return_inverse=True, return_counts=True)[1:]
        fall, n_judged = np.bincount(queries, fall) / pairs, len(pairs)
    error = float(fall.std() / np.sqrt(n_judged))
    needed = CROSS_CLEAR * error - CROSS_HANDICAP
    evidence = dict(zip(rows.shares, gains.tolist(), strict=True))
    if -known[best] < CROSS_AGREES:
        what = "rows of different values that are each other's nearest have little in common"
        return Verdict(None, evidence, f"{what}: it may be what matters")
    measured = ranked(float(gains[best]), rows.only_queries)
    if gains[best] < needed:
        unsure = f"{measured}, and {_share(needed)} would be needed to be sure"
        return Verdict(None, evidence, unsure)
    if gains[best] < 0:
        measured += ", by a map that only half of the rows made"
    many = n_pairs >= CROSS_MANY and not rows.only_queries
    near = CROSS_NEAR_BEST if many else 1.0
    over_pca = pca - np.array(known)
    strongest = int((over_pca >= near * over_pca[best]).argmax())
    return Verdict(rows.shares[strongest], evidence, measured)


def ranked(gain: float, by_queries: bool) -> str:
    """Return a gain in log rank in words."""
    found = "held-out queries rank their documents"
    if not by_queries:
        found = "held-out rows rank their counterparts of other values"
    return f"{found} {_share(gain)} {'higher' if gain >= 0 else 'lower'} than without it"


def _share(gain: float) -> str:
    """Return by which share of it a rank falls, or rises."""
    return f"{1 - np.exp(-abs(gain)):.0%}"


def shared(Y: Array, values: Index, asks: Mask, rng: np.random.Generator) -> tuple[float, float]:
    """Return how often a row's nearest row has its value, and how often a random one has."""
    known = rng.permutation(np.flatnonzero(values >= 0))[:CHECKED_ROWS]
    names, asking = values[known], np.flatnonzero(asks[known])
    if len(asking) == 0:
        return 0.0, 0.0
    found = names[similarities(Y[known], asking).argmax(axis=1)] == names[asking]
    counts = np.bincount(names)[names[asking]]
    return float(found.mean()), float(((counts - 1) / max(1, len(known) - 1)).mean())


def _views(rows: KnownRows, rng: np.random.Generator) -> Iterator[tuple[Array, Index]]:
    """Per half of the rows and of the axes: ranks of mutual neighbors, and who asked."""
    half = random_halves(rows.Y.shape[1], rng)
    order = rng.permutation(np.flatnonzero(rows.asks))
    folds = order[: len(order) // 2], order[len(order) // 2 :]
    documents = np.flatnonzero(~rows.asks)
    for fold, tested in (folds, folds[::-1]):
        made = np.concatenate([documents, fold])
        maps = _Maps(rows, made, neighborhood_scatter(rows, made, rng))
        for seen in (half, ~half):
            if (learned := maps.on(seen)) is not None:
                yield _ranks(rows, learned, seen, tested, rng)


def neighborhood_scatter(rows: KnownRows, made: Index, rng: np.random.Generator) -> Array:
    """Return the scatter within neighborhoods of the rows that make a map."""
    if not rows.choice.whitens:
        return rows.prior
    deviations = np.sqrt(np.diag(rows.spread))
    W = rows.Y[made] / deviations.astype(rows.Y.dtype)
    data = Coordinates(W, deviations, rows.n_components)
    return scatter_of(cross_fitted_correlation(data, JUDGED_REPEATS, rng), deviations)


@dataclass(frozen=True)
class _Maps:
    """The maps that some of the rows make, with the knowledge and without."""

    rows: KnownRows
    made: Index
    prior: Array

    def on(self, seen: Mask) -> _Learned | None:
        """Return the rows by the maps on one half of the axes; None if pairs are too few."""
        rows, half = self.rows, np.ix_(seen, seen)
        frequent = _of_frequent_values(rows.nuisance.values, self.made)
        values = rows.nuisance.values[frequent]
        if len(np.unique(values)) < 2:
            return None
        size = max(1, min(rows.n_components, int(seen.sum()) // 2))
        Y = np.compress(seen, rows.Y, axis=1)
        K = removal(Y[self.made], rows.nuisance.subset(self.made).columns)[0]
        spread, prior = rows.spread[half], self.prior[half]
        shortened = times(Y, K.astype(Y.dtype))
        scatters = K @ spread @ K, K @ prior @ K
        learned = cross_scatter(shortened[frequent], values, *scatters, size, rows.n_mutual)
        maps = [learned.map(share, size) for share in rows.shares]
        usual = times(Y, self._usual(half, size).astype(Y.dtype))
        embeddings = [times(shortened, A.astype(Y.dtype)) for A in maps]
        return _Learned(Y[:, :size], usual, embeddings, self.made)

    def _usual(self, half: tuple[NDArray[np.generic], ...], size: int) -> Array:
        """Return the map of the fit without the knowledge."""
        choice, scatter = self.rows.choice, self.prior[half]
        if np.isfinite(choice.ridge):
            added = choice.ridge * float(np.trace(self.prior))
            return np.eye(len(scatter), size) @ rescaling_map(scatter[:size, :size], added)
        spread, l = self.rows.spread[half], self.rows.n_components
        return whitening_map(scatter, spread, choice.shrinkage, l)[:, :size]


@dataclass(frozen=True)
class _Learned:
    """Rows by PCA, by the usual map and by those of all shares."""

    plain: Array
    usual: Array
    embeddings: list[Array]
    made: Index


def _ranks(
    rows: KnownRows, learned: _Learned, seen: Mask, tested: Index, rng: np.random.Generator
) -> tuple[Array, Index]:
    """Return (n_pairs, 2 + n_shares): log(1 + rank) by the usual map, PCA and each share.

    Less its mean over random rows, so that negative values are better than chance. Also the row
    that asked, per pair.
    """
    Y, values = np.compress(~seen, rows.Y, axis=1), rows.nuisance.values
    K = removal(Y[learned.made], rows.nuisance.subset(learned.made).columns)[0]
    asked = np.zeros(len(Y), bool)
    asked[tested] = True
    pairs = _mutual(times(Y, K.astype(Y.dtype)), values, asked, rows.n_mutual, rng)
    pool = np.flatnonzero(~rows.asks) if rows.only_queries else np.arange(len(Y))
    by_map = [
        log_ranks(seen_rows, pairs, pool)
        for seen_rows in (learned.usual, learned.plain, *learned.embeddings)
    ]
    return np.stack(by_map, axis=1) - (np.log(len(pool)) - 1), pairs[:, 0]


def _of_frequent_values(values: Index, rows: Index) -> Index:
    """Return those of the rows whose value has enough of them."""
    known = rows[values[rows] >= 0]
    counts = np.bincount(values[known], minlength=1)
    return known[counts[values[known]] >= CROSS_VALUE_ROWS]


def _mutual(Y: Array, values: Index, asked: Mask, k: int, rng: np.random.Generator) -> Index:
    """Return (m, 2) mutual neighbors across values, the first of them asked."""
    known = np.flatnonzero(values >= 0)
    pairs = known[cross_pairs(Y[known], values[known], k)]
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return rng.permutation(both[asked[both[:, 0]]])[: 2 * JUDGED_QUERIES]


def log_ranks(Y: Array, pairs: Index, pool: Index) -> Array:
    """Return log(1 + rank) of the second row of each pair among the pool, by the first."""
    queries, at = np.unique(pairs[:, 0], return_inverse=True)
    similarity = similarities(Y, queries)
    if len(pool) < len(Y):
        outside = np.ones(len(Y), bool)
        outside[pool] = False
        similarity[:, outside] = -2
    return np.asarray(np.log1p(count_higher(similarity[at], pairs[:, 1:])[:, 0]))
