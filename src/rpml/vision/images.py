"""Image files: finding, decoding to upright 8-bit RGB, resizing, and augmented views of them.

The pixels are transformed by Pillow; only the random parameters of the views are drawn here (see
docs/decisions/written-by-hand.md).
"""

from __future__ import annotations

import math
import os
import stat
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.io.datasets.image_sets import IMAGE_SUFFIXES
from rpml.io.features.text_files import text_lines
from rpml.runtime.errors import InputError, one_line, require

if TYPE_CHECKING:
    from PIL import Image, ImageEnhance, ImageOps, UnidentifiedImageError
else:
    Image, ImageEnhance, ImageOps = (
        require(f"PIL.{name}", "vision", "reading images")
        for name in ("Image", "ImageEnhance", "ImageOps")
    )
    UnidentifiedImageError = Image.UnidentifiedImageError

MAX_PIXELS = 100_000_000
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000")
"""Formats to decode, whatever the suffix: others run programs (EPS) or are rarely tested."""
_HIGH_BIT_DEPTH = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")
CROP_AREA = (0.4, 1.0)
CROP_RATIO = (3 / 4, 4 / 3)
ROTATION_DEGREES = 10.0
JITTER = 0.3


@dataclass(frozen=True)
class ImageFile:
    """An image on disk; `id` names it in every output."""

    id: str
    path: Path


def find_images(source: str | Path) -> list[ImageFile]:
    """List the images of a folder and its subfolders, those of a .txt list, or a single image.

    The paths of a list, one per line, are relative to the list. Images of a folder are sorted by
    path, others in the order of the list. Ids are paths relative to the folder with ``/`` between
    their parts. Hidden files and other suffixes are ignored, and symbolic links that form a cycle
    are followed once.
    """
    source = Path(source)
    if source.is_dir():
        files = sorted(_walk(source), key=lambda file: file.id)
        if not files:
            raise InputError(
                f"{source} holds no images (looked for {' '.join(IMAGE_SUFFIXES)} "
                "in it and in the folders below)"
            )
        return files
    if not source.exists():
        raise InputError(f"cannot read {source}: there is no such file or folder")
    if source.suffix.lower() == ".txt":
        return _listed(source)
    return [ImageFile(printable(source.name), source)]


def _walk(root: Path) -> Iterator[ImageFile]:
    seen = set()
    closed: list[str] = []
    for folder, below, names in os.walk(root, True, lambda e: closed.append(e.filename), True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        # sorted, so that of two links to one folder the same one is always followed
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in names:
            if not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES:
                yield _below(root, Path(folder, name))
    for folder in closed:  # listed like an image, so that it is reported as a failure
        yield _below(root, Path(folder))


def _below(root: Path, path: Path) -> ImageFile:
    return ImageFile(printable(path.relative_to(root).as_posix()), path)


def _listed(source: Path) -> list[ImageFile]:
    names = [line.strip() for line in text_lines(source) if line.strip()]
    if not names:
        raise InputError(f"{source} lists no images")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(f"{source} lists {repeated[0]!r} twice: ids must be unique")
    return [ImageFile(name, source.parent / name) for name in names]


def printable(name: str) -> str:
    """Return the name as valid UTF-8, whatever the bytes of the file system are."""
    return name.encode("utf8", "backslashreplace").decode("utf8")


class ImageError(InputError):
    """An image cannot be used; the message is the reason, without the file name."""


def load_rgb(path: str | Path, max_pixels: int = MAX_PIXELS, enough: int = 0) -> Image.Image:
    """Decode the first frame of an image file; ImageError if that fails.

    The EXIF orientation is applied. Gray, palette, CMYK and 16-bit images become 8-bit RGB;
    transparent pixels are composed on white. Images of more than `max_pixels` are refused before
    they are decoded (decompression bombs). JPEGs may be decoded at a fraction of their size, with
    no side below `enough`; 0 means full size.
    """
    try:
        # the size limit is checked below; metadata is not used
        with warnings.catch_warnings(action="ignore"):
            return _decode(path, max_pixels, enough)
    except ImageError:
        raise
    except FileNotFoundError:
        raise ImageError("there is no such file") from None
    except Image.DecompressionBombError:
        raise ImageError(_too_large("it", max_pixels)) from None
    except UnidentifiedImageError:
        raise ImageError("not an image that can be read") from None
    except MemoryError:
        raise ImageError("not enough memory to decode it") from None
    except Exception as error:  # decoders raise anything on damaged files
        reason = getattr(error, "strerror", None) or one_line(error)
        raise ImageError(f"cannot be decoded: {reason or type(error).__name__}") from error


def _too_large(what: str, limit: int) -> str:
    return f"{what} has more than the {limit:,} pixels allowed (--max-pixels)"


def _decode(path: str | Path, max_pixels: int, enough: int) -> Image.Image:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ImageError("not a regular file")
    with Image.open(path, formats=FORMATS) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise ImageError(_too_large(f"an image of {width} x {height}", max_pixels))
        if enough and image.format == "JPEG" and image.mode in ("RGB", "L"):
            image.draft(image.mode, (enough, enough))
        image.load()
        upright: Image.Image = image
        with suppress(Exception):  # damaged EXIF does not spoil the pixels
            upright = ImageOps.exif_transpose(image)
        return _to_rgb(upright)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in _HIGH_BIT_DEPTH:
        image = Image.fromarray(_to_eight_bits(np.asarray(image)))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_eight_bits(values: NDArray[np.integer | np.floating]) -> NDArray[np.uint8]:
    """Scale gray values to 8 bits; for 32-bit values their range determines what is white."""
    if values.dtype.itemsize == 2:
        return np.asarray(np.rint(values / 257.0), np.uint8)
    gray = np.nan_to_num(values.astype(np.float64))
    top = float(gray.max())
    white = next((w for w in (1.0, 255.0, 65535.0) if top <= w), top)
    return np.clip(np.rint(gray * (255 / white)), 0, 255).astype(np.uint8)


def fit_long_side(size: tuple[int, int], long_side: int, least: int) -> tuple[int, int]:
    """Return (width, height) with the longer side `long_side` and the shorter at least `least`.

    The aspect ratio is preserved unless the shorter side would be below `least`, the smallest that
    the network accepts.
    """
    factor = long_side / max(size)
    width, height = (max(least, round(side * factor)) for side in size)
    return width, height


def as_array(image: Image.Image, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Resize with antialiasing to an array of shape (height, width, 3)."""
    if image.size != size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    return np.asarray(image)


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
