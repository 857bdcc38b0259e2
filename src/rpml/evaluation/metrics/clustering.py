"""Clusters against classes: k-means, mutual information and pair scores."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix
from sklearn.utils import check_random_state

from rpml.evaluation.metrics._checks import check_metric, checked_codes, checked_embedding
from rpml.evaluation.metrics.kmeans import kmeans
from rpml.evaluation.metrics.retrieval import ball_around
from rpml.runtime.intervals import STANDARD_ERRORS, Interval, bounded
from rpml.runtime.rows import Array, row_blocks, unit_rows

N_RESAMPLES = 200
Codes = NDArray[np.intp]


def clustering_scores(
    Z: ArrayLike,
    y: ArrayLike,
    random_state: int | np.random.RandomState | None = 0,
    metric: str = "cosine",
    n_init: int | None = None,
    *,
    progress: Callable[[float], object] | None = None,
) -> dict[str, float]:
    """Cluster the embedding by k-means into as many clusters as classes and compare the two.

    Parameters
    ----------
    Z : array-like of shape (n_samples, n_components)
        The embedding.
    y : array-like of shape (n_samples,)
        Class labels, numbers or strings.
    random_state : int, RandomState instance or None, default=0
        Seed of k-means.
    metric : {"cosine", "euclidean"}, default="cosine"
        ``"cosine"`` divides the rows by their norm before k-means, ``"euclidean"`` uses them
        unchanged.
    n_init : int, default=None
        Restarts of k-means, of which the one with the least inertia is scored. None means 5, or 1
        if a single run is already large.
    progress : callable, default=None
        Called with the finished share of the maximal number of iterations, in [0, 1].

    Returns
    -------
    dict
        ``nmi`` (arithmetic mean), and pairwise ``f``, ``precision``, ``recall``; all in [0, 1].
    """
    clusters = kmeans_labels(Z, y, random_state, metric, n_init, progress=progress)
    return {"nmi": normalized_mutual_information(clusters, y), **pair_scores(clusters, y)}


def kmeans_labels(
    Z: ArrayLike,
    y: ArrayLike,
    random_state: int | np.random.RandomState | None = 0,
    metric: str = "cosine",
    n_init: int | None = None,
    *,
    progress: Callable[[float], object] | None = None,
) -> NDArray[np.integer]:
    """Return the clusters that `clustering_scores` compares with the classes."""
    check_metric(metric)
    rows = checked_embedding(Z)
    codes = checked_codes(y, len(rows))
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    points, k = _points(rows, metric), int(codes.max()) + 1
    return kmeans(points, k, rng, n_init=n_init, progress=progress).labels


def bounded_scores(clusters: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Return the same scores of given clusters, with the 95% interval of the NMI."""
    nmi = nmi_interval(clusters, y)
    return {**bounded("nmi", nmi), **pair_scores(clusters, y)}


def _points(rows: Array, metric: str) -> NDArray[np.float32]:
    """Return rows in single precision: normalized for cosine, else centered and scaled."""
    center, radius = ball_around(rows) if metric == "euclidean" else (np.zeros(1), 1.0)
    points = np.empty(rows.shape, dtype=np.float32)
    for part, block in row_blocks(rows, np.float64):
        points[part] = unit_rows(block) if metric == "cosine" else (block - center) / radius
    return points


def normalized_mutual_information(labels: ArrayLike, y: ArrayLike) -> float:
    """Return the mutual information over the arithmetic mean of the entropies, in [0, 1]."""
    return float(normalized_mutual_info_score(*_codes(labels, y)))


def nmi_interval(labels: ArrayLike, y: ArrayLike) -> Interval:
    """Return the normalized mutual information with its 95% bootstrap interval over the rows.

    The labeling is fixed and the rows are resampled. Repeated rows raise the NMI of a resample,
    so the interval is centered on the measured value: 1.96 bootstrap standard errors to each side.
    """
    clusters, classes = _codes(labels, y)
    value = float(normalized_mutual_info_score(clusters, classes))
    width = int(clusters.max()) + 1
    pairs, counts = np.unique(classes * width + clusters, return_counts=True)
    draws = np.random.default_rng(0).multinomial(len(classes), counts / len(classes), N_RESAMPLES)
    joint = _entropies(draws, np.arange(len(pairs)))
    total = _entropies(draws, pairs // width) + _entropies(draws, pairs % width)
    scores = np.divide(2 * (total - joint), total, out=np.ones_like(total), where=total > 0)
    margin = STANDARD_ERRORS * float(scores.std())
    return Interval(value, max(0.0, value - margin), min(1.0, value + margin))


def _entropies(draws: NDArray[np.integer], groups: NDArray[np.integer]) -> Array:
    """Return the entropy of each draw after its cells were summed by group."""
    sums = np.zeros((int(groups.max()) + 1, len(draws)))
    np.add.at(sums, groups, draws.T)
    shares = sums / sums.sum(axis=0)
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.asarray(-(shares * logs).sum(axis=0))


def pair_scores(labels: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Return precision, recall and F of the pairs of rows with equal labels, given true classes y.

    ``precision`` is the share of pairs with equal labels that have equal classes, ``recall`` the
    share of pairs with equal classes that have equal labels, ``f`` their harmonic mean; a share of
    no pairs is 0. Negative labels mark noise: such a row is a cluster of its own, which lowers
    recall and not precision.
    """
    clusters, classes = _codes(_noise_apart(labels), y)
    (_, wrong), (missed, right) = pair_confusion_matrix(classes, clusters).astype(float)
    return {
        "f": _share(2 * right, 2 * right + wrong + missed),
        "precision": _share(right, right + wrong),
        "recall": _share(right, right + missed),
    }


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _noise_apart(labels: ArrayLike) -> NDArray[np.generic]:
    """Give each noise row (a negative integer) a label of its own."""
    array = np.array(labels)
    if array.ndim == 1 and len(array) and np.issubdtype(array.dtype, np.signedinteger):
        array = array.astype(np.int64)
        noise = np.flatnonzero(array < 0)
        array[noise] = array.max() + 1 + np.arange(len(noise))
    return array


def _codes(labels: ArrayLike, y: ArrayLike) -> tuple[Codes, Codes]:
    codes = checked_codes(labels, len(np.asanyarray(labels)), "labels")
    if not len(codes):
        raise ValueError("labels is empty: there is nothing to score")
    return codes, checked_codes(y, len(codes))
