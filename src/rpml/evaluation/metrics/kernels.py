"""Compiled loops of the metrics."""

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.compiled import compiled

Array = NDArray[np.generic]


@compiled()
def best_in_own_class(
    scores: Array, columns: tuple[int, int], own: Array, rows: Array, best: Array
) -> None:
    """Raise best[i] to the largest score of a same-class column other than row i itself."""
    first, last = columns
    for i in range(scores.shape[0]):
        top = best[i]
        for j in range(max(own[i, 0], first), min(own[i, 1], last)):
            if j != rows[i] and scores[i, j - first] > top:
                top = scores[i, j - first]
        best[i] = top


@compiled()
def count_other_classes(
    scores: Array, columns: tuple[int, int], own: Array, thresholds: Array, counts: Array
) -> None:
    """Add to counts[i] how many columns of other classes score at least each threshold of row i."""
    first, last = columns
    for i in range(scores.shape[0]):
        low, high = thresholds[i, 0], thresholds[i, 1]
        before = min(max(own[i, 0] - first, 0), last - first)
        after = min(max(own[i, 1] - first, 0), last - first)
        possible = 0
        above = 0
        for j in range(before):
            possible += scores[i, j] >= low
            above += scores[i, j] >= high
        for j in range(after, last - first):
            possible += scores[i, j] >= low
            above += scores[i, j] >= high
        counts[i, 0] += possible
        counts[i, 1] += above


@compiled()
def sum_by_label(X: Array, labels: Array, wanted: Array, sums: Array, counts: Array) -> None:
    """Add each row of X whose label is wanted to that label's sum (double precision) and count."""
    for i in range(X.shape[0]):
        label = labels[i]
        if wanted[label]:
            counts[label] += 1
            for j in range(X.shape[1]):
                sums[label, j] += X[i, j]
