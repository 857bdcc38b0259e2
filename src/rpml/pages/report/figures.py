"""Pictures of an embedding, drawn with matplotlib (extra 'report')."""

from collections.abc import Mapping
from os import PathLike
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.extras import require

RIGHT, WRONG, QUERY = (0, 158, 115), (213, 60, 20), (90, 90, 90)
_SCALE, _FRAME, _GAP = 2, 4, 4  # enlargement, frame and space between pictures, in pixels
_DPI = 100
Target = str | PathLike[str] | BinaryIO


def retrieval_rows(
    images: NDArray[np.generic],
    classes: NDArray[np.generic],
    queries: NDArray[np.intp],
    nearest: Mapping[str, NDArray[np.intp]],
    path: Target,
) -> None:
    """Draw queries and what each embedding finds nearest, right ones green and wrong ones red.

    Wrong ones also have a cut corner, for readers who do not see the colors.

    Parameters
    ----------
    images : (n, side, side) or (n, side, side, 3) array
        Ink from 0 to 1, drawn enlarged; or pictures of RGB bytes.
    classes : ndarray of shape (n_samples,)
        Class of each image.
    queries : int ndarray of shape (q,)
        Rows that are searched for, one a line.
    nearest : dict of title to (q, k) int array
        For each embedding the rows found, nearest first; the embeddings stand side by side.
    path : path or binary file
        Where to write; a path's suffix decides the format, a file gets PNG.
    """
    panels = [_panel(images, classes, queries, found) for found in nearest.values()]
    space = np.full((panels[0].shape[0], 6 * _GAP, 3), 255, dtype=np.uint8)
    column = _column([_framed(images[q], QUERY) for q in queries])
    canvas = np.concatenate([column, *(x for panel in panels for x in (space, panel))], axis=1)
    starts = [column.shape[1] + space.shape[1]]
    for panel in panels[:-1]:
        starts.append(starts[-1] + panel.shape[1] + space.shape[1])
    _write(canvas, dict(zip(nearest, starts, strict=True)), path)


def _panel(
    images: NDArray[np.generic],
    classes: NDArray[np.generic],
    queries: NDArray[np.intp],
    found: NDArray[np.intp],
) -> NDArray[np.uint8]:
    columns = []
    for place in range(found.shape[1]):
        rows = found[:, place]
        colors = [RIGHT if same else WRONG for same in classes[rows] == classes[queries]]
        framed = [_framed(images[r], c) for r, c in zip(rows, colors, strict=True)]
        columns.append(_column(framed))
    return np.concatenate(columns, axis=1)


def _framed(image: NDArray[np.generic], color: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A picture in a colored frame, with a cut corner if the color says wrong."""
    pixels = image if image.ndim == 3 else as_pixels(image, _SCALE)
    side = len(pixels) + 2 * _FRAME
    framed = np.empty((side, side, 3), dtype=np.uint8)
    framed[:] = color
    inside = slice(_FRAME, side - _FRAME)
    framed[inside, inside] = pixels
    if color == WRONG:
        down, right = np.indices((side, side))
        framed[right - down > side - 4 * _FRAME] = color
    return framed


def as_pixels(ink: NDArray[np.generic], scale: int = 1) -> NDArray[np.uint8]:
    """Dark ink on white, enlarged, as RGB bytes."""
    large = np.kron(np.asarray(ink, dtype=np.float64), np.ones((scale, scale)))
    gray = (255 - 225 * np.clip(large, 0, 1)).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=2)


def _column(framed: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    padded = [np.pad(f, ((0, _GAP), (0, _GAP), (0, 0)), constant_values=255) for f in framed]
    return np.concatenate(padded, axis=0)


def _write(canvas: NDArray[np.uint8], titles: dict[str, int], path: Target) -> None:
    """Put the canvas, pixel for pixel, under a line of titles at their columns."""
    figures = require("matplotlib.figure", "report", "the picture")
    head, margin = 46, 12
    height, width = canvas.shape[0] + head + margin, canvas.shape[1] + 2 * margin
    figure = figures.Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
    figure.figimage(canvas, xo=margin, yo=margin, origin="upper")
    line = 1 - head / 2 / height
    for title, start in {"query": 0, **titles}.items():
        figure.text((margin + start) / width, line, title, va="center", fontsize=11)
    figure.savefig(path, dpi=_DPI)
