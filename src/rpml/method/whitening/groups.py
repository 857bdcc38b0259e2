"""Rows that belong together: groups, which show one instance, and pairs, which may be wrong.

Ours, not the paper's. Groups (views, frames, photographs of one listing) are the free supervision
that neighbors cannot give: they say how one instance varies. They are used three times: their
scatter whitens, they are clustered as one point each, and their pairs are positives of triplets.

Pairs from outside (one session, one document, co-clicks) are worth more than nearer neighbors, even
if a good part of them is wrong, as long as that part is known. In whitened coordinates a random row
has no correlation with another, so wrong pairs only dilute the correlation C across correct ones:
over all pairs it is p C, where p is the rate of correct pairs, and dividing by p undoes it.

p is estimated from the rows. Hardly any right pair is as far apart as most random rows are, so what
is found there must be wrong pairs: p is one minus their number, as a share of what random pairs
would give. Where classes overlap that is too low, which does little harm: the scatter is cut off
where it would lose rank.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import linalg, sparse

from rpml.method.graph.heaps import nearest_others
from rpml.method.whitening import constants as const
from rpml.method.whitening.evidence import PairEvidence, ScatterChoice, gain_text
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Estimate,
    cross_fitted_correlation,
    mean_log_ranks,
    random_halves,
    scatter_of,
)
from rpml.runtime.errors import counted
from rpml.runtime.intervals import mean_interval
from rpml.runtime.rows import Array, Indices, unit_rows
from rpml.runtime.threads import single_blas_thread, transposed_times

Groups = Indices


def drop_singles(groups: Groups) -> Groups:
    """Group numbers from 0 in order of appearance, and -1 for rows that are alone in theirs."""
    sizes = np.bincount(groups[groups >= 0]) if (groups >= 0).any() else np.zeros(1, np.intp)
    shared = np.where((groups >= 0) & (sizes[groups] > 1), groups, -1)
    out = np.full(len(groups), -1, np.intp)
    _, first, number = np.unique(shared[shared >= 0], return_index=True, return_inverse=True)
    out[shared >= 0] = np.argsort(np.argsort(first))[number]
    return out


def drop_strangers(data: Coordinates, groups: Groups, rng: np.random.Generator) -> Groups:
    """Without the rows that are no more like the rest of their group than like another group.

    One stranger in twenty rows is enough to drown the scatter within groups in that between them.
    """
    member = np.flatnonzero(groups >= 0)
    g = groups[member]
    rows = unit_rows(data.W[member] * np.sqrt(data.deviations).astype(data.W.dtype))
    sums = np.zeros((g.max() + 1, rows.shape[1]), rows.dtype)
    np.add.at(sums, g, rows)
    other = np.roll(rng.permutation(len(sums)), 1)[g]
    to_other = np.einsum("ij,ij->i", rows, unit_rows(sums[other]))[other != g]
    to_own = np.einsum("ij,ij->i", rows, unit_rows(sums[g] - rows))
    out = groups.copy()
    out[member[to_own < np.quantile(to_other, const.STRANGER)]] = -1
    return drop_singles(out)


@single_blas_thread()
def group_scatter(data: Coordinates, groups: Groups, rng: np.random.Generator) -> Estimate:
    """Covariance within groups, smoothed so that it finds the members of groups it has not seen.

    `groups` are those of the sampled rows. The shrinkage is the middle one of those that find, for
    a row of a held-out group, a member of that group as its nearest neighbor most often.
    The evidence is measured on one row per instance, as that of `neighbor_scatter`, so that the two
    compare. It is empty when members are hardly found more often than by chance.
    """
    first, of_row = representatives(groups)
    trusted = drop_strangers(data, groups, rng)
    scatter: Array = np.zeros((1, 1))
    if trusted.max() + 1 >= const.MIN_GROUPS:
        scatter = within_scatter(data, trusted)
    # too few, or the rows of a group are identical but for rounding
    if np.trace(scatter) <= const.SIGNIFICANT * np.square(data.deviations).sum():
        return np.eye(data.W.shape[1]), ScatterChoice("groups", np.inf, {})

    def estimate(instances: Indices) -> Array:
        rows = np.isin(of_row, instances)
        return within_scatter(data.subset(rows), trusted[rows])

    part = rng.random(len(first)) < 0.5
    other = estimate(np.flatnonzero(part))
    unseen = ~part[of_row] & (groups >= 0)
    tested, members, tried = data.subset(unseen), groups[unseen], const.GROUP_SHRINKAGES
    hits = np.array([_finds_its_group(tested, members, other, shrinkage) for shrinkage in tried])
    plateau = np.array(tried)[hits >= const.GROUP_PLATEAU * hits.max()]
    shrinkage = float(np.exp(np.mean(np.log(plateau))))
    sizes = np.bincount(members)
    chance = (sizes * (sizes - 1)).sum() / (len(members) * (len(members) - 1))
    agreement = {}
    if hits.max() > const.TIMES_CHANCE * chance:
        agreement = cross_agreement(data.subset(first), estimate, tried, rng)
    return scatter, ScatterChoice("groups", shrinkage, agreement)


def within_scatter(data: Coordinates, groups: Groups) -> Array:
    """Covariance of the differences to the group's mean."""
    member = groups >= 0
    W, g = data.W[member], np.unique(groups[member], return_inverse=True)[1]
    sizes = np.bincount(g)
    order = np.argsort(g, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    means = np.add.reduceat(W[order], starts, axis=0) / sizes[:, None].astype(W.dtype)
    rest = W - means[g]
    covariance = np.asarray(rest.T @ rest, np.float64) / (len(W) - len(sizes))
    return covariance * np.outer(data.deviations, data.deviations)


def _finds_its_group(data: Coordinates, groups: Groups, scatter: Array, shrinkage: float) -> float:
    queries = np.arange(len(groups))[:: max(1, len(groups) // const.GROUP_QUERIES)]
    rows = data.embed(scatter, data.every, shrinkage, data.n_components)
    return float(np.mean(groups[nearest_others(rows, queries)[:, 0]] == groups[queries]))


@single_blas_thread()
def groups_help(by_groups: ScatterChoice, data: Coordinates, rng: np.random.Generator) -> bool:
    """Whether the groups' scatter lets the halves of the axes agree no less than neighbors do.

    `data` has one row per instance.
    """

    def estimate(rows: Indices) -> Array:
        correlation = cross_fitted_correlation(data.subset(rows), const.JUDGED_REPEATS, rng)
        return scatter_of(correlation, data.deviations)

    best = max(by_groups.evidence.values(), default=0.0)
    if best == 0.0:
        return False
    return best >= const.GROUP_MARGIN * max(
        cross_agreement(data, estimate, const.GROUP_NEIGHBOR_SHRINKAGES, rng).values()
    )


def cross_agreement(
    data: Coordinates,
    estimate: Callable[[Indices], Array],
    shrinkages: tuple[float, ...],
    rng: np.random.Generator,
) -> dict[float, float]:
    """Split-half agreement per shrinkage, of each half of the rows under the other half's scatter.

    `estimate` gives the scatter that some of the rows make.
    """
    order = rng.permutation(len(data.W))
    halves = (np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :]))
    shares = np.zeros(len(shrinkages))
    for seen, unseen in (halves, halves[::-1]):
        shares += split_half_agreement(data.subset(unseen), estimate(seen), shrinkages, rng) / 2
    return dict(zip(shrinkages, shares.tolist(), strict=True))


def split_half_agreement(
    data: Coordinates, scatter: Array, shrinkages: tuple[float, ...], rng: np.random.Generator
) -> Array:
    """Per shrinkage: share of rows with the same nearest neighbor by either half of the axes."""
    shares = np.zeros(len(shrinkages))
    for _ in range(const.JUDGED_REPEATS):
        half = random_halves(data.W.shape[1], rng)
        size = max(1, min(data.n_components, int(half.sum()) // 2))
        queries = rng.permutation(len(data.W))[: const.GROUP_QUERIES]
        for i, shrinkage in enumerate(shrinkages):
            one, two = (
                nearest_others(data.embed(scatter, seen, shrinkage, size), queries)
                for seen in (half, ~half)
            )
            shares[i] += float(np.mean(one == two)) / const.JUDGED_REPEATS
    return shares


def no_groups(n: int) -> Groups:
    return np.full(n, -1, np.intp)


def representatives(groups: Groups) -> tuple[Indices, Indices]:
    """(the first row of each instance, a group or an ungrouped row; the instance of each row)."""
    instances = np.where(groups >= 0, groups, groups.max() + 1 + np.arange(len(groups)))
    _, first, of_row = np.unique(instances, return_index=True, return_inverse=True)
    return first, of_row


def group_means(Z: Array, of_row: Indices) -> Array:
    sizes = np.bincount(of_row, minlength=1)
    ends = np.ones(len(Z), Z.dtype), (of_row, np.arange(len(Z)))
    sums = sparse.csr_matrix(ends, shape=(len(sizes), len(Z))) @ Z
    return np.asarray(sums / np.maximum(sizes, 1)[:, None].astype(Z.dtype))


def sample_rows(groups: Groups, limit: int, rng: np.random.Generator) -> Indices:
    """At most `limit` rows, whole groups at a time."""
    if len(groups) <= limit:
        return np.arange(len(groups))
    if groups.max() < 0:
        return np.sort(rng.permutation(len(groups))[:limit])
    of_row = representatives(groups)[1]
    sizes = np.bincount(of_row)
    order = rng.permutation(len(sizes))
    retained = order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), limit, "right")))]
    return np.flatnonzero(np.isin(of_row, retained))


