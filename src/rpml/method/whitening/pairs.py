"""Rows that probably belong together: one session, one document, neighboring frames, co-clicks.

Ours, not the paper's. Pairs from outside are worth more than nearer neighbors, even if a good part
of them is wrong, as long as that part is known. In whitened coordinates a random row has no
correlation with another, so wrong pairs only dilute the correlation C across correct ones: over all
pairs it is p C, where p is the rate of correct pairs, and dividing by p undoes it.

p is estimated from the rows. Hardly any right pair is as far apart as most random rows are, so what
is found there must be wrong pairs: p is one minus their number, as a share of what random pairs
would give. Where classes overlap that is too low, which does little harm: the scatter is cut off
where it would lose rank.
"""

from dataclasses import replace

import numpy as np
from scipy import linalg

from rpml.method.whitening import constants as const
from rpml.method.whitening.evidence import PairEvidence, gain_text
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Estimate,
    Index,
    mean_log_ranks,
    scatter_of,
)
from rpml.runtime.intervals import mean_interval
from rpml.runtime.rows import Array, unit_rows
from rpml.runtime.threads import single_blas_thread, transposed_times
from rpml.runtime.wording import counted


def with_paired(rows: Index, pairs: Index, n: int, rng: np.random.Generator) -> Index:
    """A sample of the n rows with the rows of many pairs added."""
    if len(rows) == n:
        return rows
    return np.union1d(rows, rng.permutation(pairs)[: const.SCATTER_ROWS // 4])


def pairs_within(pairs: Index, rows: Index, n: int) -> Index:
    """The pairs among some of the n rows, by their positions there."""
    position = np.full(n, -1, np.intp)
    position[rows] = np.arange(len(rows))
    moved = position[pairs]
    return moved[(moved >= 0).all(axis=1)]


@single_blas_thread()
def pair_scatter(
    data: Coordinates, pairs: Index, prior: Estimate, rng: np.random.Generator
) -> Estimate:
    """The scatter that the rows give without pairs, refined by pairs that are clearly of use.

    `pairs` are positions among the sampled rows, `prior` is what these give without pairs.
    `choice.pairs` of the result has the rate of correct pairs, and why they were used or ignored.
    """
    scatter, choice = prior

    def ignored(rate: float, reason: str) -> Estimate:
        return scatter, replace(choice, pairs=PairEvidence(rate, False, reason))

    if choice.source == "none":
        return ignored(0.0, choice.reason)
    if len(pairs) < const.MIN_PAIRS:
        return ignored(0.0, f"{counted(len(pairs), 'pair is', 'pairs are')} too few to tell")
    folds = np.array_split(rng.permutation(pairs), 2)
    rate = right_rate(data, folds, scatter, rng)
    if rate < const.MIN_PAIR_RATE:
        return ignored(rate, "they are no closer than random rows")
    shrinkage = _best_shrinkage(data, pairs, rate, scatter, rng)
    usual, falls = data.embed_by(*prior), []
    for made, tested in (folds, folds[::-1]):
        refined = _embed(data, refined_scatter(data, made, rate, scatter), shrinkage)
        asked = tested[: const.PAIR_QUERIES]
        falls.append(_log_ranks(usual, asked) - _log_ranks(refined, asked))
    fall = np.concatenate(falls) / rate  # wrong pairs rank alike by both
    gain, needed = mean_interval(fall), const.PAIR_CLEAR * float(fall.std() / np.sqrt(len(fall)))
    measured = f"rank gain of held-out pairs {gain_text(gain)}, {needed:.3f} needed"
    if gain.value <= needed:
        return ignored(rate, measured)
    used = PairEvidence(rate, True, measured)
    choice = replace(choice.refined_by("pairs"), shrinkage=shrinkage, pairs=used)
    return refined_scatter(data, pairs, rate, scatter), choice


def right_rate(
    data: Coordinates, folds: list[Index], prior: Array, rng: np.random.Generator
) -> float:
    """Share of correct pairs, from below: how many fewer of them are far apart than random rows.

    Similarities are those after whitening by the scatter that the other fold's pairs refine.
    """
    n = len(data.W)
    first = rng.integers(0, n, const.RANDOM_PAIRS)
    random = np.stack([first, (first + rng.integers(1, n, const.RANDOM_PAIRS)) % n], axis=1)
    rates = []
    for made, tested in (folds, folds[::-1]):
        rows = _embed(data, refined_scatter(data, made, 1.0, prior), const.PAIR_RATE_SHRINKAGE)
        far = np.quantile(_similarity(rows, random), const.PAIR_QUANTILES)
        share = (_similarity(rows, tested)[:, None] <= far).mean(axis=0)
        error = np.sqrt(const.PAIR_QUANTILES * (1 - const.PAIR_QUANTILES) / len(tested))
        rates.append(1 - ((share + error) / const.PAIR_QUANTILES).min())
    return float(np.clip(np.mean(rates), 0.0, 1.0))


def refined_scatter(data: Coordinates, pairs: Index, rate: float, prior: Array) -> Array:
    """D (I - C) D, where C blends the correlation across correct pairs with that of the prior.

    The variance of the former falls with rate^2 times the number of pairs; the more there are,
    the less the prior counts. C is cut off where the scatter would lose rank.
    """
    correlation = np.eye(len(prior)) - prior / np.outer(data.deviations, data.deviations)
    top = max(const.KAPPA, float(linalg.eigvalsh(correlation)[-1]))
    weight = len(pairs) * rate**2 / (len(pairs) * rate**2 + const.PRIOR_PAIRS)
    blended = weight / rate * pair_correlation(data.W, pairs) + (1 - weight) * correlation
    values, axes = linalg.eigh(blended)
    return scatter_of((axes * np.minimum(values, top)) @ axes.T, data.deviations)


def pair_correlation(W: Array, pairs: Index) -> Array:
    """Symmetric correlation of the columns of W across the pairs."""
    A, B = W[pairs[:, 0]], W[pairs[:, 1]]
    both = np.concatenate([A, B])
    mean, scale = both.mean(axis=0), np.maximum(both.std(axis=0), 1e-6)
    across = transposed_times((A - mean) / scale, (B - mean) / scale) / len(pairs)
    return np.asarray((across + across.T) / 2, np.float64)


def _best_shrinkage(
    data: Coordinates, pairs: Index, rate: float, prior: Array, rng: np.random.Generator
) -> float:
    """The shrinkage by which a third of the rows rank each other's pairs best.

    Pairs of the other rows make the scatter: a row with pairs on both sides would favor a whitening
    that is too strong for rows of new classes. Where pairs are many, all of them support a stronger
    one than these, and the strongest that is nearly as good is taken.
    """
    tried = (np.inf, *const.PAIR_SHRINKAGES)  # PCA first
    third, total = rng.integers(0, 3, len(data.W)), np.zeros(len(tried))
    for i in range(3):
        made = pairs[(third[pairs] != i).all(axis=1)]
        tested = pairs_within(pairs, np.flatnonzero(third == i), len(third))[: const.PAIR_QUERIES]
        if len(made) > 0:
            refined, rows = refined_scatter(data, made, rate, prior), data.subset(third == i)
            for j, shrinkage in enumerate(tried):
                total[j] += _log_ranks(_embed(rows, refined, shrinkage), tested).sum()
    gains = total[0] - total[1:]
    best = int(gains.argmax())
    if len(pairs) >= const.PAIR_MANY and gains[best] > 0:
        best = int(np.flatnonzero(gains >= const.PAIR_NEAR_BEST * gains[best])[-1])
    return const.PAIR_SHRINKAGES[best]


def _log_ranks(rows: Array, pairs: Index) -> Array:
    return mean_log_ranks(rows, pairs[:, 0], pairs[:, 1:])


def _embed(data: Coordinates, scatter: Array, shrinkage: float) -> Array:
    return unit_rows(data.embed(scatter, data.every, shrinkage, data.n_components))


def _similarity(rows: Array, pairs: Index) -> Array:
    return np.asarray(np.einsum("ij,ij->i", rows[pairs[:, 0]], rows[pairs[:, 1]]))
