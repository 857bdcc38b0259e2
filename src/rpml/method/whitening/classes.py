"""What a few labels say: the scatter within classes, and which rows share a class.

Ours, not the paper's. An orthonormal L cannot rescale directions, so most of what labels teach has
to enter before it: rows are whitened by the scatter *within known classes*, blended with the one
the unlabeled rows give once each is counted to its nearest known class. With all labels that is
discriminant analysis; with none nothing changes.

Counted to a class by the directions that are then measured, rows would look close along them
whatever the truth. So the principal axes are split in two as in `neighborhoods`: one half names the
class, the other is measured.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening import constants as const
from rpml.method.whitening.groups import drop_singles, within_scatter
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Estimate,
    Index,
    random_halves,
    similarities,
)
from rpml.method.whitening.scatter_choice import ScatterChoice, gain_text
from rpml.runtime.intervals import mean_interval
from rpml.runtime.rows import Array, Labels, unit_rows
from rpml.runtime.threads import single_blas_thread, transposed_times


def count_pairs(labels: Labels) -> int:
    """Degrees of freedom of the scatter within classes: labeled rows minus classes."""
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    return int(np.maximum(sizes - 1, 0).sum())


def with_labeled(rows: Index, labels: Labels, rng: np.random.Generator) -> Index:
    """A sample of rows with (many) labeled ones added: they are few and say most."""
    labeled, limit = np.flatnonzero(labels >= 0), const.SCATTER_ROWS
    return np.union1d(rows, rng.permutation(labeled)[: max(limit // 2, limit - len(rows))])


@single_blas_thread()
def label_scatter(
    data: Coordinates, labels: Labels, prior: Estimate, rng: np.random.Generator
) -> Estimate:
    """The scatter within classes, smoothed so that it works for classes not seen.

    `labels` are those of the sampled rows, -1 where unknown, and `prior` is what these give without
    labels, on the leading axes. `choice.evidence` of the result has, per shrinkage, the mean
    reciprocal rank of the nearest row of its class, among labeled rows of classes that had no part
    in the scatter. The prior itself is returned if held-out labeled rows are clearly nearer to
    their class by it, or if there are too few labels.
    """
    paired = drop_singles(labels)
    if count_pairs(paired) < const.MIN_LABELED_PAIRS or paired.max() + 1 < const.MIN_CLASSES:
        return prior
    first, strength = _blend(data, paired, padded(data, *prior)), _finite(prior[1].shrinkage)
    fold = rng.integers(0, 2, labels.max() + 1)
    fold[np.unique(labels[paired >= 0])[:2]] = (0, 1)  # no fold is empty
    parts = np.stack([fold >= 0, fold == 0, fold == 1])
    spread, *halves = _spread_scatters(data, first, strength, labels, parts, rng)
    most = max(prior[1].shrinkage, const.LABEL_SHRINKAGES[0])
    shrinkages = np.array(const.LABEL_SHRINKAGES)
    shrinkages = shrinkages[np.isfinite(shrinkages) | np.isinf(most)]
    held_out = _held_out(data, paired, labels, fold, halves, shrinkages)
    # chosen with half of the classes
    shrinkage = shrinkages[choose_shrinkage(held_out, shrinkages <= most)] / 2
    scores = dict(zip(shrinkages.tolist(), _mean_score(held_out).tolist(), strict=True))
    choice = replace(
        prior[1].refined_by("labels"),
        shrinkage=float(shrinkage),
        evidence=scores,
        reason="",
        trains=True,
    )
    scatter = _blend(data, paired, spread)
    if not choice.whitens and not prior[1].whitens:  # PCA either way
        return scatter, choice
    gains = held_out_gains(data, labels, prior, choice, rng)
    gain = max((mean_interval(one) for one in gains), key=lambda one: one.high)
    if gain.high < 0:
        away = "they take held-out labeled rows away from their class"
        reason = f"{away}: rank gain {gain_text(gain)}"
        return prior[0], replace(prior[1], labels_ignored=reason)
    reason = f"the rank gain of held-out labeled rows is {gain_text(gain)}"
    return scatter, replace(choice, reason=reason)


def _finite(shrinkage: float) -> float:
    return shrinkage if np.isfinite(shrinkage) else 1.0


def held_out_gains(
    data: Coordinates,
    labels: Labels,
    prior: Estimate,
    choice: ScatterChoice,
    rng: np.random.Generator,
) -> Array:
    """(2, n): per labeled row, how much nearer to its class the labels of other rows bring it.

    The decrease of log(1 + rank) of the nearest row of its class, compared with the map that is
    chosen without labels: among the labeled rows, which the labels pull about, and among all rows,
    of which some are of its class unknown to us. Labels that both find worse are worse. A tenth of
    the rows is held out at a time: half of the labels would have a quarter of the pairs.
    """
    sample = _judged(labels, rng)
    data = data.leading(max(const.LEADING_AXES, len(prior[0]))).subset(sample)
    labels, strength = labels[sample], _finite(prior[1].shrinkage)
    asked = rng.permutation(np.flatnonzero(drop_singles(labels) >= 0))
    asked = asked[np.argsort(labels[asked], kind="stable")]  # a class is dealt to many folds
    without = _log_ranks(data.leading(len(prior[0])).embed_by(*prior), labels, asked)
    ranks, every = np.empty_like(without), np.ones((1, labels.max() + 1), bool)
    for i in range(min(const.LABEL_FOLDS, len(asked))):
        held_out, known = asked[i :: const.LABEL_FOLDS], labels.copy()
        known[held_out] = -1
        paired = drop_singles(known)
        first = _blend(data, paired, padded(data, *prior))
        (spread,) = _spread_scatters(data, first, strength, known, every, rng)
        scatter = _blend(data, paired, spread)
        rows = data.embed_by(scatter, choice, label_spread(data, known, scatter))
        ranks[:, i :: const.LABEL_FOLDS] = _log_ranks(rows, labels, held_out)
    return without - ranks


def _judged(labels: Labels, rng: np.random.Generator) -> Index:
    """Rows that judge labels: at most half of them labeled, and classes stay together."""
    order, limit = rng.permutation(len(labels)), const.JUDGED_ROWS
    labeled = order[labels[order] >= 0]
    labeled = labeled[np.argsort(labels[labeled], kind="stable")]
    _, start, member = np.unique(labels[labeled], return_index=True, return_inverse=True)
    chunk = (np.arange(len(labeled)) - start[member]) // const.LABEL_CHUNK
    labeled = labeled[np.lexsort((rng.permutation(len(start))[member], chunk))][: limit // 2]
    others = order[labels[order] < 0][: limit - len(labeled)]
    return np.sort(np.concatenate([labeled, others]))


def _log_ranks(rows: Array, classes: Labels, queries: Index) -> Array:
    """(2, n): log(1 + rank) of the nearest row of a query's class, among labeled and all rows."""
    known = np.flatnonzero(classes >= 0)
    among = _rows_before(rows[known], classes[known], np.searchsorted(known, queries))
    return np.log1p([among, _rows_before(rows, classes, queries)])


