"""A section of the report, and what sections show: tables, items with pictures, charts.

Charts are inline SVG without scripts, drawn by a macro and colored by the page's style sheet.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rpml.pages.items import Items, fitting_side, thumbnail
from rpml.runtime.intervals import Interval
from rpml.runtime.rows import Array, Integers

if TYPE_CHECKING:
    from rpml.pages.report.measurements import Measurements, Score, Space

Content = dict[str, object]
Strip = tuple["list[ItemView]", str, str]
"""Items side by side, a remark and a heading."""
_TONES = {"right": "same label", "wrong": "another label"}


@dataclass(frozen=True)
class Section:
    """One section; add it to the table in `rpml.pages.report.sections`.

    `anchor` is its id in the page. `content` returns the values of the template, of which "how" is
    the sentence on how to read the section, or None to omit it. `template` is Jinja2 HTML and may
    include files of the folder templates; the macros of ``macros.html`` are available as ``ui``.
    """

    anchor: str
    title: str
    content: Callable[[Measurements], Content | None]
    template: str = '{% include "standard.html" %}'


class Cell(NamedTuple):
    """A cell of a table; `small` is shown below it, `mark` is "best", "concern" or empty."""

    text: str
    small: Sequence[str] = ()
    mark: str = ""


class Table(NamedTuple):
    """A title, (key of the space or "", title) of each column, and the lines.

    A line is a name, how to read it, and its cells.
    """

    title: str
    columns: Sequence[tuple[str, str]]
    lines: Sequence[tuple[str, str, Sequence[Cell]]]


def figure_cell(figure: Interval, style: str, *notes: str, mark: str = "") -> Cell:
    """Return a figure, formatted by a format specification, with its interval unless exact."""
    value, low, high = (format(v, style) for v in (figure.value, figure.low, figure.high))
    bounds = [] if figure.low == figure.high else [f"{low} – {high}".replace("%", "")]
    small = [text.replace("-", "−") for text in (*bounds, *notes)]
    return Cell(value.replace("-", "−"), small, mark)


def score_table(title: str, spaces: Sequence[Space], scores: Sequence[Score]) -> Table:
    lines = [
        (
            score.name,
            score.reading,
            [
                figure_cell(figure, score.style, mark="best" if key == score.best else "")
                for key, figure in score.figures.items()
            ],
        )
        for score in scores
    ]
    return Table(title, [(space.key, space.title) for space in spaces], lines)


class ItemView(NamedTuple):
    """An item with its picture and frame; `tone` is "" (unknown), "query", "right" or "wrong"."""

    id: str
    text: str
    label: str | None
    picture: str
    tone: str = ""
    role: str = ""

    @property
    def alt(self) -> str:
        label = self.label and f"label {self.label}"
        parts = [self.role, self.text, label, _TONES.get(self.tone)]
        return ", ".join(part for part in parts if part)


class Gallery:
    """Views of items, with thumbnails of a side at which those of `rows` fit into a budget."""

    def __init__(self, items: Items, rows: Iterable[int], budget: int) -> None:
        self.items = items
        paths = items.images or []
        side = fitting_side([paths[row] for row in rows] if paths else [], budget)

        @cache
        def encoded(row: int) -> str:
            path = paths[row] if paths else None
            picture = None if path is None else thumbnail(path, side)
            return "" if picture is None else base64.b64encode(picture).decode("ascii")

        self.encoded = encoded

    def view(self, row: int, tone: str = "", role: str = "") -> ItemView:
        items = self.items
        shown = items.ids[row], items.text(row), items.label(row), self.encoded(row)
        return ItemView(*shown, tone, role)

    def results(self, query: int, rows: Iterable[int]) -> list[ItemView]:
        """Return the views of results, framed as right or wrong if both labels are known."""
        wanted, views = self.items.label(query), []
        for row in rows:
            label = self.items.label(row)
            known = wanted is not None and label is not None
            views.append(self.view(row, ("wrong", "right")[label == wanted] if known else ""))
        return views


LEFT, RIGHT, TOP, BOTTOM = 66, 336, 12, 180  # pixels of the frame, as in macros.html
_TICKS = 5  # at most
_BINS = 32

Values = Sequence[float] | Array | Integers
Series = tuple[str, str, Values]
"""The name of a line, its color (a class of the style sheet) and its values."""
Ticks = Sequence[tuple[float, str]]
"""Pixels and texts."""


class Chart(NamedTuple):
    """What the macro `chart` draws, in pixels: lines over 0, 1, 2, ... or bars from left to right.

    `text` is the alternative of the picture, and a line has its color, its name and its points.
    """

    heading: str
    text: str
    x_label: str
    x_ticks: Ticks
    y_ticks: Ticks
    lines: Sequence[tuple[str, str, str]] = ()
    bars: Sequence[float] = ()
    """The upper ends."""


def number(value: float, digits: int = 6) -> str:
    return f"{value:,.{digits}g}".replace("-", "−")


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers within [low, high]."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _scale(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (stop - start)


def line_chart(title: str, series: Sequence[Series], x_label: str, log: bool = False) -> Chart:
    """Draw lines over 0, 1, 2, ...; on a logarithmic axis only their positive values."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lines = [np.log10(v) if log else np.asarray(v, float) for _, _, v in series]
    finite = np.concatenate([line[np.isfinite(line)] for line in lines])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - margin, high + margin
    y = _scale(low, high, BOTTOM, TOP)
    last = max(1, *(len(line) - 1 for line in lines))
    x = _scale(0, last, LEFT, RIGHT)
    marks = []
    for (name, tone, _), line in zip(series, lines, strict=True):
        points = (f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(line) if math.isfinite(v))
        marks.append((tone, name, " ".join(points)))
    y_ticks = [(y(t), number(10**t, 2) if log else number(t)) for t in ticks(low, high)]
    changes = "; ".join(
        f"{name} from {number(v[0], 3)} to {number(v[-1], 3)}" for name, _, v in series
    )
    x_ticks = [(x(t), number(t)) for t in ticks(0, last)]
    return Chart(title, f"{title} over {x_label}: {changes}", x_label, x_ticks, y_ticks, marks)


def histogram(title: str, values: Values, x_label: str, doubling: bool = False) -> Chart:
    """Draw counts in bins of equal width, or of doubling width (for sizes)."""
    data = np.asarray(values, np.float64)
    low, high = float(data.min()), float(data.max())
    if doubling:
        edges = 2.0 ** np.arange(max(1, math.ceil(math.log2(high + 1))) + 1)
    else:
        margin = 0.05 * max(1.0, abs(high)) if high - low < 1e-9 * max(1.0, abs(high)) else 0.0
        edges = np.linspace(low - margin, high + margin, _BINS + 1)
    counts, _ = np.histogram(data, edges)
    y, x = _scale(0, float(counts.max()), BOTTOM, TOP), _scale(0, len(counts), LEFT, RIGHT)
    step = max(1, len(counts) // 4) if not doubling else max(1, math.ceil(len(counts) / 7))
    x_ticks = [(x(i), number(edges[i], 3)) for i in range(0, len(edges), step)]
    y_ticks = [(y(t), number(t)) for t in ticks(0, float(counts.max())) if t == int(t)]
    fullest = int(counts.argmax())
    text = (
        f"{title}: {len(data):,} values from {number(low, 3)} to {number(high, 3)}, median "
        f"{number(float(np.median(data)), 3)}, most of them between {number(edges[fullest], 3)} "
        f"and {number(edges[fullest + 1], 3)}"
    )
    return Chart(title, text, x_label, x_ticks, y_ticks, bars=[y(c) for c in counts.tolist()])
