"""Assignment of cells to tasks: neighboring cells together, with about equally many rows."""

import numpy as np
from numpy.typing import NDArray


def deal_cells(
    centers: NDArray[np.float32], sizes: NDArray[np.intp], buckets: int
) -> NDArray[np.intp]:
    """Return the bucket of each cell, by repeatedly halving the cells along their main axis."""
    out = np.zeros(len(centers), np.intp)
    _halve(centers, sizes, np.arange(len(centers)), (0, buckets), out)
    return out


def _halve(
    centers: NDArray[np.float32],
    sizes: NDArray[np.intp],
    cells: NDArray[np.intp],
    span: tuple[int, int],
    out: NDArray[np.intp],
) -> None:
    first, last = span
    if last - first <= 1 or len(cells) <= 1:
        out[cells] = first
        return
    middle = (first + last) // 2
    offsets = (centers[cells] - centers[cells].mean(axis=0)).astype(np.float64)
    longest = np.linalg.eigh(offsets.T @ offsets)[1][:, -1]
    cells = cells[np.argsort(offsets @ longest, kind="stable")]
    load = np.cumsum(sizes[cells])
    at = int(np.searchsorted(load, load[-1] * (middle - first) / (last - first))) + 1
    at = min(max(at, 1), len(cells) - 1)
    _halve(centers, sizes, cells[:at], (first, middle), out)
    _halve(centers, sizes, cells[at:], (middle, last), out)
