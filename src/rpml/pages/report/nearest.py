"""Nearest rows of many queries at once."""

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph.exact import Heaps, empty_heaps, push_scores, slices, sort

_BLOCK = 1024


def nearest_among(
    queries: NDArray[np.float32],
    corpus: NDArray[np.float32],
    k: int,
    excluded: NDArray[np.integer] | None = None,
) -> Heaps:
    """Scores and rows of the k largest inner products of each query, largest first.

    Parameters
    ----------
    queries : ndarray of shape (q, d)
    corpus : ndarray of shape (n, d)
    k : int
    excluded : int ndarray of shape (q,), default=None
        For each query a row of the corpus to leave out: itself, if it is one.
    """
    heaps = empty_heaps(len(queries), k)
    excluded_rows = np.full(len(queries), -1) if excluded is None else excluded
    own, names = excluded_rows.astype(np.int32), np.arange(len(corpus), dtype=np.int32)
    zeros = np.zeros(len(corpus), np.float32)
    for a in slices(len(queries), _BLOCK):
        for b in slices(len(corpus), _BLOCK):
            scores = queries[a] @ corpus[b].T
            push_scores(scores, zeros[b], own[a], names[b], (heaps[0][a], heaps[1][a]))
    sort(*heaps)
    return heaps
