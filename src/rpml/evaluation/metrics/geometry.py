"""The extent of a set of rows, computed in double precision in blocks."""

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.rows import Array, row_blocks


def ball_around(Z: Array) -> tuple[NDArray[np.float64], float]:
    """Return the mean of the rows and the largest distance to it (1 if all rows are equal)."""
    center = np.zeros(Z.shape[1])
    for _, block in row_blocks(Z, np.float64):
        center += block.sum(axis=0) / len(Z)
    widest = max(float(np.abs(block - center).max()) for _, block in row_blocks(Z, np.float64))
    if widest == 0:
        return center, 1.0
    norms = [
        np.linalg.norm((block - center) / widest, axis=1).max()
        for _, block in row_blocks(Z, np.float64)
    ]
    return center, widest * float(max(norms))