def choose_shrinkage(scores: list[Array], usual: NDArray[np.bool_]) -> int:
    """Which shrinkage has the best score; one that is not usual only if it is clearly ahead.

    Few labels are noisy evidence for more smoothing than the rows themselves ask for: it takes a
    lead of `LABEL_CLEAR` standard errors. `scores` has, for either fold, a row per shrinkage and a
    column per query.
    """
    mean = _mean_score(scores)
    best, safe = int(mean.argmax()), int(np.where(usual, mean, -np.inf).argmax())
    leads = [fold[best] - fold[safe] for fold in scores]
    error = np.sqrt(sum(lead.var() / len(lead) for lead in leads)) / len(leads)
    return best if mean[best] - mean[safe] > const.LABEL_CLEAR * error else safe


def _mean_score(scores: list[Array]) -> Array:
    """Per shrinkage; either fold counts as much as the other."""
    return np.asarray(np.mean([fold.mean(axis=1) for fold in scores], axis=0))


@single_blas_thread()
def label_spread(data: Coordinates, labels: Labels, scatter: Array) -> Array:
    """By what axes are ranked where labels chose the scatter: between classes, and half of within.

    The spread of all rows would not do. Where the labeled rows happen to lie close to others of
    their class, the other rows do not, and whitening would make such axes look the best. So the
    spread is that of the labeled rows, blended as their scatter is.
    """
    paired = drop_singles(labels)
    together = np.where(paired >= 0, 0, -1)
    total = _blend(data, together, np.diag(data.deviations**2), count_pairs(paired))
    return np.asarray(total - scatter / 2)


def padded(data: Coordinates, scatter: Array, choice: ScatterChoice) -> Array:
    """The prior on all axes: the rows' own variances where it knows nothing."""
    out = np.diag(data.deviations**2)
    if choice.source != "none":
        out[: len(scatter), : len(scatter)] = scatter
    return out


