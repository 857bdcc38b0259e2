"""Small images without a network: histograms of oriented gradients, and random affine views."""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

CELLS = 7  # along each side, which must be a multiple of it
ORIENTATIONS = 8  # bins over 180 degrees; a gradient counts for the two nearest ones
BLUR = 1.0  # standard deviation in pixels of the smoothing before the gradient
# maxima of random views: rotation, scale, shear, and the shift in pixels
_TURN, _STRETCH, _SLANT, _SHIFT = np.deg2rad(15), 0.15, 0.2, 1.5


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


def random_views(images: NDArray[np.generic], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return one random affine view per image, as (n, side, side) float32.

    Pixels are from 0 to 1, and 0 outside the image.
    """
    n, side = len(images), images.shape[1]
    middle = (side - 1) / 2
    grid = np.indices((side, side)).reshape(2, -1) - middle
    shift = rng.uniform(-_SHIFT, _SHIFT, (n, 2, 1)) + middle
    return _sample(np.asarray(images, dtype=np.float32), _random_maps(n, rng) @ grid + shift)


def _random_maps(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (n, 2, 2) products of a rotation, a shear and a scaling of each axis."""
    turn, slant = rng.uniform(-_TURN, _TURN, n), rng.uniform(-_SLANT, _SLANT, n)
    stretch = 1 + rng.uniform(-_STRETCH, _STRETCH, (n, 2))
    turns = np.stack([np.cos(turn), -np.sin(turn), np.sin(turn), np.cos(turn)], axis=1)
    slants = np.tile(np.eye(2), (n, 1, 1))
    slants[:, 0, 1] = slant
    maps: NDArray[np.float64] = turns.reshape(n, 2, 2) @ slants * stretch[:, None, :]
    return maps


def _sample(images: NDArray[np.float32], points: NDArray[np.float64]) -> NDArray[np.float32]:
    """Interpolate each image bilinearly at its own (2, side * side) points."""
    n, side = len(images), images.shape[1]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    points = np.clip(points + 1, 0, side + 0.999)
    corner = points.astype(np.intp)
    part = (points - corner).astype(np.float32)
    flat = padded.reshape(n, -1)
    values = np.zeros((n, side * side), dtype=np.float32)
    for down in (0, 1):
        for right in (0, 1):
            weight = np.abs(1 - down - part[:, 0]) * np.abs(1 - right - part[:, 1])
            places = (corner[:, 0] + down) * (side + 2) + corner[:, 1] + right
            values += weight * np.take_along_axis(flat, places, axis=1)
    return values.reshape(images.shape)
