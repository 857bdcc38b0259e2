"""Histograms of oriented gradients: features of small images without a network."""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter


def gradient_histograms(
    images: NDArray[np.generic], cells: int = 7, orientations: int = 8, blur: float = 1.0
) -> NDArray[np.float32]:
    """Compute histograms of gradient orientations on a grid of cells.

    Parameters
    ----------
    images : ndarray of shape (n, side, side)
        Gray levels or bits.
    cells : int, default=7
        Cells along each side; the side must be a multiple of it.
    orientations : int, default=8
        Bins over 180 degrees; a gradient counts for the two nearest ones.
    blur : float, default=1.0
        Standard deviation in pixels of the smoothing before the gradient.

    Returns
    -------
    float32 ndarray of shape (n, cells * cells * orientations)
        Square roots of the sums, so that a few strong edges do not dominate.
    """
    stack = np.asarray(images, dtype=np.float32)
    if stack.ndim != 3 or stack.shape[1] != stack.shape[2] or stack.shape[1] % cells:
        raise ValueError(
            f"images must be square with a side that is a multiple of cells={cells}, "
            f"got shape {stack.shape}"
        )
    smooth = gaussian_filter(stack, (0, blur, blur))
    down, right = np.gradient(smooth, axis=(1, 2))
    strength = np.hypot(down, right)
    turn = np.mod(np.arctan2(down, right) / np.pi, 1) * orientations
    step = stack.shape[1] // cells
    centers = slice(step // 2, None, step)
    smoothed = []
    for direction in range(orientations):
        away = np.abs((turn - direction + orientations / 2) % orientations - orientations / 2)
        edges = strength * np.maximum(1 - away, 0)
        smoothed.append(gaussian_filter(edges, (0, step / 2, step / 2))[:, centers, centers])
    pooled = np.stack(smoothed, axis=-1).reshape(len(stack), -1)
    return np.asarray(np.sqrt(np.maximum(pooled, 0)), dtype=np.float32)
