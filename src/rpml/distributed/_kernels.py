"""Compiled loops of the distributed stages."""

import numpy as np

from rpml.method.graph.kernels import push
from rpml.runtime.compiled import compiled


@compiled()
def push_candidates(vals, idx, rows, candidates, scores):  # type: ignore[no-untyped-def]
    """Push sorted candidates of some rows into their heaps, which keep the largest scores."""
    for r in range(rows.shape[0]):
        at = rows[r]
        for c in range(candidates.shape[1]):
            value, index = scores[r, c], candidates[r, c]
            worst = vals[at, 0]
            if value < worst or value == -np.inf:  # the rest is no better
                break
            if value > worst or index < idx[at, 0]:
                push(vals[at], idx[at], value, index)