def with_paired(rows: Indices, pairs: Indices, n: int, rng: np.random.Generator) -> Indices:
    """A sample of the n rows with the rows of many pairs added."""
    if len(rows) == n:
        return rows
    return np.union1d(rows, rng.permutation(pairs)[: const.SCATTER_ROWS // 4])


def pairs_within(pairs: Indices, rows: Indices, n: int) -> Indices:
    """The pairs among some of the n rows, by their positions there."""
    position = np.full(n, -1, np.intp)
    position[rows] = np.arange(len(rows))
    moved = position[pairs]
    return moved[(moved >= 0).all(axis=1)]


@single_blas_thread()
def pair_scatter(
    data: Coordinates, pairs: Indices, prior: Estimate, rng: np.random.Generator
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
    measured = f"rank gain of held-out pairs {gain_text(gain)}; {needed:.3f} is required"
    if gain.value <= needed:
        return ignored(rate, measured)
    used = PairEvidence(rate, True, measured)
    choice = replace(choice.refined_by("pairs"), shrinkage=shrinkage, pairs=used)
    return refined_scatter(data, pairs, rate, scatter), choice


def right_rate(
    data: Coordinates, folds: list[Indices], prior: Array, rng: np.random.Generator
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


def refined_scatter(data: Coordinates, pairs: Indices, rate: float, prior: Array) -> Array:
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


def pair_correlation(W: Array, pairs: Indices) -> Array:
    """Symmetric correlation of the columns of W across the pairs."""
    A, B = W[pairs[:, 0]], W[pairs[:, 1]]
    both = np.concatenate([A, B])
    mean, scale = both.mean(axis=0), np.maximum(both.std(axis=0), 1e-6)
    across = transposed_times((A - mean) / scale, (B - mean) / scale) / len(pairs)
    return np.asarray((across + across.T) / 2, np.float64)


def _best_shrinkage(
    data: Coordinates, pairs: Indices, rate: float, prior: Array, rng: np.random.Generator
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


def _log_ranks(rows: Array, pairs: Indices) -> Array:
    return mean_log_ranks(rows, pairs[:, 0], pairs[:, 1:])


def _embed(data: Coordinates, scatter: Array, shrinkage: float) -> Array:
    return unit_rows(data.embed(scatter, data.every, shrinkage, data.n_components))


def _similarity(rows: Array, pairs: Indices) -> Array:
    return np.asarray(np.einsum("ij,ij->i", rows[pairs[:, 0]], rows[pairs[:, 1]]))
