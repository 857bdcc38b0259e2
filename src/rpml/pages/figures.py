"""Figures for papers, drawn with matplotlib: maps, retrieval rows and the quad-grid of pictures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.labels import labeled_mask
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.items import retrieval_queries
from rpml.pages.layout import grid_order, linked_maps
from rpml.runtime.errors import InputError, require
from rpml.runtime.files import atomic_outputs
from rpml.runtime.rows import AnyArray, Array, Indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.figure import Figure

RIGHT, WRONG, QUERY = (0, 158, 115), (213, 60, 20), (90, 90, 90)
PALETTE = ("#3260a2", "#c79a00", "#039773", "#f160b4", "#7598f9", "#ab4d02", "#41410d", "#1c0e84")
"""Colors of the largest classes, as in static/legend.js."""
MARKERS = "os^D"
_NAMED, _OTHER = 16, "#a0a0a0"  # classes with their own color and marker; color of the others
_UNLABELED = 999  # the rank of rows without a label
_GRAYS = {_UNLABELED: "#cdd2d9"}
_FRAME, _PITCH, _SPACE = 0.06, 1.06, 0.35  # in units of a picture's side
_NAME_SIZE, _TITLE_SIZE = 6.0, 8.0  # points; names are smaller if pictures are
_NAME_LINES = 4
_VECTOR_POINTS = 5000  # per class; more are rasterized in a PDF or SVG
_CHARACTER = 0.58  # width of a character relative to the font size
Group = tuple[str, int, Indices]
"""A name in the legend, its rank by size, and its rows."""


def retrieval_figure(
    read: Callable[[Sequence[int]], AnyArray],
    classes: AnyArray,
    queries: Indices,
    nearest: Mapping[str, Indices],
    width: float = 7.0,
) -> Figure:
    """Draw queries, one per line, and their nearest rows by each embedding side by side.

    Right ones are framed green, wrong ones red with a cut corner, for color-blind readers. The name
    of its class is below every picture. `read` returns the pictures of rows as (n, side, side)
    values from 0 to 1 or RGB bytes, `nearest` maps titles to (n_queries, k) rows, and `width` is in
    inches.
    """
    columns = {"query": queries[:, None], **nearest}
    widths = [_PITCH * rows.shape[1] + _SPACE for rows in columns.values()]
    starts, across = np.cumsum([0.0, *widths]), sum(widths) - _SPACE
    points = 72 * width / across  # per side of a picture
    size = min(_NAME_SIZE, max(4.0, points / 5.5))
    shown = np.unique(np.concatenate([rows.ravel() for rows in columns.values()])).tolist()
    images = dict(zip(shown, read(shown), strict=True))
    names = {row: _wrapped(str(classes[row]), points / (0.6 * size)) for row in shown}
    lines = max(name.count("\n") + 1 for name in names.values())
    head, pitch = 2 * _TITLE_SIZE / points, 1 + (1.2 * lines + 0.7) * size / points
    figure, axes = _canvas(width, across, head + pitch * len(queries))
    for column, (title, rows) in enumerate(columns.items()):
        left = starts[column]
        axes.text(left, head / 2, title, va="center", fontsize=_TITLE_SIZE, parse_math=False)
        for (line, place), row in np.ndenumerate(rows):
            color = RIGHT if classes[row] == classes[queries[line]] else WRONG
            x, y = left + _PITCH * place, head + pitch * line
            _framed(axes, images[row], x, y, color if column else QUERY)
            below = y + 1 + 0.3 * size / points
            axes.text(x, below, names[row], va="top", fontsize=size, parse_math=False)
    return figure


def _canvas(width: float, across: float, down: float) -> tuple[Figure, Axes]:
    """Create a figure with one plane of `across` by `down` units, y downwards."""
    figures = require("matplotlib.figure", "report", "the picture")
    figure = figures.Figure(figsize=(width, width * down / across), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, across), ylim=(down, 0), autoscale_on=False)
    axes.set_axis_off()
    return figure, axes


def _framed(axes: Axes, image: AnyArray, x: float, y: float, color: tuple[int, int, int]) -> None:
    """Draw a picture in a colored frame, with a cut corner if it is wrong."""
    patches = require("matplotlib.patches", "report", "the picture")
    paint = tuple(part / 255 for part in color)
    axes.add_patch(patches.Rectangle((x, y), 1, 1, color=paint, linewidth=0, zorder=-1))
    extent = (x + _FRAME, x + 1 - _FRAME, y + 1 - _FRAME, y + _FRAME)
    darkest = 255 / 225  # ink between 0 and 1 is drawn in gray, on white
    axes.imshow(image, "gray_r", aspect="auto", vmin=0, vmax=darkest, extent=extent)
    if color == WRONG:
        corner = [(x + 1 - 4 * _FRAME, y), (x + 1, y), (x + 1, y + 4 * _FRAME)]
        axes.add_patch(patches.Polygon(corner, color=paint, linewidth=0, zorder=3))


class _Wrapper(TextWrapper):
    """Wraps names of classes also after dots, hyphens and underscores."""

    wordsep_re = re.compile(r"(\s+|[^\s._-]+[._-]*)")


def _wrapped(name: str, room: float) -> str:
    lines = _Wrapper(max(1, int(room)), max_lines=_NAME_LINES, placeholder="…").wrap(name)
    return "\n".join(lines)


def map_figure(
    maps: Mapping[str, Array], labels: AnyArray | None = None, width: float = 7.0
) -> Figure:
    """Draw maps, given as (n, 2) points in the unit square by title, side by side.

    Points are colored by label: the 16 largest classes have their own color and marker, the others
    are gray, and rows without a label (None, -1 or empty) light gray.
    """
    figures = require("matplotlib.figure", "report", "the picture")
    groups = _groups(labels, len(next(iter(maps.values()))))
    longest = max(len(name) for name, _, _ in groups)
    across = max(1, int(72 * width / ((longest * _CHARACTER + 3.5) * _TITLE_SIZE)))
    lines = -(-len(groups) // across)
    legend = 0 if labels is None else lines * 1.5 * (_TITLE_SIZE - 1) / 72 + 0.1
    side, head = width / len(maps), 2 * _TITLE_SIZE / 72
    height = side + head + legend
    figure: Figure = figures.Figure(figsize=(width, height), facecolor="white")
    for place, (title, points) in enumerate(maps.items()):
        box = (place / len(maps), legend / height, 1 / len(maps), side / height)
        axes = figure.add_axes(box, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axes.set_axis_off()
        axes.set_title(title, fontsize=_TITLE_SIZE, pad=2, parse_math=False)
        size = float(np.clip(1500 * side**2 / len(points), 0.3, 14))
        for _, rank, rows in groups:
            _scatter(axes, points[rows], rank, size)
    if labels is not None:
        _draw_legend(figure, groups, across)
    return figure


def _groups(labels: AnyArray | None, n: int) -> list[Group]:
    """Return the largest classes, the others and the unlabeled rows."""
    if labels is None:
        return [("items", 0, np.arange(n))]
    labeled = labeled_mask(labels)
    names = np.array([str(label) for label in labels])
    ranked = [name for name, _ in Counter(names[labeled].tolist()).most_common()]
    named = ranked if len(ranked) <= _NAMED + 1 else ranked[:_NAMED]
    groups = [(name, rank, labeled & (names == name)) for rank, name in enumerate(named)]
    others = f"{len(ranked) - len(named)} others"
    groups.append((others, _NAMED, labeled & ~np.isin(names, named)))
    groups.append(("none", _UNLABELED, ~labeled))
    return [
        (name if len(name) <= 40 else f"{name[:39]}…", rank, np.flatnonzero(mask))
        for name, rank, mask in groups
        if mask.any()
    ]


def _scatter(axes: Axes, points: Array, rank: int, size: float) -> PathCollection:
    named = rank < _NAMED
    return axes.scatter(
        points[:, 0],
        points[:, 1],
        s=size,
        color=PALETTE[rank % len(PALETTE)] if named else _GRAYS.get(rank, _OTHER),
        marker=MARKERS[(rank + rank // len(PALETTE)) % len(MARKERS)] if named else "o",
        linewidths=0,
        zorder=2 if named else 0 if rank == _UNLABELED else 1,
        rasterized=len(points) > _VECTOR_POINTS,
    )


def _draw_legend(figure: Figure, groups: Sequence[Group], across: int) -> None:
    nowhere = np.empty((0, 2))
    handles = [_scatter(figure.axes[0], nowhere, rank, 16) for _, rank, _ in groups]
    legend = figure.legend(
        handles,
        ["x" * len(name) for name, _, _ in groups],  # a name may look like mathematics
        loc="lower center",
        ncols=across,
        fontsize=_TITLE_SIZE - 1,
        frameon=False,
        handletextpad=0.2,
        columnspacing=1.0,
        borderpad=0.2,
    )
    for text, (name, _, _) in zip(legend.get_texts(), groups, strict=True):
        text.set(text=name, parse_math=False)


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
    labels: AnyArray | None = None,
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
        down, across = tiles.shape[:2]
        figures["quad-grid"], axes = _canvas(options.width, across, down)
        axes.imshow(tiles, extent=(0, across, down, 0), aspect="auto")
        if labels is not None:
            figures |= _retrievals(spaces, labels, pictures, options)
    paths = {
        Path(folder, f"{name}.{kind}"): figure
        for name, figure in figures.items()
        for kind in options.formats
    }
    matplotlib = require("matplotlib", "report", "the picture")
    with atomic_outputs(folder, overwrite) as scratch, matplotlib.rc_context(_SETTINGS):
        for path, figure in paths.items():
            kind = path.suffix[1:]
            with open(scratch / path.name, "wb") as file:
                figure.savefig(file, format=kind, dpi=options.dpi, metadata=_UNDATED[kind])
    return list(paths)


def _retrievals(
    spaces: Mapping[str, Array], labels: AnyArray, pictures: PictureReader, options: FigureOptions
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
