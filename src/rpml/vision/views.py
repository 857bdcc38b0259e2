"""Augmented views of an image: label-free supervision, because they show the same thing."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rpml.runtime.errors import InputError
from rpml.runtime.extras import require

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_Image: Any = require("PIL.Image", "vision", "augmented views")
_Enhance: Any = require("PIL.ImageEnhance", "vision", "augmented views")

CROP_AREA = (0.4, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)
ROTATION_DEGREES = 10.0
JITTER = 0.3


def random_crop(image: Picture, rng: np.random.Generator) -> Picture:
    """A box of 40 to 100% of the area, its aspect changed by at most a third."""
    width, height = image.size
    area = rng.uniform(*CROP_AREA)
    ratio = math.exp(rng.uniform(*np.log(CROP_RATIO)))
    w = min(width, max(1, round(width * math.sqrt(area * ratio))))
    h = min(height, max(1, round(height * math.sqrt(area / ratio))))
    left, top = rng.integers(width - w + 1), rng.integers(height - h + 1)
    return image.crop((int(left), int(top), int(left) + w, int(top) + h))


def random_flip(image: Picture, rng: np.random.Generator) -> Picture:
    """Left and right exchanged, every second time."""
    flip = rng.random() < 0.5
    return image.transpose(_Image.Transpose.FLIP_LEFT_RIGHT) if flip else image


def random_rotation(image: Picture, rng: np.random.Generator) -> Picture:
    """Turned by at most ten degrees; the corners take the mean colour."""
    angle = rng.uniform(-ROTATION_DEGREES, ROTATION_DEGREES)
    mean = tuple(int(v) for v in np.asarray(image).mean(axis=(0, 1)))
    return image.rotate(angle, _Image.Resampling.BILINEAR, fillcolor=mean)


def random_colors(image: Picture, rng: np.random.Generator) -> Picture:
    """Brightness, contrast and saturation changed by up to 30%."""
    for enhance in (_Enhance.Brightness, _Enhance.Contrast, _Enhance.Color):
        image = enhance(image).enhance(rng.uniform(1 - JITTER, 1 + JITTER))
    return image


CHANGES: dict[str, Callable[[Picture, np.random.Generator], Picture]] = {
    "rotate": random_rotation,
    "crop": random_crop,
    "flip": random_flip,
    "color": random_colors,
}


@dataclass(frozen=True)
class Views:
    """How many views of each image besides itself, and what changes between them.

    Parameters
    ----------
    count : int
        Views an image; 0 for none.
    changes : tuple of str
        Any of "rotate", "crop", "flip", "color".
    seed : int
        Of the random changes. A view depends on it, on the image's id and on the view's number,
        not on the other images.
    """

    count: int = 0
    changes: tuple[str, ...] = tuple(CHANGES)
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [c for c in self.changes if c not in CHANGES]
        if unknown:
            raise InputError(
                f"there is no change called {unknown[0]!r}: choose from {', '.join(CHANGES)}"
            )
        if self.count and not self.changes:
            raise InputError("views without any change would only repeat the image")

    def of(self, image: Picture, name: str) -> list[Picture]:
        """The image itself, then its views."""
        return [image, *(self._view(image, name, k) for k in range(1, self.count + 1))]

    def _view(self, image: Picture, name: str, number: int) -> Picture:
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode()), number])
        for change, apply in CHANGES.items():
            if change in self.changes:
                image = apply(image, rng)
        return image
