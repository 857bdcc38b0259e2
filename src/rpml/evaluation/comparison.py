"""Comparison of RPML with its alternatives: same rows, split and dimension, several seeds.

A cell of a comparison is one method with a dimension and a seed, scored on held-out rows. Per query
it has in `ranks` the number of rows of other classes before the first right one, from which every
Recall@K and every bootstrap follow, and in `overlap` which share of the 10 nearest rows remains.
"""

import itertools
import logging
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.estimator import RPML
from rpml.estimator.knowledge import as_nuisance, as_queries, nuisance_table
from rpml.evaluation.metrics import bounded_scores, first_hit_rank, kmeans_labels
from rpml.evaluation.metrics.label_free import NEAREST, hubness_interval, neighbor_overlap, spectrum
from rpml.evaluation.metrics.retrieval import KS, checked_embedding
from rpml.evaluation.registry import KNOWN, PCA_FAMILY, Method, chosen_methods
from rpml.evaluation.table import Cell, Comparison
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.context import Json
from rpml.runtime.intervals import bounded
from rpml.runtime.rows import Array, slices, unit_rows
from rpml.runtime.threads import times
from rpml.runtime.wording import counted, one_line

logger = logging.getLogger(__name__)
COMPARED_METHODS = ("raw", "random", *PCA_FAMILY, "rpml", "lda", "nca")
DEFAULT_SEEDS = (0, 1, 2)
DEFAULT_DIM = 128


def compare(
    X: ArrayLike,
    y: ArrayLike | None = None,
    n_components: int | Sequence[int] | None = None,
    *,
    train: ArrayLike | None = None,
    methods: Sequence[str | Method] | None = None,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    nuisance: ArrayLike | None = None,
    queries: ArrayLike | None = None,
) -> Comparison:
    """Compare RPML with its alternatives at equal dimension, on held-out rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Vectors.
    y : array-like of shape (n_samples,), default=None
        Classes, used for scores; only the methods marked as upper bounds learn from them.
        Without classes only label-free figures are measured.
    n_components : int or sequence of int, default=None
        Dimensions to compare at; None means 128, or half the features if there are fewer.
    train : bool array of shape (n_samples,), default=None
        Training rows. None selects the first half of the classes in sorted order, and the others
        for the test (no class is in both, as in the paper); without y a random half.
    methods : sequence of str or Method, default=None
        Names of `rpml.evaluation.registry`, or methods of your own; None: the baselines, RPML and
        the upper bounds.
    seeds : sequence of int, default=(0, 1, 2)
        Each method is run once per seed, also deterministic ones, since the k-means that scores
        clusters is random.
    nuisance, queries : array-like, default=None
        As in `RPML.fit`: RPML is then also fitted with them. With y and a nuisance, "recall@1
        across" is the Recall@1 among rows of other values.

    Returns
    -------
    Comparison
        `.frame()` returns a tidy DataFrame; `.markdown()`, `.write(path)` and `print` format it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import rpml
    >>> X, y = load_digits(return_X_y=True)
    >>> result = rpml.compare(X, y, 16, methods=("raw", "pca", "rpml"), seeds=(0,))
    >>> [row["method"] for row in result.rows]
    ['raw', 'pca', 'rpml']
    """
    X = checked_embedding(X, "X")
    if len(X) < 4:
        raise ValueError(f"A comparison needs at least 4 rows, X has {len(X)}.")
    known = fit_knowledge(X, nuisance, queries)
    split = make_split(X, y, train, known)
    chosen = _chosen(methods, labeled=y is not None)
    if known and KNOWN not in (method.name for method in chosen):
        chosen += chosen_methods([KNOWN])
    sizes: Any = [n_components] if np.ndim(n_components) == 0 else n_components  # type: ignore[arg-type]
    dims = [checked_size(size, X.shape[1]) for size in sizes]
    if not dims or not len(seeds):
        raise ValueError("A comparison needs at least one number of components and one seed.")
    cells = []
    for seed, dim, method in itertools.product(seeds, dims, chosen):
        cells.append(measure(split, method, dim, seed))
        logger.info("%s, %d dimensions, seed %d", method.name, cells[-1].get("dim", dim), seed)
    return Comparison(cells, [(method, dim) for dim in sorted(set(dims)) for method in chosen])


def _chosen(names: Sequence[str | Method] | None, labeled: bool) -> list[Method]:
    methods = chosen_methods(names or COMPARED_METHODS)
    if labeled:
        return methods
    label_free = [method for method in methods if not method.uses_labels]
    if names is not None and len(label_free) < len(methods):
        needy = [method.name for method in methods if method.uses_labels]
        raise ValueError(f"methods={needy}: they learn from labels (y), which are not given.")
    return label_free


