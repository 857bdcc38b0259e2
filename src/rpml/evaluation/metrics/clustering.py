"""k-means with as many clusters as classes, scored against the classes."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from rpml.evaluation.metrics._checks import check_metric, checked_codes, checked_embedding
from rpml.evaluation.metrics.agreement import (
    nmi_interval,
    normalized_mutual_information,
    pair_scores,
)
from rpml.evaluation.metrics.kmeans import kmeans
from rpml.evaluation.metrics.retrieval import ball_around
from rpml.runtime.intervals import bounded
from rpml.runtime.rows import Array, row_blocks, unit_rows


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
