"""Agreement of two labelings of the same rows: mutual information and pair scores."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix

from rpml.evaluation.metrics._checks import checked_codes

Codes = NDArray[np.intp]


def normalized_mutual_information(labels: ArrayLike, y: ArrayLike) -> float:
    """Return the mutual information over the arithmetic mean of the entropies, in [0, 1]."""
    return float(normalized_mutual_info_score(*_codes(labels, y)))


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
