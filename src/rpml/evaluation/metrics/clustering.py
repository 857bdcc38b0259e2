"""Clusters against classes: k-means, mutual information and pair scores."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix
from sklearn.utils import check_random_state

from rpml.evaluation.metrics.label_free import N_RESAMPLES
from rpml.evaluation.metrics.retrieval import (
    ball_around,
    check_metric,
    checked_codes,
    checked_embedding,
)
from rpml.runtime.intervals import STANDARD_ERRORS, Interval, bounded
from rpml.runtime.rows import Array, Floats, Indices, Integers, RandomState, row_blocks, unit_rows

KMEANS_ITERATIONS = 100
LARGE_RUN = 2e10  # n * k * d from which one run of k-means is enough
GREEDY_SEEDS = 256  # up to here seeds are drawn one by one, beyond in rounds
SEED_ROUNDS = 128
SEED_TILE = 1 << 25  # distances held at once in a round: 128 MB


def clustering_scores(
    Z: ArrayLike, y: ArrayLike, random_state: RandomState = 0, metric: str = "cosine"
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

    Returns
    -------
    dict
        ``nmi`` (arithmetic mean), and pairwise ``f``, ``precision``, ``recall``; all in [0, 1].
    """
    clusters = kmeans_labels(Z, y, random_state, metric)
    nmi = float(normalized_mutual_info_score(*_codes(clusters, y)))
    return {"nmi": nmi, **pair_scores(clusters, y)}


def kmeans_labels(
    Z: ArrayLike,
    y: ArrayLike,
    random_state: RandomState = 0,
    metric: str = "cosine",
    **options: Any,
) -> NDArray[np.int32]:
    """Return the clusters that `clustering_scores` compares; `options` are those of `kmeans`."""
    check_metric(metric)
    rows = checked_embedding(Z)
    codes = checked_codes(y, len(rows))
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    points, k = _points(rows, metric), int(codes.max()) + 1
    return np.asarray(kmeans(points, k, rng, **options).labels_)


def kmeans(
    X: Array,
    k: int,
    rng: np.random.Generator,
    n_init: int | None = None,
    progress: Callable[[float], object] | None = None,
) -> KMeans:
    """Return the k-means of scikit-learn with the least inertia of `n_init` runs.

    The seeds are our own, since scikit-learn's take hours for the 11,316 classes of Stanford Online
    Products. Rows should be centered or normalized, as distances are of single precision. `n_init`
    is by default 5, or 1 if n * k * dimensions is above 2e10. There are fewer than k clusters only
    if fewer rows are distinct.
    """
    rows = np.ascontiguousarray(X, dtype=np.float32)
    n, d = rows.shape
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and the number of rows ({n}), got {k}")
    n_runs = n_init if n_init is not None else (1 if n * k * d > LARGE_RUN else 5)
    if n_runs < 1:
        raise ValueError(f"n_init must be at least 1, got {n_init}")
    runs = []
    for number, source in enumerate(rng.spawn(n_runs) if n_runs > 1 else [rng], 1):
        seeds = _seeds(rows, k, source)
        seeds = seeds[np.sort(np.unique(seeds, axis=0, return_index=True)[1])]
        runs.append(KMeans(len(seeds), init=seeds, n_init=1, max_iter=KMEANS_ITERATIONS).fit(rows))
        if progress is not None:
            progress(number / n_runs)
    return min(runs, key=lambda run: float(run.inertia_))


def _seeds(rows: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Draw seeds by greedy k-means++: each is the best of several draws by squared distance.

    Many seeds are drawn in rounds: the draws of a round share one product and the distances at its
    start, but each choice among them takes into account the seeds chosen before it.
    """
    squares = np.einsum("ij,ij->i", rows, rows)
    draws, at_once = 2 + int(np.log(k)), 1
    if k > GREEDY_SEEDS:
        draws = 4
        at_once = min(-(-k // SEED_ROUNDS), max(1, SEED_TILE // (draws * len(rows))))
    chosen = [rng.integers(len(rows))]
    distance = _distances(rows, squares, np.array(chosen))[0]
    while len(chosen) < k:
        drawn = _draw(distance, (min(at_once, k - len(chosen)), draws), rng)
        to_drawn = _distances(rows, squares, drawn.ravel()).reshape(*drawn.shape, -1)
        for candidates, distances in zip(drawn, to_drawn, strict=True):
            np.minimum(distances, distance, out=distances)
            best = int(distances.sum(axis=1, dtype=np.float64).argmin())
            chosen.append(candidates[best])
            distance = distances[best]
    return rows[chosen]


def _draw(distance: Floats, shape: tuple[int, int], rng: np.random.Generator) -> Indices:
    total = np.cumsum(distance, dtype=np.float64)
    if total[-1] == 0:  # every row coincides with a seed
        return rng.integers(len(distance), size=shape)
    drawn: Indices = np.searchsorted(total, rng.random(shape) * total[-1], side="right")
    return drawn.clip(max=len(distance) - 1)


def _distances(rows: Floats, squares: Floats, chosen: Indices) -> Floats:
    """Return the squared distances of the chosen rows to all rows, without more memory."""
    distances: Floats = rows[chosen] @ rows.T
    distances *= -2
    distances += squares
    distances += squares[chosen, None]
    return np.maximum(distances, 0, out=distances)


def bounded_scores(clusters: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Return the same scores of given clusters, with the 95% interval of the NMI."""
    nmi = nmi_interval(clusters, y)
    return {**bounded("nmi", nmi), **pair_scores(clusters, y)}


def _points(rows: Array, metric: str) -> Floats:
    """Return rows in single precision: normalized for cosine, else centered and scaled."""
    center, radius = ball_around(rows) if metric == "euclidean" else (np.zeros(1), 1.0)
    points = np.empty(rows.shape, dtype=np.float32)
    for part, block in row_blocks(rows, np.float64):
        points[part] = unit_rows(block) if metric == "cosine" else (block - center) / radius
    return points


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


def _entropies(draws: Integers, groups: Integers) -> Array:
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
    no pairs is 0.
    """
    clusters, classes = _codes(labels, y)
    (_, wrong), (missed, right) = pair_confusion_matrix(classes, clusters).astype(float)
    return {
        "f": _share(2 * right, 2 * right + wrong + missed),
        "precision": _share(right, right + wrong),
        "recall": _share(right, right + missed),
    }


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0


def _codes(labels: ArrayLike, y: ArrayLike) -> tuple[Indices, Indices]:
    codes = checked_codes(labels, len(np.asanyarray(labels)), "labels")
    if not len(codes):
        raise ValueError("labels is empty: there is nothing to score")
    return codes, checked_codes(y, len(codes))