def _blend(data: Coordinates, groups: Labels, prior: Array, pairs: int | None = None) -> Array:
    """The scatter within groups and the prior, which weighs as much as `PRIOR_PAIRS` pairs."""
    pairs, weight = count_pairs(groups) if pairs is None else pairs, const.PRIOR_PAIRS
    if pairs == 0:
        return prior
    return (pairs * within_scatter(data, groups) + weight * prior) / (pairs + weight)


def _spread_scatters(
    data: Coordinates,
    scatter: Array,
    shrinkage: float,
    labels: Labels,
    parts: NDArray[np.bool_],
    rng: np.random.Generator,
) -> list[Array]:
    """Per part of the classes, the cross-fitted scatter within them of all rows."""
    q = data.W.shape[1]
    total, count = np.zeros((len(parts), q, q)), np.zeros((q, q))
    for _ in range(const.JUDGED_REPEATS):
        half = random_halves(q, rng)
        for seen in (half, ~half):
            named = nearest_class(data.embed(scatter, seen, shrinkage, data.n_components), labels)
            measured = np.ix_(~seen, ~seen)
            count[measured] += 1
            for i, members in enumerate(parts[:, named]):
                total[i][measured] += _class_correlation(
                    data.W[np.ix_(members, ~seen)], named[members]
                )
    scale = np.outer(data.deviations, data.deviations)
    return [_within_from(one / np.maximum(count, 1)) * scale for one in total]


def nearest_class(rows: Array, labels: Labels) -> Labels:
    """Known classes, and for the other rows the class whose mean direction is nearest."""
    rows = unit_rows(rows)
    classes, member = np.unique(labels[labels >= 0], return_inverse=True)
    means = np.zeros((len(classes), rows.shape[1]), rows.dtype)
    np.add.at(means, member, rows[labels >= 0])
    out = labels.copy()
    unknown = np.flatnonzero(labels < 0)
    out[unknown] = classes[nearest_rows(rows[unknown], unit_rows(means))[1][:, 0]]
    return out


def _class_correlation(B: Array, named: Labels) -> Array:
    """Correlation of the columns of B between a row and the mean of the others of its class."""
    paired = drop_singles(named)
    B, g = B[paired >= 0], paired[paired >= 0]
    if len(B) == 0:
        return np.zeros((B.shape[1], B.shape[1]))
    B = B - B.mean(axis=0)
    sums = np.zeros((g.max() + 1, B.shape[1]), B.dtype)
    np.add.at(sums, g, B)
    weight = (1 / (np.bincount(g) - 1)).astype(B.dtype)
    across = transposed_times(sums, sums * weight[:, None])
    across -= transposed_times(B, B * weight[g][:, None])
    scale = np.sqrt(np.maximum(np.einsum("ij,ij->j", B, B), 1e-9))
    return np.asarray(across / np.outer(scale, scale), np.float64)


def _within_from(correlation: Array) -> Array:
    """I - kappa C, kappa such that it stays positive definite: wrong members only shrink C."""
    top = max(float(np.linalg.eigvalsh(correlation)[-1]), const.LABEL_KAPPA / 2)
    return np.asarray(np.eye(len(correlation)) - const.LABEL_KAPPA / top * correlation)


def _held_out(
    data: Coordinates,
    paired: Labels,
    labels: Labels,
    fold: NDArray[np.integer],
    halves: list[Array],
    shrinkages: Array,
) -> list[Array]:
    """Per fold, shrinkage and row: 1 / (1 + rank) of its class by the other fold's scatter."""
    leading = data.leading(const.LEADING_AXES)
    q = len(leading.deviations)
    side = np.where(paired >= 0, fold[labels], -1)
    scores: list[Array] = []
    for seen in (0, 1):
        learned = np.where(side == seen, paired, -1)
        scatter = _blend(leading, learned, halves[seen][:q, :q])
        asked = side == 1 - seen
        tested, classes = leading.subset(asked), paired[asked]
        queries = np.arange(len(classes))[:: 1 + len(classes) // const.LABEL_QUERIES]
        ranks = [
            _rows_before(
                tested.embed(scatter, tested.every, shrinkage, data.n_components), classes, queries
            )
            for shrinkage in shrinkages
        ]
        scores.append(1 / (1 + np.array(ranks)))
    return scores


def _rows_before(rows: Array, classes: Labels, queries: Index) -> Labels:
    """How many rows of other classes are nearer to a query than any of its own class."""
    similarity = similarities(rows, queries)
    own = classes[queries, None] == classes[None, :]
    nearest = np.where(own, similarity, -2).max(axis=1)
    return np.asarray(((similarity > nearest[:, None]) & ~own).sum(axis=1))
