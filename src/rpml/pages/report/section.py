"""A section of the report, and what sections show: tables, and items with their pictures."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rpml.pages.items import Items, fitting_side, thumbnail
from rpml.runtime.intervals import Interval

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
