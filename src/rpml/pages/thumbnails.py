"""Pictures of the rows, re-encoded: as data URIs within a budget, or one by one."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from rpml.pages.items import Items

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

SIDES = (96, 80, 64, 48, 40, 32)
MAX_PIXELS = 50_000_000
_FEW_COLORS = 64  # line drawings, for which PNG is smaller than WebP and sharp
_TRIED = 32
_TINY = 40  # smaller pictures are enlarged with hard pixels instead of a blur


@dataclass(frozen=True)
class Thumbnail:
    """An encoded picture."""

    data: bytes
    kind: str
    width: int
    height: int

    @property
    def uri(self) -> str:
        """The src of an img element."""
        return f"data:{self.kind};base64,{base64.b64encode(self.data).decode('ascii')}"

    @property
    def tiny(self) -> bool:
        """Whether it is enlarged when shown."""
        return max(self.width, self.height) < _TINY


def thumbnail(path: Path, side: int) -> Thumbnail | None:
    """Return the picture with its longer side at most `side`; None if it cannot be read."""
    from rpml.vision.decode import ImageError, load_rgb

    try:
        image = load_rgb(path, MAX_PIXELS, enough=2 * side)
    except ImageError:
        return None
    image.thumbnail((side, side))
    return encode(image)


def encode(image: Picture) -> Thumbnail:
    """Encode as PNG if there are few colors, otherwise as WebP."""
    buffer = BytesIO()
    if image.getcolors(_FEW_COLORS) is not None:
        image.quantize(_FEW_COLORS).save(buffer, "PNG", optimize=True)
        return Thumbnail(buffer.getvalue(), "image/png", *image.size)
    image.save(buffer, "WEBP", quality=68, method=2)
    return Thumbnail(buffer.getvalue(), "image/webp", *image.size)


class Thumbnails:
    """Thumbnails of items, encoded once, at a side that keeps all within a budget."""

    def __init__(self, items: Items, rows: Iterable[int], budget: int) -> None:
        self._images = items.images
        self._made: dict[int, Thumbnail | None] = {}
        self.side = SIDES[0]
        if self._images is not None:
            self.side = self._fitting(list(rows), budget)

    def __getitem__(self, row: int) -> Thumbnail | None:
        if self._images is None:
            return None
        if row not in self._made:
            path = self._images[row]
            self._made[row] = None if path is None else thumbnail(path, self.side)
        return self._made[row]

    def _fitting(self, rows: list[int], budget: int) -> int:
        """Estimate the largest side at which all fit from a sample (base64 takes 4 bytes for 3)."""
        assert self._images is not None
        tried = [self._images[row] for row in rows[:: max(1, len(rows) // _TRIED)]]
        paths = [path for path in tried if path is not None]
        for side in SIDES:
            made = [t for path in paths if (t := thumbnail(path, side)) is not None]
            mean = sum(len(t.data) for t in made) / max(1, len(made))
            if 1.2 * mean * 4 / 3 * len(rows) <= budget:
                return side
        return SIDES[-1]


SMALL, LARGE = 256, 900


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
        if path is None:
            return None
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        if not real.is_relative_to(self._root):
            return None
        return thumbnail(real, LARGE if large else SMALL)
