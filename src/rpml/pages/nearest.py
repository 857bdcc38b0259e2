"""Nearest rows of many queries."""

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph.exact import Heaps, empty_heaps, push_scores, sort
from rpml.runtime.rows import slices

_BLOCK = 1024


def nearest_among(
    queries: NDArray[np.float32],
    corpus: NDArray[np.float32],
    k: int,
    excluded: NDArray[np.integer] | None = None,
) -> Heaps:
    """Return scores and rows of the k largest inner products of each query, largest first.

    `excluded` is one row of the corpus per query to skip, such as the query itself.
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
