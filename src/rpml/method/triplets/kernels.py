"""Compiled loops of the triplet mining."""

import numpy as np

from rpml.runtime.compiled import VECTORIZED, compiled

SEMI_HARD, HARD = 0, 1


@compiled(VECTORIZED)
def distances(Z):  # type: ignore[no-untyped-def]
    """Return Euclidean distances between all rows; a batch is too small for BLAS threads."""
    b, width = Z.shape
    out = np.zeros((b, b), Z.dtype)
    for i in range(b):
        x = Z[i]
        for j in range(i):
            y = Z[j]
            total = Z.dtype.type(0)
            for c in range(width):
                total += (x[c] - y[c]) * (x[c] - y[c])
            out[i, j] = out[j, i] = np.sqrt(total)
    return out


@compiled()
def nearest_other(distance, labels):  # type: ignore[no-untyped-def]
    """Return the nearest row of another label, -1 if there is none."""
    b = labels.shape[0]
    out = np.full(b, -1, np.intp)
    for a in range(b):
        for n in range(b):
            if labels[n] < 0 or labels[n] == labels[a]:
                continue
            if out[a] < 0 or distance[a, n] < distance[a, out[a]]:
                out[a] = n
    return out


@compiled()
def mine(distance, labels, margin, mode, drawn, out):  # type: ignore[no-untyped-def]
    """Count the triplets of a batch; with `out` also write those whose number is in `drawn`.

    `drawn` is ascending and as long as `out`; an empty `out` only counts.
    """
    b = labels.shape[0]
    hardest = nearest_other(distance, labels)
    count, written = 0, 0
    for a in range(b):
        if labels[a] < 0:
            continue
        first, last = (hardest[a], hardest[a] + 1) if mode == HARD else (0, b)
        if first < 0:
            continue
        for p in range(b):
            if p == a or labels[p] != labels[a]:
                continue
            near = distance[a, p]
            for n in range(first, last):
                if labels[n] < 0 or labels[n] == labels[a]:
                    continue
                far = distance[a, n]
                if mode == SEMI_HARD and not near < far < near + margin:
                    continue
                if written < drawn.shape[0] and drawn[written] == count:
                    out[written, 0], out[written, 1], out[written, 2] = a, p, n
                    written += 1
                count += 1
    return count
