"""Histograms of oriented gradients: features of small images without a network."""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

CELLS = 7  # along each side, which must be a multiple of it
ORIENTATIONS = 8  # bins over 180 degrees; a gradient counts for the two nearest ones
BLUR = 1.0  # standard deviation in pixels of the smoothing before the gradient


def gradient_histograms(images: NDArray[np.generic]) -> NDArray[np.float32]:
    """Compute histograms of gradient orientations on a grid of 7 x 7 cells.

    `images` (n, side, side) are gray levels or bits. Returns (n, 392) square roots of the sums, so
    that a few strong edges do not dominate.
    """
    stack = np.asarray(images, dtype=np.float32)
    if stack.ndim != 3 or stack.shape[1] != stack.shape[2] or stack.shape[1] % CELLS:
        raise ValueError(
            f"images must be square with a side that is a multiple of cells={CELLS}, "
            f"got shape {stack.shape}"
        )
    smooth = gaussian_filter(stack, (0, BLUR, BLUR))
    down, right = np.gradient(smooth, axis=(1, 2))
    strength = np.hypot(down, right)
    turn = np.mod(np.arctan2(down, right) / np.pi, 1) * ORIENTATIONS
    step = stack.shape[1] // CELLS
    centers = slice(step // 2, None, step)
    smoothed = []
    for direction in range(ORIENTATIONS):
        away = np.abs((turn - direction + ORIENTATIONS / 2) % ORIENTATIONS - ORIENTATIONS / 2)
        edges = strength * np.maximum(1 - away, 0)
        smoothed.append(gaussian_filter(edges, (0, step / 2, step / 2))[:, centers, centers])
    pooled = np.stack(smoothed, axis=-1).reshape(len(stack), -1)
    return np.asarray(np.sqrt(np.maximum(pooled, 0)), dtype=np.float32)
