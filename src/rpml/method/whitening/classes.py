"""What a few labels say: the scatter within classes, and which rows share a class.

Ours, not the paper's. An orthonormal L cannot rescale directions, so most of what labels teach has
to enter before it: rows are whitened by the scatter *within known classes*, blended with the one
the unlabeled rows give once each is counted to its nearest known class. With all labels that is
discriminant analysis; with none nothing changes.

Counted to a class by the directions that are then measured, rows would look close along them
whatever the truth. So the principal axes are split in two as in `neighborhoods`: one half names the
class, the other is measured.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening import constants as const
from rpml.method.whitening.evidence import ScatterChoice, gain_text
from rpml.method.whitening.groups import drop_singles, within_scatter
from rpml.method.whitening.neighborhoods import (
    Coordinates,
    Estimate,
    columns,
    random_halves,
    similarities,
)
from rpml.runtime.errors import counted
from rpml.runtime.intervals import mean_interval
from rpml.runtime.rows import Array, Indices, Labels, unit_rows
from rpml.runtime.threads import single_blas_thread, transposed_times


def count_pairs(labels: Labels) -> int:
    """Degrees of freedom of the scatter within classes: labeled rows minus classes."""
    sizes = np.bincount(labels[labels >= 0])
    return int(np.maximum(sizes - 1, 0).sum())


def with_labeled(rows: Indices, labels: Labels, rng: np.random.Generator) -> Indices:
    """A sample of rows with (many) labeled ones added: they are few and say most."""
    labeled, limit = np.flatnonzero(labels >= 0), const.SCATTER_ROWS
    return np.union1d(rows, rng.permutation(labeled)[: max(limit // 2, limit - len(rows))])


@single_blas_thread()
def label_scatter(
    data: Coordinates, labels: Labels, prior: Estimate, rng: np.random.Generator
) -> Estimate:
    """The scatter within classes, smoothed so that it works for classes not seen.

    `labels` are those of the sampled rows, -1 where unknown, and `prior` is what these give without
    labels, on the leading axes. It is returned unless held-out labeled rows are nearer to their
    class by the scatter; `choice.evidence` has their rank gain per shrinkage.
    """
    scatter, choice = prior
    n_pairs, n_classes = count_pairs(labels), drop_singles(labels).max() + 1
    if n_pairs < const.MIN_LABELED_PAIRS or n_classes < const.MIN_CLASSES:
        few = f"{counted(n_pairs, 'pair')} in {counted(n_classes, 'class', 'classes')}"
        return scatter, replace(choice, labels_ignored=f"{few} are too few to tell")
    most = max(choice.shrinkage, const.LABEL_SHRINKAGES[0])  # labels are to tell more, not less
    shrinkages = [tried for tried in const.LABEL_SHRINKAGES if tried <= most]
    gains = held_out_gains(data, labels, prior, shrinkages, rng)
    mean = gains.mean(axis=1)
    best = int(mean.argmax())
    gain = mean_interval(gains[best])
    measured = f"the rank gain of held-out labeled rows is {gain_text(gain)}"
    if gain.low <= 0:
        return scatter, replace(choice, labels_ignored=measured)
    by_labels = replace(
        choice.refined_by("labels"),
        shrinkage=shrinkages[best],
        evidence=dict(zip(shrinkages, mean.tolist(), strict=True)),
        reason=measured,
    )
    return class_scatter(data, labels, prior, rng), by_labels


def held_out_gains(
    data: Coordinates,
    labels: Labels,
    prior: Estimate,
    shrinkages: Sequence[float],
    rng: np.random.Generator,
) -> Array:
    """(n_shrinkages, n): how much nearer to its class other rows' labels bring each labeled row.

    The decrease of log(1 + rank) of the nearest row of its class among the labeled rows, compared
    with the map that is chosen without labels. A part of the rows is held out at a time.
    """
    sample = _judged(labels, rng)
    data = data.leading(max(const.LEADING_AXES, len(prior[0]))).subset(sample)
    labels = labels[sample]
    asked = rng.permutation(np.flatnonzero(drop_singles(labels) >= 0))
    asked = asked[np.argsort(labels[asked], kind="stable")]  # a class is dealt to many folds
    without = _log_ranks(data.leading(len(prior[0])).embed_by(*prior), labels, asked)
    gains = np.empty((len(shrinkages), len(asked)))
    for i in range(const.LABEL_FOLDS):
        fold = slice(i, None, const.LABEL_FOLDS)
        known = labels.copy()
        known[asked[fold]] = -1
        scatter = class_scatter(data, known, prior, rng)
        spread = label_spread(data, known, scatter)
        for gain, shrinkage in zip(gains, shrinkages, strict=True):
            choice = replace(prior[1], shrinkage=shrinkage, ridge=np.inf)
            rows = data.embed_by(scatter, choice, spread)
            gain[fold] = without[fold] - _log_ranks(rows, labels, asked[fold])
    return gains


def _judged(labels: Labels, rng: np.random.Generator) -> Indices:
    """Rows that judge labels: at most half of them labeled, and classes stay together."""
    order, limit = rng.permutation(len(labels)), const.JUDGED_ROWS
    labeled = order[labels[order] >= 0]
    labeled = labeled[np.argsort(labels[labeled], kind="stable")]
    _, start, member = np.unique(labels[labeled], return_index=True, return_inverse=True)
    chunk = (np.arange(len(labeled)) - start[member]) // const.LABEL_CHUNK
    labeled = labeled[np.lexsort((rng.permutation(len(start))[member], chunk))][: limit // 2]
    others = order[labels[order] < 0][: limit - len(labeled)]
    return np.sort(np.concatenate([labeled, others]))


def _log_ranks(rows: Array, classes: Labels, queries: Indices) -> Array:
    """log(1 + how many labeled rows of other classes are nearer to a query than any of its own)."""
    labeled = np.flatnonzero(classes >= 0)
    similarity = similarities(rows[labeled], np.searchsorted(labeled, queries))
    own = classes[queries, None] == classes[labeled]
    nearest = np.where(own, similarity, -2).max(axis=1)
    return np.asarray(np.log1p(((similarity > nearest[:, None]) & ~own).sum(axis=1)))


@single_blas_thread()
def class_scatter(
    data: Coordinates, labels: Labels, prior: Estimate, rng: np.random.Generator
) -> Array:
    """The scatter within labeled classes, blended with that of all rows counted to a class."""
    paired = drop_singles(labels)
    first = _blend(data, paired, padded(data, *prior))
    shrinkage = min(prior[1].shrinkage, 1.0)
    return _blend(data, paired, _spread_scatter(data, first, shrinkage, labels, rng))


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
    return (pairs * within_scatter(data, groups) + weight * prior) / (pairs + weight)


def _spread_scatter(
    data: Coordinates, scatter: Array, shrinkage: float, labels: Labels, rng: np.random.Generator
) -> Array:
    """The cross-fitted scatter within classes of all rows, each counted to the nearest class."""
    q = data.W.shape[1]
    total, count = np.zeros((q, q)), np.zeros((q, q))
    for _ in range(const.JUDGED_REPEATS):
        half = random_halves(q, rng)
        for seen in (half, ~half):
            named = nearest_class(data.embed(scatter, seen, shrinkage, data.n_components), labels)
            measured = np.ix_(~seen, ~seen)
            count[measured] += 1
            total[measured] += _class_correlation(columns(data.W, ~seen), named)
    correlation = total / np.maximum(count, 1)
    # I - kappa C stays positive definite; wrong members only shrink C
    top = max(float(np.linalg.eigvalsh(correlation)[-1]), const.LABEL_KAPPA / 2)
    within = np.eye(q) - const.LABEL_KAPPA / top * correlation
    return within * np.outer(data.deviations, data.deviations)


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
    B = B - B.mean(axis=0)
    sums = np.zeros((g.max() + 1, B.shape[1]), B.dtype)
    np.add.at(sums, g, B)
    weight = (1 / (np.bincount(g) - 1)).astype(B.dtype)
    across = transposed_times(sums, sums * weight[:, None])
    across -= transposed_times(B, B * weight[g][:, None])
    scale = np.sqrt(np.maximum(np.einsum("ij,ij->j", B, B), 1e-9))
    return np.asarray(across / np.outer(scale, scale), np.float64)
