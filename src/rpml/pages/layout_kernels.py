"""Compiled loop of the map: edges attract, random pairs repel."""

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.compiled import compiled

N_NEGATIVES = 5  # repulsions per attraction
_A, _B = 1.577, 0.895  # the curve of UMAP for min_dist = 0.1
_LIMIT = 4.0  # maximal move of a coordinate before the step size is applied


@compiled()
def _next(state: np.uint64) -> np.uint64:
    """Return the next xorshift random number."""
    state = state ^ (state << np.uint64(13))
    state = state ^ (state >> np.uint64(7))
    return state ^ (state << np.uint64(17))


@compiled()
def _clip(value: float) -> float:
    return max(-_LIMIT, min(_LIMIT, value))


@compiled()
def _attract(P: NDArray[np.float64], i: int, j: int, rate: float) -> None:
    dx, dy = P[i, 0] - P[j, 0], P[i, 1] - P[j, 1]
    square = dx * dx + dy * dy
    if square <= 0.0:
        return
    force = -2.0 * _A * _B * square ** (_B - 1.0) / (1.0 + _A * square**_B)
    mx, my = rate * _clip(force * dx), rate * _clip(force * dy)
    P[i, 0] += mx
    P[i, 1] += my
    P[j, 0] -= mx
    P[j, 1] -= my


@compiled()
def _repel(P: NDArray[np.float64], i: int, j: int, rate: float) -> None:
    dx, dy = P[i, 0] - P[j, 0], P[i, 1] - P[j, 1]
    square = dx * dx + dy * dy
    if i == j or square <= 0.0:
        return
    force = 2.0 * _B / ((0.001 + square) * (1.0 + _A * square**_B))
    P[i, 0] += rate * _clip(force * dx)
    P[i, 1] += rate * _clip(force * dy)


@compiled()
def epoch(
    P: NDArray[np.float64],
    heads: NDArray[np.int32],
    tails: NDArray[np.int32],
    period: NDArray[np.float64],
    due: NDArray[np.float64],
    clock: tuple[float, float, int],
) -> None:
    """Run one pass over the edges; an edge is used every `period` passes.

    `clock` is (number of the pass, step size, random state). P and `due` change in place.
    """
    now, rate, seed = clock
    state = np.uint64(seed)
    n = np.uint64(P.shape[0])
    for e in range(heads.shape[0]):
        if due[e] > now:
            continue
        due[e] += period[e]
        i = heads[e]
        _attract(P, i, tails[e], rate)
        for _ in range(N_NEGATIVES):
            state = _next(state)
            _repel(P, i, int((state >> np.uint64(11)) % n), rate)
