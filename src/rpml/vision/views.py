"""Augmented views of an image: label-free supervision, since they show the same instance.

The pixels are transformed by Pillow; only the random parameters are drawn here (see
docs/decisions/written-by-hand.md).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rpml.runtime.errors import InputError
from rpml.runtime.extras import require

if TYPE_CHECKING:
    from PIL import Image, ImageEnhance
else:
    Image = require("PIL.Image", "vision", "augmented views")
    ImageEnhance = require("PIL.ImageEnhance", "vision", "augmented views")

CROP_AREA = (0.4, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)
ROTATION_DEGREES = 10.0
JITTER = 0.3


def random_crop(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Crop a box of 40 to 100% of the area; the aspect ratio changes by at most a third."""
    width, height = image.size
    area = rng.uniform(*CROP_AREA)
    ratio = math.exp(rng.uniform(*np.log(CROP_RATIO)))
    w = min(width, max(1, round(width * math.sqrt(area * ratio))))
    h = min(height, max(1, round(height * math.sqrt(area / ratio))))
    left, top = rng.integers(width - w + 1), rng.integers(height - h + 1)
    return image.crop((int(left), int(top), int(left) + w, int(top) + h))


def random_flip(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Flip horizontally with probability 1/2."""
    flip = rng.random() < 0.5
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else image


def random_rotation(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Rotate by at most ten degrees; the corners are filled with the mean color."""
    angle = rng.uniform(-ROTATION_DEGREES, ROTATION_DEGREES)
    mean = tuple(int(v) for v in np.asarray(image).mean(axis=(0, 1)))
    return image.rotate(angle, Image.Resampling.BILINEAR, fillcolor=mean)


def random_colors(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Change brightness, contrast and saturation by up to 30%."""
    for enhance in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhance(image).enhance(rng.uniform(1 - JITTER, 1 + JITTER))
    return image


AUGMENTATIONS: dict[str, Callable[[Image.Image, np.random.Generator], Image.Image]] = {
    "rotate": random_rotation,
    "crop": random_crop,
    "flip": random_flip,
    "color": random_colors,
}
"""In the order of their application."""


@dataclass(frozen=True)
class Views:
    """Augmented views of each image."""

    count: int = 0
    """Views per image, without the image itself."""
    augmentations: tuple[str, ...] = tuple(AUGMENTATIONS)
    seed: int = 0
    """A view depends only on it, the id of the image and the index of the view."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.augmentations if name not in AUGMENTATIONS]
        if unknown:
            raise InputError(
                f"there is no augmentation {unknown[0]!r}: choose from {', '.join(AUGMENTATIONS)}"
            )
        if self.count and not self.augmentations:
            raise InputError("views without any augmentation would only repeat the image")

    def all(self, image: Image.Image, name: str) -> list[Image.Image]:
        """Return the image itself, then its views."""
        return [self.view(image, name, index) for index in range(self.count + 1)]

    def view(self, image: Image.Image, name: str, index: int) -> Image.Image:
        """Return one view; 0 is the image itself."""
        if index == 0:
            return image
        rng = np.random.default_rng([self.seed, zlib.crc32(name.encode()), index])
        for augmentation, apply in AUGMENTATIONS.items():
            if augmentation in self.augmentations:
                image = apply(image, rng)
        return image
