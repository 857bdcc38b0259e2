"""Decode image files to upright 8-bit RGB images, and resize them."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError
from rpml.runtime.extras import require
from rpml.runtime.wording import one_line

if TYPE_CHECKING:
    from PIL import Image, ImageOps, UnidentifiedImageError
else:
    Image = require("PIL.Image", "vision", "reading images")
    ImageOps = require("PIL.ImageOps", "vision", "reading images")
    UnidentifiedImageError = Image.UnidentifiedImageError

MAX_PIXELS = 100_000_000
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000")
"""Formats to decode, whatever the suffix: others run programs (EPS) or are rarely tested."""
_HIGH_BIT_DEPTH = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")


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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the size limit is checked below; metadata is not used
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
        return _to_rgb(_upright(image))


def _upright(image: Image.Image) -> Image.Image:
    try:
        turned: Image.Image = ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF does not spoil the pixels
        return image
    return turned


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
