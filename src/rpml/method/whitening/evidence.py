"""How strongly to whiten, chosen without labels; plain PCA is the fallback.

Ours, not the paper's. The shrinkage says how far the scatter within cross-fitted neighborhoods is
trusted: shrinkage * trace(S) / n_components is added to its diagonal, and an infinite shrinkage is
PCA. It is chosen by the *rank gain*, on rows that did not make the scatter: take the 3 nearest rows
as one half of the axes sees them; how much nearer to the top does the other half, whitened and
reduced to the requested size, rank them than PCA does? Agreement on the single nearest neighbor
would reward near-duplicates and shared wording instead.

Half-whitened PCA is one more candidate. One half of the axes has half of the strong ones, so half
of the requested size spans the same part of the spectrum there as the requested size does among all
axes: half-whitening is judged at half of the size, where the rule at full size overrates it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from rpml.method.graph.exact import empty_heaps, push_scores
from rpml.method.whitening import kernels
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Mask,
    ScatterChoice,
    columns,
    cross_fitted_correlation,
    random_halves,
    scatter_of,
    taught_correlation,
)
from rpml.runtime.context import silent
from rpml.runtime.intervals import Interval, mean_interval
from rpml.runtime.rows import Array, unit_rows
from rpml.runtime.threads import single_blas_thread, times

Index = NDArray[np.intp]

SHRINKAGES = (1 / 16, 1 / 4, 1.0, 4.0, np.inf)  # strongest whitening first, PCA last
MATES = 3
PRICE = 0.02  # rank gain that every step away from PCA has to bring
NUISANCE = 0.15  # rank gain, by the whitened reference, from which on there is no price
NEAR_BEST = 0.8  # there, the strongest whitening with this part of the best rank gain
REFERENCE = 1.0  # shrinkage of the whitened reference
HALF_GAIN = 0.03  # rank gain that half-whitening has to bring, at half of the size
HALF_SLACK = 0.01  # rank gain by which it may be below the chosen shrinkage there
MAX_ROWS = 3000  # rows looked at: half make the scatter of the evidence, half test it
TRAINING_SHRINKAGE = 1.0  # with more, training on neighbors loses as often as it gains
MIN_ROWS, MIN_AXES = 100, 8  # with less there is nothing to estimate: plain PCA
QUERIES = 500
REPEATS = 2
FINAL_ROWS = 6000  # make the scatter that is used; 3,000 cost CUB 1.1 points of Recall@1 at 64
FINAL_REPEATS = 3  # every two axes are then measured together
STEPS = 2 * (2 * REPEATS + REPEATS + FINAL_REPEATS)  # two rounds, the evidence, the last round


@dataclass(frozen=True)
class RankGains:
    """Decrease of log(1 + rank) of mates compared with PCA: arrays (n_shrinkages, n_queries)."""

    plain: Array
    """The mates are the nearest by the other half of the axes as they are."""
    whitened: Array
    """The mates are the nearest by the other half whitened at shrinkage 1."""

    @property
    def dominated(self) -> bool:
        """Whether a nuisance dominates the strongest axes: the plain mates are then wrong."""
        return float(self.whitened.mean(axis=1).max()) > NUISANCE

    @property
    def used(self) -> Array:
        """The gains that decide."""
        return self.whitened if self.dominated else self.plain


@dataclass(frozen=True)
class View:
    """Rows as one half of the axes sees them, and the mates that the other half names."""

    whitened: list[Array]
    """Per shrinkage, the best axes first."""
    half_whitened: Array
    mates: Index
    """(n_queries, 2 * MATES): the plain ones, then the whitened ones. Queries come first."""

    def log_ranks(self, rows: Array, size: int, mates: Index) -> Array:
        """Per query, the mean over each of its sets of mates, by the first `size` axes."""
        ranks = _log_ranks(rows[:, :size], np.arange(len(mates)), mates)
        return np.asarray(ranks.reshape(len(mates), -1, MATES).mean(axis=2).T)


@dataclass(frozen=True)
class Evidence:
    """What half of the rows say about a scatter that the other half made."""

    gains: RankGains
    correlation: Array
    """Of the half that made the scatter."""
    views: list[View]
    """Of the half that tests it."""
    n_components: int

    def at_half_size(self, shrinkage: float) -> tuple[Array, Array]:
        """Rank gains of half-whitening and of a shrinkage, per query, by half as many axes."""
        log_ranks = np.zeros((3, len(self.views[0].mates)))
        for view in self.views:
            size = _size(self.n_components // 2, view.half_whitened)
            shown = (view.whitened[i] for i in (SHRINKAGES.index(shrinkage), -1))
            for i, rows in enumerate((view.half_whitened, *shown)):
                log_ranks[i] += view.log_ranks(rows, size, view.mates[:, :MATES])[0]
        half, own, pca = log_ranks / len(self.views)
        return pca - half, pca - own


@single_blas_thread()
def neighbor_scatter(
    data: Coordinates,
    rng: np.random.Generator,
    step: Callable[[], None] = silent,
    is_refined: bool = False,
) -> tuple[Array, ScatterChoice]:
    """The scatter within cross-fitted neighborhoods, and how far it is trusted.

    `step` is called `STEPS` times, or fewer if the scatter is not needed. It is where pairs or
    labels may refine it (`is_refined`), even if half-whitening does as well.
    """
    n, q = data.W.shape
    if q < MIN_AXES:
        reason = f"{q} axes are too few to be halved"
        return np.eye(q), ScatterChoice("none", np.inf, {}, reason)
    if n < MIN_ROWS:
        reason = f"{n} rows are too few to tell"
        return np.eye(q), ScatterChoice("none", np.inf, {}, reason, trains=False)
    evidence = rank_gains(data, rng, step)
    choice, teacher = choose(evidence)[0], evidence.correlation
    del evidence  # and with it the rows as every candidate shows them
    if np.isinf(choice.shrinkage) or (choice.half_whitens and not is_refined):
        return scatter_of(teacher, data.deviations), choice
    rows = data.subset(rng.permutation(n)[:FINAL_ROWS])
    correlation = taught_correlation(rows, teacher, FINAL_REPEATS, rng, step)
    return scatter_of(correlation, data.deviations), choice


@single_blas_thread()
def chosen_rank_gain(data: Coordinates, rng: np.random.Generator) -> Interval:
    """The rank gain of what a fit would choose; 0 where that is PCA."""
    if min(data.W.shape[0] - MIN_ROWS, data.W.shape[1] - MIN_AXES) < 0:
        return Interval(0.0, 0.0, 0.0)
    return mean_interval(choose(rank_gains(data, rng))[1])


def choose(evidence: Evidence) -> tuple[ScatterChoice, Array]:
    """The choice, and its rank gain per query.

    Where no nuisance dominates, half-whitened PCA is preferred if it gains `HALF_GAIN` and about as
    much as the chosen shrinkage: it has nothing to estimate.
    """
    gains = evidence.gains
    choice = choose_shrinkage(gains)
    used = gains.used[SHRINKAGES.index(choice.shrinkage)]
    if gains.dominated:
        return choice, used
    half, own = evidence.at_half_size(choice.shrinkage)
    if half.mean() <= max(HALF_GAIN, own.mean() - HALF_SLACK):
        return choice, used
    reason = f"with half of the dimensions its rank gain over PCA is {_said(half)}"
    if np.isfinite(choice.shrinkage):
        reason += f", that of shrinkage {choice.shrinkage:.3g} {own.mean():.3f}"
    return replace(choice, half_reason=reason), half


def choose_shrinkage(gains: RankGains) -> ScatterChoice:
    """The rule for the shrinkage.

    Every step of whitening away from PCA has to bring `PRICE` of rank gain. Where the whitened
    reference gains more than `NUISANCE`, the strongest axes show something else than the classes
    and the plain neighbors are themselves wrong: then it is the strongest whitening whose gain is
    near the best.
    """
    steps = np.arange(len(SHRINKAGES))[::-1]
    used = gains.used.mean(axis=1)
    best = _said(gains.used[used.argmax()])
    if gains.dominated:
        i = int((used >= NEAR_BEST * used.max()).argmax())
        reason = f"a nuisance dominates the strongest axes (rank gain {best}, above {NUISANCE})"
    else:
        i = int((used - PRICE * steps).argmax())
        reason = f"rank gain over PCA {_said(gains.used[i])}, {PRICE} needed per step"
        if np.isinf(SHRINKAGES[i]):
            reason = f"no whitening ranks the neighbors clearly better than PCA (best {best})"
    evidence = dict(zip(SHRINKAGES, used.tolist(), strict=True))
    trains = SHRINKAGES[i] <= TRAINING_SHRINKAGE
    return ScatterChoice("neighbors", SHRINKAGES[i], evidence, reason, trains)


def _said(per_query: Array) -> str:
    gain = mean_interval(per_query)
    return f"{gain.value:.3f}, 95% interval {gain.low:.3f} to {gain.high:.3f}"


def rank_gains(
    data: Coordinates, rng: np.random.Generator, step: Callable[[], None] = silent
) -> Evidence:
    """The evidence: one half of the rows makes a scatter, the other one tests it."""
    order = rng.permutation(len(data.W))[:MAX_ROWS]
    made, tested = (data.subset(part) for part in np.array_split(order, 2))
    correlation = cross_fitted_correlation(made, REPEATS, rng, step)
    trace = float(((1 - np.diag(correlation)) * data.deviations**2).sum())
    ridges = [shrinkage * trace / data.n_components for shrinkage in SHRINKAGES]
    queries = np.arange(min(QUERIES, len(tested.W)))
    log_ranks = np.zeros((2, len(SHRINKAGES), len(queries)))
    views = []
    for _ in range(REPEATS):
        half = random_halves(data.W.shape[1], rng)
        halves = (half, ~half)
        sides = [_seen_by(tested, correlation, side, ridges) for side in halves]
        for side, one, other in zip(halves, sides, sides[::-1], strict=True):
            references = [other[SHRINKAGES.index(reference)] for reference in (np.inf, REFERENCE)]
            mates = np.hstack([_nearest(rows, queries) for rows in references])
            root = np.sqrt(data.deviations[side]).astype(data.W.dtype)
            view = View(one, columns(tested.W, side) * root, mates)
            for i, rows in enumerate(one):
                log_ranks[:, i] += view.log_ranks(rows, _size(data.n_components, rows), mates)
            views.append(view)
            step()
    gains = (log_ranks[:, -1:] - log_ranks) / len(views)
    return Evidence(RankGains(*gains), correlation, views, data.n_components)


def _size(n_components: int, rows: Array) -> int:
    """How many of the axes that the rows have are looked at: half of them at most."""
    return int(max(1, min(n_components, rows.shape[1] // 2)))


def _seen_by(data: Coordinates, correlation: Array, half: Mask, ridges: list[float]) -> list[Array]:
    """The rows as one half of the axes sees them, per ridge; best axes first."""
    W, deviations = columns(data.W, half), data.deviations[half]
    inside = np.eye(W.shape[1]) - correlation[np.ix_(half, half)]
    return [_whitened(W, inside, deviations, ridge) for ridge in ridges]


def _whitened(W: Array, inside: Array, deviations: Array, ridge: float) -> Array:
    """Whitened coordinates, whitened by D (I - C) D + ridge I instead, largest spread first."""
    if np.isinf(ridge):
        return W * deviations.astype(W.dtype)
    values, axes = linalg.eigh(inside + np.diag(ridge / deviations**2), driver="evd")
    return times(W, (axes / np.sqrt(values)).astype(W.dtype))


def _similarities(rows: Array, queries: Index) -> Array:
    """Cosines of the queries to all rows; to itself below any cosine."""
    rows = unit_rows(rows)
    similarity = times(rows[queries], rows.T)
    similarity[np.arange(len(queries)), queries] = -2
    return np.asarray(similarity)


def _nearest(rows: Array, queries: Index) -> Index:
    everyone = np.arange(len(rows), dtype=np.int32)
    similarity, heaps = _similarities(rows, queries), empty_heaps(len(queries), MATES, rows.dtype)
    push_scores(similarity, np.zeros(len(rows), rows.dtype), everyone[queries], everyone, heaps)
    return heaps[1].astype(np.intp)


def mean_log_ranks(rows: Array, queries: Index, mates: Index) -> Array:
    """Per query, the mean of log(1 + rank) of its mates among all rows; rank 0 is the nearest."""
    return np.asarray(_log_ranks(rows, queries, mates).mean(axis=1))


def _log_ranks(rows: Array, queries: Index, mates: Index) -> Array:
    """log(1 + rank) of each query's mates among all rows."""
    similarity = _similarities(rows, queries)
    ranks = np.empty(mates.shape, np.intp)
    kernels.count_higher(similarity, mates, ranks)
    return np.asarray(np.log1p(ranks))
