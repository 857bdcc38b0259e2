"""Data of the demos that ship with the package: drawings and embeddings of programs (MIT license).

The drawings are part of Omniglot; they are described without a network, by histograms of oriented
gradients. The programs are from neetcode-gh/leetcode.
"""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates

from rpml.runtime.context import Arrays
from rpml.runtime.rows import AnyArray, Floats, Mask

SIDE = 28  # pixels of a drawing
TRAINING = ("Armenian", "Asomtavruli", "Balinese", "Bengali", "Blackfoot")
CELLS = 7  # along each side, which must be a multiple of it
ORIENTATIONS = 8  # bins over 180 degrees; a gradient counts for the two nearest ones
BLUR = 1.0  # standard deviation in pixels of the smoothing before the gradient
# maxima of random views: rotation, scale, shear, and the shift in pixels
_TURN, _STRETCH, _SLANT, _SHIFT = np.deg2rad(15), 0.15, 0.2, 1.5


@dataclass(frozen=True)
class Drawings:
    """Drawings of characters, 20 per character."""

    images: Mask
    """(n_samples, 28, 28): True where there is ink."""
    character: NDArray[np.int64]
    """The class."""
    alphabet: NDArray[np.str_]


@dataclass(frozen=True)
class Solutions:
    """Solutions of programming problems in up to twelve languages."""

    vectors: Floats
    """(n_samples, 384): all-MiniLM-L6-v2 embeddings of the programs."""
    problem: NDArray[np.str_]
    """Name of the problem: the class."""
    language: NDArray[np.str_]
    """Name of the programming language, as of the source's folder."""
    titles: Floats
    """(n_samples, 384): the same embeddings of the problems' titles, one per program."""

    def __len__(self) -> int:
        return len(self.vectors)


def load_drawings() -> tuple[Drawings, Drawings]:
    """Load the training and the test drawings, which are of different alphabets."""
    stored = _read("omniglot_demo.npz")
    images = np.unpackbits(stored["images"], axis=1).reshape(-1, SIDE, SIDE).astype(bool)
    character = stored["character"].astype(np.int64)
    alphabet = stored["alphabets"][stored["alphabet"]]
    seen = np.isin(alphabet, TRAINING)
    train, test = (Drawings(images[m], character[m], alphabet[m]) for m in (seen, ~seen))
    return train, test


def load_solutions() -> tuple[Solutions, Solutions]:
    """Load the training and the test solutions, which are of different problems."""
    stored = _read("solutions_demo.npz")
    vectors = stored["vectors"].astype(np.float32)
    problem = stored["problems"][stored["problem"]]
    language = stored["languages"][stored["language"]]
    titles = stored["titles"].astype(np.float32)[stored["problem"]]
    train, test = (
        Solutions(vectors[part], problem[part], language[part], titles[part])
        for part in (stored["train"], ~stored["train"])
    )
    return train, test


def _read(name: str) -> Arrays:
    with (
        (files("rpml.io.datasets") / name).open("rb") as file,
        np.load(file, allow_pickle=False) as stored,
    ):
        return dict(stored)


def gradient_histograms(images: AnyArray) -> Floats:
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


def random_views(images: AnyArray, rng: np.random.Generator) -> Floats:
    """Return one random affine view per image, as (n, side, side) float32.

    Pixels are from 0 to 1, and 0 outside the image.
    """
    n, side = len(images), images.shape[1]
    middle = (side - 1) / 2
    grid = np.indices((side, side)).reshape(2, -1) - middle
    shift = rng.uniform(-_SHIFT, _SHIFT, (n, 2, 1)) + middle
    points = _random_maps(n, rng) @ grid + shift
    which = np.broadcast_to(np.arange(n)[:, None], (n, side * side))
    places = np.stack([which, points[:, 0], points[:, 1]])
    stack = np.asarray(images, dtype=np.float32)
    views = map_coordinates(stack, places, order=1, mode="grid-constant")
    return np.asarray(views.reshape(stack.shape))


def _random_maps(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (n, 2, 2) products of a rotation, a shear and a scaling of each axis."""
    turn, slant = rng.uniform(-_TURN, _TURN, n), rng.uniform(-_SLANT, _SLANT, n)
    stretch = 1 + rng.uniform(-_STRETCH, _STRETCH, (n, 2))
    turns = np.stack([np.cos(turn), -np.sin(turn), np.sin(turn), np.cos(turn)], axis=1)
    slants = np.tile(np.eye(2), (n, 1, 1))
    slants[:, 0, 1] = slant
    maps: NDArray[np.float64] = turns.reshape(n, 2, 2) @ slants * stretch[:, None, :]
    return maps
