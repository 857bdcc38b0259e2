"""Random affine views of small images: rotated, scaled, sheared and shifted."""

import numpy as np
from numpy.typing import NDArray

_TURN, _STRETCH, _SLANT, _SHIFT = np.deg2rad(15), 0.15, 0.2, 1.5  # maxima; the shift in pixels


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
