"""Prefix order: the axes rotated so that the first k of them are a good embedding.

Not in the paper. A rotation changes no distance, so the whole embedding stays the same. In order
of variance, though, the first few components are worse than a fit of that size. So the space is
halved repeatedly: the triplets choose the better part by the paper's loss with all weights 1, and
its axes come first. Rows are whitened as for that size, with stronger shrinkage for smaller sizes.
"""

import numpy as np
from numpy.typing import NDArray

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.solver.conjugate_gradient import SolverState, Stopping, descend
from rpml.method.solver.training import order_by_variance
from rpml.method.whitening.linear_map import sign_of_largest
from rpml.runtime.rows import Array

Triplets = NDArray[np.integer]

SMALLEST = 8
MAX_TRIPLETS = 10_000  # twice as many change the mean Recall@1 of prefixes of six sets by 0.05
MAX_ITER = 15  # 30 change the mean Recall@1 of prefixes of five sets by less than 0.1
DECREASE = 1e-4  # relative, of the loss, at which to stop: changes that mean by less than 0.1, too


def sizes_below(l: int) -> list[int]:
    """Return the powers of two whose prefixes are optimized, largest first."""
    powers = [2**j for j in range(l.bit_length()) if SMALLEST <= 2**j < l]
    return powers[::-1]


def triplet_subset(triplets: Triplets) -> tuple[NDArray[np.intp], Triplets]:
    """Return rows and at most `MAX_TRIPLETS` triplets of positions in these, evenly sampled."""
    chosen = triplets[:: -(-len(triplets) // MAX_TRIPLETS) or 1]
    rows, places = np.unique(chosen, return_inverse=True)
    return rows.astype(np.intp), places.reshape(chosen.shape)


def prefix_order(Z: Array, L: Array, triplets: Triplets, alpha: float, shrinkage: Array) -> Array:
    """Rotate L so that every prefix of a power of two is chosen by the triplets."""
    rows, places = triplet_subset(triplets)
    Y = Z[rows] @ L.astype(Z.dtype)
    L = L @ prefix_rotation(Y, places, alpha, shrinkage)
    return np.asarray(L * sign_of_largest(L))


def prefix_rotation(Y: Array, triplets: Triplets, alpha: float, shrinkage: Array) -> Array:
    """Return the (l, l) rotation after which the triplets choose every prefix of a power of two.

    `Y` are embedded rows by decreasing variance, which the triplets index. `shrinkage` is the
    (l, l) part of the smoothed scatter, here the identity, that is its shrinkage.
    """
    l = width = Y.shape[1]
    rotation = np.eye(l)
    for size in sizes_below(l) if len(triplets) else ():
        axes = rotation[:, :width]
        smoothed = np.eye(width) + (l / size - 1) * axes.T @ shrinkage @ axes
        W = Y @ axes.astype(Y.dtype)
        rotation[:, :width] = axes @ _better_part(W, triplets, size, alpha, smoothed)
        width = size
    return rotation


def _better_part(W: Array, triplets: Triplets, size: int, alpha: float, smoothed: Array) -> Array:
    """Return a rotation of W whose first `size` columns have the lowest loss, once whitened."""
    values, axes = np.linalg.eigh(smoothed)
    inner = axes / np.sqrt(values)
    V = W @ inner.astype(W.dtype)
    start = order_by_variance(V, np.eye(len(inner)))[:, :size]
    problem = TripletObjective(V, triplets, "constant", alpha)
    stopping = Stopping(MAX_ITER, decrease=DECREASE)
    basis = descend(problem, SolverState(start, None), stopping).L
    basis = np.linalg.qr(inner @ basis)[0]
    rest = np.linalg.qr(basis, mode="complete")[0][:, size:]
    return np.hstack([order_by_variance(W, part) for part in (basis, rest)])
