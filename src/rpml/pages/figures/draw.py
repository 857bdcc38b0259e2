"""All figures of an embedding, written as PDF, SVG or PNG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.labels import labeled_mask
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.figures.plots import image_figure, map_figure, retrieval_figure
from rpml.pages.figures.tiles import (
    GRID_IMAGES,
    GRID_TILE,
    TILE,
    TOP,
    PictureReader,
    choose_queries,
    grid_order,
    quad_grid,
)
from rpml.pages.layout import linked_maps
from rpml.runtime.errors import InputError
from rpml.runtime.extras import require
from rpml.runtime.files import atomic_outputs
from rpml.runtime.rows import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    figures = {"map": map_figure(linked_maps(spaces, rng), labels, options.width)}
    if pictures is not None:
        *_, last = spaces.values()
        order, side = grid_order(last, rng, options.max_images)
        tiles = quad_grid(pictures(order.tolist(), GRID_TILE), side)
        figures["quad-grid"] = image_figure(tiles, options.width)
        if labels is not None:
            figures |= _retrievals(spaces, labels, pictures, options)
    paths = {
        Path(folder, f"{name}.{kind}"): figure
        for name, figure in figures.items()
        for kind in options.formats
    }
    with atomic_outputs(folder, overwrite) as outputs:
        for path, figure in paths.items():
            _write(figure, outputs.new(path), options.dpi)
    return list(paths)


def figure_names(has_pictures: bool, has_labels: bool) -> list[str]:
    """Return the names of the figures of `draw_figures`, without suffixes."""
    names = ["map", *(["quad-grid"] if has_pictures else [])]
    return names + (
        ["retrieval-successes", "retrieval-failures"] if has_pictures and has_labels else []
    )


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
    figures = {}
    for name, successful in (("successes", True), ("failures", False)):
        queries = choose_queries(last, labels, options.n_queries, successful)
        if not len(queries):
            continue
        rows_shown = np.column_stack([queries, *(rows[queries] for rows in nearest.values())])
        shown, places = np.unique(rows_shown, return_inverse=True)
        places = places.reshape(rows_shown.shape).astype(np.intp)
        panels = np.split(places[:, 1:], len(nearest), axis=1)
        figures[f"retrieval-{name}"] = retrieval_figure(
            pictures(labeled[shown].tolist(), TILE),
            np.asarray(labels)[shown],
            places[:, 0],
            dict(zip(nearest, panels, strict=True)),
            options.width,
        )
    return figures


def _write(figure: Figure, path: Path, dpi: int) -> None:
    matplotlib = require("matplotlib", "report", "the picture")
    kind = path.suffix[1:]
    with matplotlib.rc_context(_SETTINGS), open(path, "wb") as file:
        figure.savefig(file, format=kind, dpi=dpi, metadata=_UNDATED[kind])
