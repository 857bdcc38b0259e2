"""Pictures of rows, requested by row number, so that no path ever comes from a request."""

from functools import lru_cache
from pathlib import Path

from rpml.pages.items import Items
from rpml.pages.thumbnails import Thumbnail, thumbnail

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
