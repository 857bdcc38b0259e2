"""Figures for papers, written as files: maps, retrieval rows and the quad-grid of pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.labels import labeled_mask
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.items import retrieval_queries
from rpml.pages.layout import grid_order, linked_maps
from rpml.pages.plots import image_figure, map_figure, retrieval_figure
from rpml.runtime.errors import InputError, require
from rpml.runtime.files import atomic_outputs
from rpml.runtime.rows import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("map", "quad-grid", "retrieval-successes", "retrieval-failures")
"""The figures of `draw_figures`, of which those without pictures or labels are left out."""
TOP = 4  # images shown for a query, as in the paper
GRID_IMAGES = 2500
TILE, GRID_TILE = 224, 48  # pixels per picture in the rows and in the grid
Tiles = NDArray[np.uint8]
PictureReader = Callable[[Sequence[int], int], Tiles]
"""(rows, side in pixels) -> square images (n, side, side, 3)."""


def pictures_of(paths: Sequence[Path | None]) -> PictureReader:
    """Return a reader of the central squares of images, gray for those that cannot be read."""
    decode = require("rpml.vision.images", "vision", "pictures of images")

    def read(rows: Sequence[int], side: int) -> Tiles:
        tiles = np.full((len(rows), side, side, 3), 128, np.uint8)
        for tile, row in zip(tiles, rows, strict=True):
            path = paths[row]
            if path is None:
                continue
            try:
                image = decode.load_rgb(path, enough=2 * side)
            except decode.ImageError:
                continue
            edge = min(image.size)
            left, top = ((length - edge) // 2 for length in image.size)
            square = image.crop((left, top, left + edge, top + edge))
            tile[:] = decode.as_array(square, (side, side))
        return tiles

    return read


def quad_grid(tiles: Tiles, side: int) -> Tiles:
    """Arrange pictures (side * side, t, t, 3) row by row as one picture, a pixel apart."""
    padded = np.pad(tiles, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=255)
    t = padded.shape[1]
    rows = padded.reshape(side, side, t, t, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(rows.reshape(side * t, side * t, 3)[:-1, :-1])


FORMATS = ("pdf", "svg", "png")
MAX_PIXELS = 20_000  # width of a figure
# text stays text: editable, searchable, and accepted by publishers that refuse Type 3 fonts
_SETTINGS = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "rpml"}
_UNDATED = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


@dataclass(frozen=True)
class FigureOptions:
    """Options of the figures.

    Parameters
    ----------
    formats : tuple of {"pdf", "svg", "png"}, default=("png",)
        Every figure is written once per format.
    width : float, default=7.0
        Width in inches; 3.3 is one column of most journals.
    dpi : int, default=200
        Resolution of a PNG, and of the photographs in a PDF or SVG.
    n_queries : int, default=8
        Queries per retrieval figure.
    max_images : int, default=2500
        Images on the quad-grid.
    random_state : int, default=0
        Seed of the map and the quad-grid.
    """

    formats: tuple[str, ...] = ("png",)
    width: float = 7.0
    dpi: int = 200
    n_queries: int = 8
    max_images: int = GRID_IMAGES
    random_state: int = 0

    def __post_init__(self) -> None:
        unknown = [name for name in self.formats if name not in FORMATS]
        if unknown or not self.formats:
            raise InputError(f"figures are written as {', '.join(FORMATS)}, not as {unknown}")
        if not (self.width > 0 and self.dpi > 0 and self.width * self.dpi <= MAX_PIXELS):
            raise InputError(
                f"a figure of {self.width:g} inches at {self.dpi} dpi cannot be drawn: "
                f"the width must be positive and at most {MAX_PIXELS:,} pixels"
            )


def draw_figures(
    spaces: Mapping[str, Array],
    folder: str | PathLike[str],
    labels: NDArray[np.generic] | None = None,
    pictures: PictureReader | None = None,
    options: FigureOptions | None = None,
    overwrite: bool = True,
) -> list[Path]:
    """Write the map, and with pictures the quad-grid and the retrieval rows.

    Parameters
    ----------
    spaces : dict of title to ndarray of shape (n_samples, n_features)
        The same rows in each space, drawn side by side; the last one chooses the queries and is
        drawn on the grid.
    folder : str or Path
        Created if it does not exist.
    labels : ndarray of shape (n_samples,), default=None
        Names of the classes; None, -1 or empty if unknown. They color the map and are required for
        retrieval figures, which only use labeled rows.
    pictures : callable, default=None
        From rows and a side in pixels to square RGB pictures: `pictures_of(paths)`.
    options : FigureOptions, default=None
        Formats, sizes and numbers.
    overwrite : bool, default=True
        Replace existing files.

    Returns
    -------
    list of Path
        The files written. A retrieval figure without suitable queries is omitted.

    Examples
    --------
    >>> spaces = {"raw features": X, "RPML": model.transform(X)}  # doctest: +SKIP
    >>> draw_figures(spaces, "figures", y, options=FigureOptions(("pdf",), 3.3))  # doctest: +SKIP
    """
    options = FigureOptions() if options is None else options
    Path(folder).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(options.random_state)
    maps = linked_maps(spaces, rng)
    figures = {"map": map_figure(maps, labels, options.width)}
    if pictures is not None:
        order, side = grid_order([*maps.values()][-1], math.isqrt(options.max_images), rng)
        tiles = quad_grid(pictures(order.tolist(), GRID_TILE), side)
        figures["quad-grid"] = image_figure(tiles, options.width)
        if labels is not None:
            figures |= _retrievals(spaces, labels, pictures, options)
    paths = {
        Path(folder, f"{name}.{kind}"): figure
        for name, figure in figures.items()
        for kind in options.formats
    }
    with atomic_outputs(folder, overwrite) as scratch:
        for path, figure in paths.items():
            _write(figure, scratch / path.name, options.dpi)
    return list(paths)


def _retrievals(
    spaces: Mapping[str, Array],
    labels: NDArray[np.generic],
    pictures: PictureReader,
    options: FigureOptions,
) -> dict[str, Figure]:
    labeled = np.flatnonzero(labeled_mask(labels))
    labels = labels[labeled]
    nearest = {
        title: nearest_neighbors(rows[labeled], TOP, metric="cosine").indices.astype(np.intp)
        for title, rows in spaces.items()
    }
    *_, last = nearest.values()
    figures, chosen = {}, retrieval_queries(last, labels, options.n_queries)
    for name, queries in zip(("successes", "failures"), chosen, strict=True):
        if not len(queries):
            continue
        figures[f"retrieval-{name}"] = retrieval_figure(
            lambda rows: pictures(labeled[rows].tolist(), TILE),
            labels,
            queries,
            {title: near[queries] for title, near in nearest.items()},
            options.width,
        )
    return figures


def _write(figure: Figure, path: Path, dpi: int) -> None:
    matplotlib = require("matplotlib", "report", "the picture")
    kind = path.suffix[1:]
    with matplotlib.rc_context(_SETTINGS), open(path, "wb") as file:
        figure.savefig(file, format=kind, dpi=dpi, metadata=_UNDATED[kind])
