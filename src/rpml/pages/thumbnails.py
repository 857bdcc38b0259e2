"""Pictures of the rows, re-encoded: as data URIs within a budget, or one by one."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from rpml.pages.items import Items

SIDES = (96, 80, 64, 48, 40, 32)
MAX_PIXELS = 50_000_000
SMALL, LARGE = 256, 900  # sides in the explorer
_FEW_COLORS = 64  # line drawings, for which PNG is smaller than WebP and sharp
_TRIED = 32
_TINY = 40  # smaller pictures are enlarged with hard pixels instead of a blur


@dataclass(frozen=True)
class Thumbnail:
    """An encoded picture."""

    data: bytes
    kind: str
    tiny: bool
    """Whether it is enlarged when shown."""

    @property
    def uri(self) -> str:
        """The src of an img element."""
        return f"data:{self.kind};base64,{base64.b64encode(self.data).decode('ascii')}"


def thumbnail(path: Path, side: int) -> Thumbnail | None:
    """Return the picture with its longer side at most `side`; None if it cannot be read."""
    from rpml.vision.decode import ImageError, load_rgb

    try:
        image = load_rgb(path, MAX_PIXELS, enough=2 * side)
    except ImageError:
        return None
    image.thumbnail((side, side))
    buffer, tiny = BytesIO(), max(image.size) < _TINY
    if image.getcolors(_FEW_COLORS) is not None:
        image.quantize(_FEW_COLORS).save(buffer, "PNG", optimize=True)
        return Thumbnail(buffer.getvalue(), "image/png", tiny)
    image.save(buffer, "WEBP", quality=68, method=2)
    return Thumbnail(buffer.getvalue(), "image/webp", tiny)


def fitting_side(paths: Sequence[Path | None], budget: int) -> int:
    """Estimate from a sample the largest side at which all fit (base64 takes 4 bytes for 3)."""
    tried = [path for path in paths[:: max(1, len(paths) // _TRIED)] if path is not None]
    for side in SIDES:
        made = [t for path in tried if (t := thumbnail(path, side)) is not None]
        mean = sum(len(t.data) for t in made) / max(1, len(made))
        if 1.2 * mean * 4 / 3 * len(paths) <= budget:
            return side
    return SIDES[-1]


class Pictures:
    """Re-encoded pictures of the rows, with a cache.

    Files outside `folder`, by a link created since the start, are not read.
    """

    def __init__(self, items: Items, folder: Path) -> None:
        self._images = items.images or []
        self._root = folder.resolve()
        self.get = lru_cache(maxsize=4096)(self._get)

    def _get(self, row: int, large: bool) -> Thumbnail | None:
        """Return the picture of a row; None if there is none or it cannot be read."""
        path = self._images[row] if row < len(self._images) else None
        try:
            real = None if path is None else path.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        if real is None or not real.is_relative_to(self._root):
            return None
        return thumbnail(real, LARGE if large else SMALL)
