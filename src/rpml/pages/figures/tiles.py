"""Pictures of rows as square tiles: those of retrieval rows, and the quad-grid."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.pages.layout import grid_side, snap_to_grid
from rpml.runtime.extras import require
from rpml.runtime.rows import Array

TOP = 4  # images shown for a query, as in the paper
GRID_IMAGES = 2500
TILE, GRID_TILE = 224, 48  # pixels per picture in the rows and in the grid
Tiles = NDArray[np.uint8]
PictureReader = Callable[[Sequence[int], int], Tiles]
"""(rows, side in pixels) -> square images (n, side, side, 3)."""


def pictures_of(paths: Sequence[Path]) -> PictureReader:
    """Return a reader of pictures from files, one per row."""
    return lambda rows, side: load_tiles([paths[i] for i in rows], side)


def load_tiles(paths: Sequence[Path], side: int) -> Tiles:
    """Load the central squares of images, (n, side, side, 3); unreadable ones are gray."""
    decode = require("rpml.vision.decode", "vision", "pictures of images")
    tiles = np.full((len(paths), side, side, 3), 128, np.uint8)
    for tile, path in zip(tiles, paths, strict=True):
        try:
            image = decode.load_rgb(path, enough=2 * side)
        except decode.ImageError:
            continue
        edge = min(image.size)
        left, top = ((length - edge) // 2 for length in image.size)
        tile[:] = decode.as_array(image.crop((left, top, left + edge, top + edge)), (side, side))
    return tiles


def choose_queries(
    nearest: NDArray[np.intp], labels: NDArray[np.generic], count: int, successful: bool
) -> NDArray[np.intp]:
    """Return up to `count` queries with mostly right (or, if not `successful`, wrong) results.

    At least three of the four `nearest` rows must be of the query's class, or at most one. Each
    class has at most one query, the first that qualifies, and the queries are spread evenly over
    the classes. Classes of fewer than five images are skipped.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    right = (codes[nearest] == codes[:, None]).sum(axis=1)
    wanted = right >= TOP - 1 if successful else right <= 1
    wanted &= np.bincount(codes, minlength=len(classes))[codes] > TOP
    rows = np.flatnonzero(wanted)
    firsts = rows[np.unique(codes[rows], return_index=True)[1]]
    spread = np.linspace(0, len(firsts) - 1, min(count, len(firsts))).round().astype(np.intp)
    return firsts[spread]


def grid_order(
    Z: Array, rng: np.random.Generator, most: int = GRID_IMAGES
) -> tuple[NDArray[np.intp], int]:
    """Arrange up to `most` rows on a square grid so that near rows are adjacent.

    A t-SNE map is snapped to the grid by linear assignment. Returns the rows, row by row from the
    top left, and the side of the grid.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    side = grid_side(min(len(Z), most), int(most**0.5))
    chosen = np.sort(rng.choice(len(Z), side * side, replace=False))
    points = np.asarray(Z[chosen], np.float32)
    if len(chosen) < 4:
        return chosen.astype(np.intp), side
    size = min(50, points.shape[1], len(points) - 1)
    points = _principal(points, size)
    seed = int(rng.integers(2**31 - 1))
    perplexity = min(30.0, (len(points) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init="pca", random_state=seed)
    # below a thousand rows its threads wait for each other longer than they work
    with threadpool_limits(1 if len(points) < 1000 else None):
        flat = tsne.fit_transform(points)
    low, high = flat.min(axis=0), flat.max(axis=0)
    order = snap_to_grid((flat - low) / np.where(high > low, high - low, 1), side)
    return chosen[order].astype(np.intp), side


def _principal(rows: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Project the rows on their strongest axes, as usual before t-SNE."""
    centered = rows - rows.mean(axis=0)
    _, _, axes = np.linalg.svd(centered, full_matrices=False)
    return np.asarray(centered @ axes[:size].T, np.float32)


def quad_grid(tiles: Tiles, side: int) -> Tiles:
    """Arrange pictures (side * side, t, t, 3) row by row as one picture, a pixel apart."""
    padded = np.pad(tiles, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=255)
    t = padded.shape[1]
    rows = padded.reshape(side, side, t, t, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(rows.reshape(side * t, side * t, 3)[:-1, :-1])
