"""Any picture file as an upright 8-bit RGB image of the wanted size."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError
from rpml.runtime.extras import require

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_Image: Any = require("PIL.Image", "vision", "reading images")
_ImageOps: Any = require("PIL.ImageOps", "vision", "reading images")

MAX_PIXELS = 100_000_000
_WIDE = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")


class ImageError(InputError):
    """An image cannot be used; the message is the reason, without the name."""


def load_rgb(path: str | Path, max_pixels: int = MAX_PIXELS, enough: int = 0) -> Picture:
    """Decode the first frame of an image file.

    EXIF orientation is applied; grey, palette, CMYK and 16-bit images become 8-bit RGB;
    transparent pixels are laid on white.

    Parameters
    ----------
    path : str or Path
        The file.
    max_pixels : int
        Larger images are refused before they are decoded (decompression bombs).
    enough : int
        A JPEG with sides several times longer than this is decoded at a fraction of its size,
        never below it. 0: always the full size.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # our own limit is below; odd metadata is no concern
            return _decode(path, max_pixels, enough)
    except ImageError:
        raise
    except FileNotFoundError:
        raise ImageError("there is no such file") from None
    except _Image.DecompressionBombError:
        raise ImageError(_too_large("it", max_pixels)) from None
    except _Image.UnidentifiedImageError:
        raise ImageError("not an image that can be read") from None
    except MemoryError:
        raise ImageError("not enough memory to decode it") from None
    except Exception as error:  # decoders raise anything on damaged files
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ImageError(f"cannot be decoded: {reason or type(error).__name__}") from error


def _too_large(what: str, limit: int) -> str:
    return f"{what} has more than the {limit:,} pixels allowed (--max-pixels)"


def _decode(path: str | Path, max_pixels: int, enough: int) -> Picture:
    with _Image.open(path) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise ImageError(_too_large(f"an image of {width} x {height}", max_pixels))
        if enough and image.format == "JPEG" and image.mode in ("RGB", "L"):
            image.draft(image.mode, (enough, enough))
        image.load()
        return _to_rgb(_upright(image))


def _upright(image: Picture) -> Picture:
    try:
        turned: Picture = _ImageOps.exif_transpose(image)
    except Exception:  # damaged EXIF does not spoil the pixels
        return image
    return turned


def _to_rgb(image: Picture) -> Picture:
    if image.mode in _WIDE:
        image = _Image.fromarray(_to_eight_bits(np.asarray(image)))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = _Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return _Image.alpha_composite(white, rgba).convert("RGB")  # type: ignore[no-any-return]
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_eight_bits(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Grey values of more than 8 bits; 32-bit ones have no fixed white, so their range decides."""
    if values.dtype.itemsize == 2:
        return np.rint(values / 257.0).astype(np.uint8)
    values = np.nan_to_num(values.astype(np.float64))
    top = float(values.max())
    white = next((w for w in (1.0, 255.0, 65535.0) if top <= w), top)
    return np.clip(np.rint(values * (255 / white)), 0, 255).astype(np.uint8)


def fit_long_side(size: tuple[int, int], long_side: int, least: int) -> tuple[int, int]:
    """(width, height) with the longer one `long_side`, the aspect kept as far as `least` allows.

    An image so thin that its shorter side would be below `least`, the smallest the network
    takes, is stretched to it.
    """
    factor = long_side / max(size)
    width, height = (max(least, round(side * factor)) for side in size)
    return width, height


def as_array(image: Picture, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The resized pixels, (height, width, 3), with antialiasing."""
    if image.size != size:
        image = image.resize(size, _Image.Resampling.BICUBIC)
    return np.asarray(image)
