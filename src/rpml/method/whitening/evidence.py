"""How to whiten, chosen without labels.

Ours, not the paper's. The scatter within cross-fitted neighborhoods can *rescale* the leading
principal axes, or *turn* the embedding to other axes as well. Turning gains most where a nuisance
dominates the strongest axes and loses most elsewhere: wording that neighbors share looks like a
class. Rescaling loses little. So the axes are turned only where the evidence is strong, rescaled
strongly where there is some, and mildly otherwise.

The evidence is the *rank gain*, on rows that did not make the scatter: take the 3 nearest rows as
one half of the axes sees them; how much nearer to the top does the other half, whitened and reduced
to the requested size, rank them than PCA does? Agreement on the single nearest neighbor would
reward near-duplicates and shared wording instead.
"""

from collections.abc import Callable
from dataclasses import dataclass

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
    rescaling_map,
    scatter_of,
    taught_correlation,
)
from rpml.runtime.blas import single_blas_thread, times
from rpml.runtime.context import silent
from rpml.runtime.intervals import Interval, mean_interval
from rpml.runtime.rows import Array, unit_rows
from rpml.runtime.wording import counted

Index = NDArray[np.intp]

SHRINKAGES = (1 / 16, 1 / 8)  # of axes that are turned, strongest whitening first
STRONG, MILD = 1 / 128, 1 / 16  # ridges of axes that are rescaled, as parts of the scatter's trace
JUDGED = 1 / 256  # the ridge by which strong rescaling is judged: twice as strong, to be safe
MATES = 3
NUISANCE = 0.15  # rank gain from which on a nuisance dominates
NUISANCE_SIZES = (32, 64)  # between these dimensions it grows with the square root to that value
NEAR_BEST = 0.9  # there, the strongest whitening with this part of the best rank gain
REFERENCE = 1.0  # shrinkage by which the mates are found that judge turned axes
RESCALING = 0.04  # rank gain that strong rescaling has to bring
MAX_ROWS = 3000  # rows looked at: half make the scatter of the evidence, half test it
MIN_ROWS, MIN_AXES = 100, 8  # with less there is nothing to estimate: plain PCA
QUERIES = 500
REPEATS = 2
FINAL_ROWS = 6000  # make the scatter that is used; 3,000 cost CUB 1.1 points of Recall@1 at 64
MILD_ROWS = 3000  # are enough for mild rescaling
FINAL_REPEATS = 3  # every two axes are then measured together
STEPS = 2 * (2 * REPEATS + REPEATS + FINAL_REPEATS)  # two rounds, the evidence, the last round


@dataclass(frozen=True)
class RankGains:
    """Decrease of log(1 + rank) of mates compared with PCA, per query."""

    turned: Array
    """(n_shrinkages, n_queries); the mates are the nearest by the other half of the axes, whitened:
    where a nuisance dominates, the nearest by the axes as they are share the nuisance."""
    rescaled: Array
    """(2, n_queries), by the ridges `JUDGED` and `MILD`; the mates are the nearest by the other
    half as it is."""


@single_blas_thread()
def neighbor_scatter(
    data: Coordinates, rng: np.random.Generator, step: Callable[[], None] = silent
) -> tuple[Array, ScatterChoice]:
    """The scatter within cross-fitted neighborhoods, and how it is used.

    `step` is called `STEPS` times.
    """
    n, q = data.W.shape
    if q < MIN_AXES:
        reason = f"only {counted(q, 'axis', 'axes')}, too few to be halved"
        return np.eye(q), ScatterChoice("none", np.inf, {}, reason)
    if n < MIN_ROWS:
        reason = f"only {counted(n, 'row')}, too few to tell"
        return np.eye(q), ScatterChoice("none", np.inf, {}, reason, trains=False)
    gains, teacher = rank_gains(data, rng, step)
    choice, _ = choose(gains, data.n_components)
    rows = data.subset(rng.permutation(n)[: MILD_ROWS if choice.ridge == MILD else FINAL_ROWS])
    correlation = taught_correlation(rows, teacher, FINAL_REPEATS, rng, step)
    return scatter_of(correlation, data.deviations), choice


