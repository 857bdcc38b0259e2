"""How to whiten, chosen without labels.

Ours, not the paper's. The scatter within cross-fitted neighborhoods can *rescale* the leading
principal axes, or *turn* the embedding to other axes as well. Turning gains most where a nuisance
dominates the strongest axes and loses most elsewhere: wording that neighbors share looks like a
class. So the axes are turned only where the evidence is strong, rescaled where there is some, and
left to PCA otherwise.

The evidence is the *rank gain*, on rows that did not make the scatter: take the 3 nearest rows as
one half of the axes sees them; how much nearer to the top does the other half, whitened and reduced
to the requested size, rank them than PCA does? Agreement on the single nearest neighbor would
reward near-duplicates and shared wording instead.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from rpml.method.graph.exact import empty_heaps, push_scores
from rpml.method.whitening import kernels
from rpml.method.whitening.constants import (
    FINAL_REPEATS,
    FINAL_ROWS,
    JUDGED_QUERIES,
    JUDGED_REPEATS,
    JUDGED_ROWS,
    LEAST_SUPPORT,
    MATE_SHRINKAGE,
    MATES,
    MILD,
    MIN_AXES,
    MIN_ROWS,
    NEAR_BEST,
    PRIOR_ROWS,
    RIDGE,
    SHRINKAGES,
    SUPPORT,
    TURN,
    TURN_SIZES,
)
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Estimate,
    Mask,
    ScatterChoice,
    columns,
    cross_fitted_correlation,
    random_halves,
    rescaling_map,
    scatter_of,
    taught_correlation,
)
from rpml.runtime.blas import single_blas_thread, times
from rpml.runtime.intervals import Interval, mean_interval
from rpml.runtime.rows import Array, unit_rows
from rpml.runtime.wording import counted

Index = NDArray[np.intp]

NO_GAIN = Interval(0.0, 0.0, 0.0)  # PCA over PCA


@single_blas_thread()
def neighbor_scatter(
    data: Coordinates, rng: np.random.Generator, is_prior: bool = True
) -> Estimate:
    """The scatter within cross-fitted neighborhoods, and how it is used.

    Where PCA is chosen, `is_prior` says whether pairs or labels may still use the scatter; if not,
    it is that of the rows that judged it.
    """
    n, q = data.W.shape
    if q < MIN_AXES:
        reason = f"only {counted(q, 'axis', 'axes')}, too few to be halved"
        return np.eye(q), ScatterChoice("none", np.inf, {}, reason, trains=False, gain=NO_GAIN)
    if n < MIN_ROWS:
        reason = f"only {counted(n, 'row')}, too few to tell"
        return np.eye(q), ScatterChoice("none", np.inf, {}, reason, trains=False, gain=NO_GAIN)
    gains = RankGains(data.subset(judged_rows(n, rng)), rng)
    choice = choose(gains, data.n_components)
    correlation = gains.correlation
    if choice.whitens or is_prior:
        rows = rng.permutation(n)[: FINAL_ROWS if choice.whitens else PRIOR_ROWS]
        correlation = taught_correlation(data.subset(rows), correlation, FINAL_REPEATS, rng)
    return scatter_of(correlation, data.deviations), choice


@single_blas_thread()
def chosen_rank_gain(data: Coordinates, rng: np.random.Generator) -> Interval:
    """The rank gain by which a fit would judge its choice, of its `judged_rows`."""
    if min(data.W.shape[0] - MIN_ROWS, data.W.shape[1] - MIN_AXES) < 0:
        return NO_GAIN
    return choose(RankGains(data, rng), data.n_components).gain or NO_GAIN


def judged_rows(n: int, rng: np.random.Generator) -> Index:
    """Which of n rows are looked at: the first half makes the scatter, the second tests it."""
    return rng.permutation(n)[:JUDGED_ROWS]


def choose(gains: RankGains, n_components: int) -> ScatterChoice:
    """PCA unless a mild rescaling has support; then turned axes, or the better rescaling.

    The strongest whitening whose gain is near the best turns the axes.
    """
    support, turn = support_needed(gains.directions), turn_needed(n_components)
    mild = float(gains.mild.mean())
    reason = f"the rank gain of mild rescaling is {_said(gains.mild)}"
    if mild < support:
        return _pca(gains, f"{reason}, {support:.3f} needed ({gains.directions:.0f} axes)")
    turned = gains.turned.mean(axis=1)
    if turned.max() > turn:
        measured = "discounting the directions in which near rows differ has a rank gain of"
        reason = f"{measured} {_said(gains.turned[turned.argmax()])}, above {turn:.2f}"
        i = int((turned >= NEAR_BEST * turned.max()).argmax())
        evidence = dict(zip(SHRINKAGES, turned.tolist(), strict=True))
        gain = mean_interval(gains.turned[i])
        return ScatterChoice("neighbors", SHRINKAGES[i], evidence, reason, gain=gain)
    evidence = {RIDGE: float(gains.rescaled.mean()), MILD: mild}
    ridge = max(evidence, key=evidence.__getitem__)
    gain = mean_interval(gains.rescaled if ridge == RIDGE else gains.mild)
    reason += f", above {support:.3f}"
    return ScatterChoice(
        "neighbors", np.inf, evidence, reason, trains=False, ridge=ridge, gain=gain
    )


def _pca(gains: RankGains, reason: str) -> ScatterChoice:
    """Nothing beyond PCA, and no gain over it."""
    evidence = {MILD: float(gains.mild.mean())}
    return ScatterChoice("neighbors", np.inf, evidence, reason, trains=False, gain=NO_GAIN)


def support_needed(directions: float) -> float:
    """The rank gain of mild rescaling from which on the scatter is used.

    A few strong directions can hide what near rows share. Where many directions share the variance
    there is nothing of the kind to discount, and near rows mostly share detail: wording, or being
    parts of one document.
    """
    return max(SUPPORT * directions, LEAST_SUPPORT)


def turn_needed(n_components: int) -> float:
    """The rank gain from which on axes are turned: with fewer dimensions all gains are smaller."""
    return float(TURN * (min(max(n_components, TURN_SIZES[0]), TURN_SIZES[1]) / 64) ** 0.5)


def n_directions(deviations: Array) -> float:
    """Over how many directions the variance is spread: the participation ratio."""
    variances = np.square(deviations)
    return float(variances.sum() ** 2 / np.square(variances).sum())


def _said(per_query: Array) -> str:
    gain = mean_interval(per_query)
    return f"{gain.value:.3f}, 95% interval {gain.low:.3f} to {gain.high:.3f}"


class RankGains:
    """What the second half of the rows says about a scatter that the first half made.

    Per query, the decrease of log(1 + rank) of its mates compared with PCA. Each gain is computed
    when it is first asked for.
    """

    def __init__(self, data: Coordinates, rng: np.random.Generator) -> None:
        self.directions = n_directions(data.deviations)
        every = np.arange(len(data.W))
        made, self._tested = (data.subset(part) for part in np.array_split(every, 2))
        self.correlation = cross_fitted_correlation(made, JUDGED_REPEATS, rng)
        self._scatter = scatter_of(self.correlation, data.deviations)
        self._trace = float(np.trace(self._scatter))
        self._queries = np.arange(min(JUDGED_QUERIES, len(self._tested.W)))
        halves = [random_halves(data.W.shape[1], rng) for _ in range(JUDGED_REPEATS)]
        self._seen = [seen for half in halves for seen in (half, ~half)]
        fewest = min(int(seen.sum()) for seen in self._seen)
        self._size = max(1, min(data.n_components, fewest // 2))
        self._plain, self._mates = [], []
        for seen in self._seen:
            self._plain.append(_principal(self._tested, seen)[:, : self._size])
            self._mates.append(_nearest(_principal(self._tested, ~seen), self._queries))

    @cached_property
    def mild(self) -> Array:
        """(n_queries,), axes rescaled by the ridge `MILD`.

        The mates are the nearest by the other half of the axes as it is.
        """
        return self._rescaled(MILD)

    @cached_property
    def rescaled(self) -> Array:
        """(n_queries,), the same by the ridge `RIDGE`."""
        return self._rescaled(RIDGE)

    @cached_property
    def turned(self) -> Array:
        """(n_shrinkages, n_queries), axes turned.

        The mates are the nearest by the other half, whitened: where a nuisance dominates, the
        nearest by the axes as they are share the nuisance.
        """
        ridge = MATE_SHRINKAGE * self._trace / self._tested.n_components
        mates = [
            _nearest(self._tested.whitened(self._scatter, ~seen, ridge), self._queries)
            for seen in self._seen
        ]
        rows = (
            [
                _turned(self._tested, self._scatter, seen, shrinkage, self._size)
                for seen in self._seen
            ]
            for shrinkage in SHRINKAGES
        )
        before = self._log_ranks(self._plain, mates)
        return np.stack([before - self._log_ranks(turned, mates) for turned in rows])

    def _rescaled(self, ridge: float) -> Array:
        rows = [
            _rescaled(plain, self._scatter[np.ix_(seen, seen)], ridge * self._trace)
            for seen, plain in zip(self._seen, self._plain, strict=True)
        ]
        return self._plain_ranks - self._log_ranks(rows, self._mates)

    @cached_property
    def _plain_ranks(self) -> Array:
        return self._log_ranks(self._plain, self._mates)

    def _log_ranks(self, rows: list[Array], mates: list[Index]) -> Array:
        """(n_queries,), the mean over the halves of the axes."""
        views = zip(rows, mates, strict=True)
        ranks = [mean_log_ranks(seen, self._queries, found) for seen, found in views]
        return np.asarray(np.mean(ranks, axis=0))


def _principal(data: Coordinates, half: Mask) -> Array:
    """The rows as one half of the axes sees them."""
    return np.asarray(columns(data.W, half) * data.deviations[half].astype(data.W.dtype))


def _rescaled(rows: Array, scatter: Array, added: float) -> Array:
    """The rows by the same axes, whitened by the scatter with `added` on its diagonal."""
    size = rows.shape[1]
    return times(rows, rescaling_map(scatter[:size, :size], added).astype(rows.dtype))


def _turned(data: Coordinates, scatter: Array, half: Mask, shrinkage: float, size: int) -> Array:
    """The rows as one half of the axes sees them, whitened, by the `size` best axes."""
    W, deviations = columns(data.W, half), data.deviations[half]
    ridge = shrinkage * np.trace(scatter) / data.n_components
    smoothed = scatter[np.ix_(half, half)] + ridge * np.eye(len(deviations))
    values, axes = linalg.eigh(smoothed / np.outer(deviations, deviations), driver="evd")
    return times(W, (axes[:, :size] / np.sqrt(values[:size])).astype(W.dtype))


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
    similarity = _similarities(rows, queries)
    ranks = np.empty(mates.shape, np.intp)
    kernels.count_higher(similarity, mates, ranks)
    return np.asarray(np.log1p(ranks).mean(axis=1))
