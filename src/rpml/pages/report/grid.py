"""A map snapped to a square grid, so that similar items are adjacent and none is hidden."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment


def snap_to_grid(points: NDArray[np.floating], side: int) -> NDArray[np.intp]:
    """Return the point of each cell of a side x side grid, row by row from the top left.

    `points` are (side * side, 2) in the unit square, y upwards; the assignment moves them as little
    as possible in total.
    """
    if points.shape != (side * side, 2):
        raise ValueError(f"points must have shape ({side * side}, 2), got {points.shape}")
    # ranks spread the points evenly before they are matched to cells
    ranks = np.argsort(np.argsort(points, axis=0, kind="stable"), axis=0) / (len(points) - 1 or 1)
    spread = 0.5 * (ranks + points)
    across, down = np.meshgrid(*2 * [(np.arange(side) + 0.5) / side])
    cells = np.stack([across.ravel(), 1 - down.ravel()], axis=1)
    cost = ((cells[:, None] - spread[None]) ** 2).sum(axis=2)
    return np.asarray(linear_sum_assignment(cost)[1], np.intp)


def grid_side(n: int, most: int) -> int:
    """Return the side of the largest square grid that n points fill, at most `most`."""
    return min(most, math.isqrt(n))
