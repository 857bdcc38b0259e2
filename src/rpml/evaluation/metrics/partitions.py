"""Two labellings of the same rows compared through their contingency table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.evaluation.metrics._checks import checked_codes


@dataclass(frozen=True)
class Contingency:
    """Rows in each cluster, in each class, and in each non-empty (cluster, class) cell."""

    clusters: NDArray[np.float64]
    classes: NDArray[np.float64]
    cells: NDArray[np.float64]
    cell_cluster: NDArray[np.intp]
    cell_class: NDArray[np.intp]


def contingency(labels: NDArray[np.intp], y: NDArray[np.intp]) -> Contingency:
    """Count the cells that occur: at most n of them, whatever the number of classes."""
    classes = int(y.max()) + 1
    codes, cells = np.unique(labels.astype(np.int64) * classes + y, return_counts=True)
    return Contingency(
        clusters=np.bincount(labels).astype(np.float64),
        classes=np.bincount(y).astype(np.float64),
        cells=cells.astype(np.float64),
        cell_cluster=codes // classes,
        cell_class=codes % classes,
    )


def normalized_mutual_information(labels: ArrayLike, y: ArrayLike) -> float:
    """Mutual information over the arithmetic mean of the two entropies, in [0, 1].

    1 when both put all rows together (they agree), as in scikit-learn.
    """
    table = _table(labels, y)
    n = table.cells.sum()
    entropy = (_entropy(table.clusters / n) + _entropy(table.classes / n)) / 2
    if entropy == 0:
        return 1.0
    expected = table.clusters[table.cell_cluster] * table.classes[table.cell_class]
    mutual = np.sum(table.cells / n * np.log(table.cells * n / expected))
    return float(np.clip(mutual / entropy, 0, 1))


def pair_scores(labels: ArrayLike, y: ArrayLike) -> dict[str, float]:
    """Precision, recall and F over the pairs of rows that a labelling puts together.

    Parameters
    ----------
    labels : array of shape (n,)
        Clusters or pseudo-labels. Negative integers mark noise: each such row stands alone,
        so it costs recall and not precision.
    y : array of shape (n,)
        True classes.

    Returns
    -------
    dict
        ``precision``: share of the pairs put together that are of one class; ``recall``: share of
        the pairs of one class that are put together; ``f``: their harmonic mean. A share of no
        pairs at all is 0.
    """
    table = _table(_noise_apart(labels), y)
    together, alike, both = (_pairs(c) for c in (table.clusters, table.classes, table.cells))
    return {
        "f": 2 * both / (together + alike) if together + alike else 0.0,
        "precision": both / together if together else 0.0,
        "recall": both / alike if alike else 0.0,
    }


def _noise_apart(labels: ArrayLike) -> NDArray[np.generic]:
    """Give each noise row (a negative integer) a label of its own."""
    array = np.array(labels)
    if array.ndim == 1 and len(array) and np.issubdtype(array.dtype, np.signedinteger):
        array = array.astype(np.int64)
        noise = np.flatnonzero(array < 0)
        array[noise] = array.max() + 1 + np.arange(len(noise))
    return array


def _table(labels: ArrayLike, y: ArrayLike) -> Contingency:
    codes = checked_codes(labels, len(np.asanyarray(labels)), "labels")
    if not len(codes):
        raise ValueError("labels is empty: there is nothing to score")
    return contingency(codes, checked_codes(y, len(codes)))


def _pairs(sizes: NDArray[np.float64]) -> float:
    return float(np.sum(sizes * (sizes - 1)) / 2)


def _entropy(shares: NDArray[np.float64]) -> float:
    return float(-np.sum(shares * np.log(shares)))
