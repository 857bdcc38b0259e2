"""One fit, every size: the learned axes turned so that the first k of them serve alone.

Ours, not the paper's. A rotation changes no distance, so the whole embedding stays what it is. In
order of variance, though, the first few components are worse than a fit of that size. So the space
is cut in two again and again: the triplets choose the better part by the paper's own loss, all
weights one, and its axes come first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rpml.objective import TripletObjective
from rpml.optimize import Stopping, conjugate_gradient
from rpml.training import order_by_variance

Array = NDArray[np.floating]
Triplets = NDArray[np.integer]

SMALLEST = 8
MAX_TRIPLETS = 50_000  # enough to turn a few hundred axes
MAX_ITER = 30


def sizes_below(l: int) -> list[int]:
    """The powers of two that get the best axes of their own, largest first."""
    powers = [2**j for j in range(l.bit_length()) if SMALLEST <= 2**j < l]
    return powers[::-1]


def some_triplets(triplets: Triplets) -> tuple[NDArray[np.intp], Triplets]:
    """(rows, triplets of places among these): at most `MAX_TRIPLETS`, evenly from all."""
    chosen = triplets[:: -(-len(triplets) // MAX_TRIPLETS) or 1]
    rows, places = np.unique(chosen, return_inverse=True)
    return rows.astype(np.intp), places.reshape(chosen.shape)


def nested_rotation(Y: Array, triplets: Triplets, alpha: float) -> Array:
    """(l, l) rotation after which every prefix of a power of two is chosen by the triplets.

    Parameters
    ----------
    Y : (m, l) array
        Embedded rows, by falling variance.
    triplets : (T, 3) int array
        Rows of Y.
    alpha : float
        Angle of the loss, in degrees.
    """
    width = Y.shape[1]
    rotation = np.eye(width)
    for size in sizes_below(width) if len(triplets) else ():
        W = Y @ rotation[:, :width].astype(Y.dtype)
        rotation[:, :width] = rotation[:, :width] @ _better_part(W, triplets, size, alpha)
        width = size
    return rotation


def _better_part(W: Array, triplets: Triplets, size: int, alpha: float) -> Array:
    """A rotation of the columns of W whose first `size` axes have the lowest loss."""
    problem = TripletObjective(W, triplets, "constant", alpha)
    start = np.eye(W.shape[1], size)
    found = conjugate_gradient(problem, start, None, Stopping(max_iter=MAX_ITER)).L
    rest = np.linalg.qr(found, mode="complete")[0][:, size:]
    return np.hstack([order_by_variance(W, part) for part in (found, rest)])