def checked_size(n_components: int | None, d: int) -> int:
    """Return the number of dimensions, by default 128, or half of d features if they are fewer."""
    if n_components is None:
        return max(1, min(DEFAULT_DIM, d // 2))
    if not isinstance(n_components, Integral) or not 1 <= n_components <= d:
        raise ValueError(
            f"n_components={n_components!r} must be an integer between 1 and the "
            f"{counted(d, 'feature')} of X."
        )
    return int(n_components)


def fit_knowledge(
    X: Array, nuisance: ArrayLike | None = None, queries: ArrayLike | None = None
) -> Json:
    """Return those arguments of `RPML.fit` that are given, checked, the nuisance as an array."""
    known: Json = {}
    if nuisance is not None:
        as_nuisance(nuisance, len(X))
        known["nuisance"] = nuisance_table(nuisance, len(X))
    if queries is not None:
        known["queries"] = as_queries(queries, X)
    return known


def subset(known: Json, rows: NDArray[np.generic]) -> Json:
    """Return what is known of some of the rows."""
    return {k: value[rows] if k == "nuisance" else value for k, value in known.items()}


def nuisance_values(known: Json, n: int) -> NDArray[np.intp] | None:
    """Return the value of all columns of the nuisance of n rows, -1 where unknown."""
    nuisance = as_nuisance(known.get("nuisance"), n)
    return None if nuisance is None else nuisance.values


class Split(NamedTuple):
    """Training rows and test rows, with labels or None."""

    X_train: Array
    y_train: Array | None
    X_test: Array
    y_test: Array | None
    known: Json | None = None
    """The arguments nuisance and queries of `RPML.fit`, of the training rows."""
    values_test: NDArray[np.intp] | None = None
    """(n_test,) value of the nuisance, -1 where unknown."""


def make_split(
    X: Array, y: ArrayLike | None, train: ArrayLike | None = None, known: Json | None = None
) -> Split:
    """Split the rows into a training and a test part that share no class.

    `known` are the arguments nuisance and queries of `RPML.fit`, of all rows.
    """
    labels = None if y is None else np.asarray(y)
    if labels is not None and labels.shape != (len(X),):
        raise ValueError(f"y must hold one class for each of the {counted(len(X), 'row')} of X.")
    chosen = _default_split(len(X), labels) if train is None else np.asarray(train)
    if chosen.dtype != bool or chosen.shape != (len(X),):
        raise ValueError(
            f"train must hold True or False for each of the {counted(len(X), 'row')} of X."
        )
    if not chosen.any() or chosen.all():
        raise ValueError("train must leave rows on both sides of the split.")
    given = known or {}
    values = nuisance_values(given, len(X))
    more = subset(given, chosen), None if values is None else values[~chosen]
    if labels is None:
        return Split(X[chosen], None, X[~chosen], None, *more)
    if len(np.unique(labels[~chosen])) == np.sum(~chosen):
        raise ValueError("No class of y has two test rows, so that no neighbor can be right.")
    return Split(X[chosen], labels[chosen], X[~chosen], labels[~chosen], *more)


def _default_split(n: int, labels: NDArray[np.generic] | None) -> NDArray[np.bool_]:
    if labels is None:
        return np.isin(np.arange(n), np.random.default_rng(0).permutation(n)[: n // 2])
    classes = np.unique(labels)
    if len(classes) < 4:
        raise ValueError(
            f"y has {counted(len(classes), 'class', 'classes')}, and two are needed on either "
            "side of the split: compare without labels, or give `train` in Python."
        )
    return np.isin(labels, classes[: len(classes) // 2])


def measure(split: Split, method: Method, dim: int, seed: int) -> Cell:
    """Fit, embed and score; if the method raises ValueError, `error` has the reason."""
    cell: Cell = {"method": method.name, "asked": dim, "seed": seed}
    cell["uses_labels"] = method.uses_labels
    try:
        fitted, seconds, caught = method.fit(split.X_train, split.y_train, dim, seed, split.known)
        Z = np.asarray(fitted.transform(split.X_test), np.float32)
    except ValueError as error:
        return {**cell, "error": one_line(error)}
    cell |= {"seconds": seconds, "warnings": caught, "dim": Z.shape[1]}
    if isinstance(fitted, RPML) and (choice := fitted.whitening_) is not None:
        cell |= {} if choice.gain is None else bounded("rank_gain", choice.gain)
    cell |= _without_labels(split.X_test, Z)
    if split.y_test is not None:
        cell |= _with_labels(Z, split.y_test, seed)
        if split.values_test is not None:
            cell["recall@1 across"] = recall_across(Z, split.y_test, split.values_test)
    return cell


def _without_labels(X: Array, Z: Array) -> Cell:
    k = min(NEAREST, len(Z) - 1)
    before, after = (nearest_neighbors(rows, k, metric="cosine").indices for rows in (X, Z))
    overlap = neighbor_overlap(before, after, k)
    return {
        "neighbors_kept": float(overlap.mean()),
        "overlap": overlap,
        **bounded("effective_rank", spectrum(Z)[1]),
        **bounded("hubness", hubness_interval(after, k, np.random.default_rng(0))),
    }


def _with_labels(Z: Array, y: Array, seed: int) -> Cell:
    ranks = first_hit_rank(Z, y)
    return {
        **bounded_scores(kmeans_labels(Z, y, seed), y),
        "ranks": ranks,
        **{f"recall@{k}": float(np.mean(ranks < k)) for k in KS},
    }


def recall_across(Z: Array, y: Array, values: NDArray[np.intp]) -> float:
    """Return the Recall@1 among rows of other known values, of the rows that have a right one."""
    rows, hits, count = unit_rows(np.asarray(Z, np.float32)), 0, 0
    for part in slices(len(rows), 1024):
        similarity = times(rows[part], rows.T)
        other = (values[part, None] != values) & (values >= 0) & (values[part, None] >= 0)
        same = y[part, None] == y
        asked = (other & same).any(axis=1)
        nearest = np.where(other, similarity, -np.inf).argmax(axis=1)
        hits += int((same[np.arange(len(same)), nearest] & asked).sum())
        count += int(asked.sum())
    return hits / count if count else float("nan")