@single_blas_thread()
def chosen_rank_gain(data: Coordinates, rng: np.random.Generator) -> Interval:
    """The rank gain by which a fit would judge its choice."""
    if min(data.W.shape[0] - MIN_ROWS, data.W.shape[1] - MIN_AXES) < 0:
        return Interval(0.0, 0.0, 0.0)
    return mean_interval(choose(rank_gains(data, rng)[0], data.n_components)[1])


def choose(gains: RankGains, n_components: int) -> tuple[ScatterChoice, Array]:
    """The choice, and the rank gain per query by which it was judged.

    Where a nuisance dominates, it is the strongest whitening whose gain is near the best.
    """
    turned = gains.turned.mean(axis=1)
    fewest, most = NUISANCE_SIZES
    nuisance = NUISANCE * (min(max(n_components, fewest), most) / most) ** 0.5
    if turned.max() > nuisance:
        best = _said(gains.turned[turned.argmax()])
        reason = f"a nuisance dominates the strongest axes (rank gain {best}, above {nuisance:.2f})"
        i = int((turned >= NEAR_BEST * turned.max()).argmax())
        evidence = dict(zip(SHRINKAGES, turned.tolist(), strict=True))
        return ScatterChoice("neighbors", SHRINKAGES[i], evidence, reason), gains.turned[i]
    is_mild = gains.rescaled[0].mean() <= RESCALING
    choice = ScatterChoice(
        "neighbors",
        np.inf,
        dict(zip((JUDGED, MILD), gains.rescaled.mean(axis=1).tolist(), strict=True)),
        f"with a ridge of 1/{1 / JUDGED:.0f} the rank gain over PCA is {_said(gains.rescaled[0])}, "
        f"{RESCALING} needed",
        trains=False,
        ridge=MILD if is_mild else STRONG,
    )
    return choice, gains.rescaled[int(is_mild)]


def _said(per_query: Array) -> str:
    gain = mean_interval(per_query)
    return f"{gain.value:.3f}, 95% interval {gain.low:.3f} to {gain.high:.3f}"


def rank_gains(
    data: Coordinates, rng: np.random.Generator, step: Callable[[], None] = silent
) -> tuple[RankGains, Array]:
    """What half of the rows say about a scatter that the other half made; its correlation."""
    order = rng.permutation(len(data.W))[:MAX_ROWS]
    made, tested = (data.subset(part) for part in np.array_split(order, 2))
    correlation = cross_fitted_correlation(made, REPEATS, rng, step)
    scatter = scatter_of(correlation, data.deviations)
    queries = np.arange(min(QUERIES, len(tested.W)))
    turned = np.zeros((len(SHRINKAGES), len(queries)))
    rescaled = np.zeros((2, len(queries)))
    for _ in range(REPEATS):
        half = random_halves(data.W.shape[1], rng)
        size = max(1, min(data.n_components, int(min(half.sum(), (~half).sum())) // 2))
        for seen, other in ((half, ~half), (~half, half)):
            plain = _principal(tested, seen)[:, :size]
            mates = _nearest(_principal(tested, other), queries)
            ridge = REFERENCE * np.trace(scatter) / data.n_components
            white = _nearest(tested.whitened(scatter, other, ridge), queries)
            before = _log_ranks(plain, queries, np.hstack([mates, white]))
            for i, ridge in enumerate((JUDGED, MILD)):
                rows = _rescaled(plain, scatter[np.ix_(seen, seen)], ridge * np.trace(scatter))
                rescaled[i] += (before[:, :MATES] - _log_ranks(rows, queries, mates)).mean(axis=1)
            for i, shrinkage in enumerate(SHRINKAGES):
                rows = _turned(tested, scatter, seen, shrinkage, size)
                turned[i] += (before[:, MATES:] - _log_ranks(rows, queries, white)).mean(axis=1)
            step()
    views = 2 * REPEATS
    return RankGains(turned / views, rescaled / views), correlation


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
    return np.asarray(_log_ranks(rows, queries, mates).mean(axis=1))


def _log_ranks(rows: Array, queries: Index, mates: Index) -> Array:
    """log(1 + rank) of each query's mates among all rows."""
    similarity = _similarities(rows, queries)
    ranks = np.empty(mates.shape, np.intp)
    kernels.count_higher(similarity, mates, ranks)
    return np.asarray(np.log1p(ranks))
