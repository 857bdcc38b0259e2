"""A section of the report, and what sections show: items with their pictures, and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from rpml.pages.items import Items, Thumbnail, fitting_side, thumbnail

if TYPE_CHECKING:
    from rpml.pages.report.measurements import Measurements
    from rpml.runtime.intervals import Interval

Content = dict[str, object]
_PLACES = {"percent": 1, "tenths": 1, "number": 2, "whole": 0}
_TONES = {"right": "same label", "wrong": "another label"}


@dataclass(frozen=True)
class Section:
    """One section; add it to the table in `rpml.pages.report.sections`.

    `anchor` is its id in the page. `content` returns the values of the template, of which "how" is
    the sentence on how to read the section, or None to omit it. `template` is Jinja2 HTML; the
    macros of ``macros.html`` are available as ``ui``.
    """

    anchor: str
    title: str
    content: Callable[[Measurements], Content | None]
    template: str


@dataclass(frozen=True)
class Score:
    """One line of a table: a measure in every space, and how to read it."""

    name: str
    reading: str
    style: str
    """"percent", "tenths", "number" or "whole"."""
    figures: dict[str, Interval]
    """By key of the space; bounds are equal for values that hold by definition."""
    uses_labels: bool = False
    best: str = ""
    """The space that is better than all others beyond chance, if any."""
    notes: dict[str, str] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """Return the value in a space."""
        return format_value(self.figures[key].value, self.style)

    def bounds(self, key: str) -> str:
        """Return the interval in a space; empty if the value is exact."""
        figure = self.figures[key]
        return "" if figure.low == figure.high else format_interval(figure, self.style)


def format_value(value: float, style: str) -> str:
    if style == "percent":
        return f"{100 * value:.1f}%"
    return f"{value:,.{_PLACES[style]}f}".replace("-", "−")


def format_interval(figure: Interval, style: str) -> str:
    scale = 100 if style == "percent" else 1
    low, high = (f"{scale * v:,.{_PLACES[style]}f}" for v in (figure.low, figure.high))
    return f"{low} – {high}".replace("-", "−")


@dataclass(frozen=True)
class ItemView:
    """An item with its picture and frame; `tone` is "" (unknown), "query", "right" or "wrong"."""

    id: str
    text: str
    label: str | None
    picture: Thumbnail | None
    tone: str = ""
    role: str = ""

    @property
    def alt(self) -> str:
        """The text alternative of the picture."""
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
        def made(row: int) -> Thumbnail | None:
            path = paths[row] if paths else None
            return None if path is None else thumbnail(path, side)

        self.thumbnail = made

    def view(self, row: int, tone: str = "", role: str = "") -> ItemView:
        """Return the view of one item."""
        items = self.items
        shown = items.ids[row], items.text(row), items.label(row), self.thumbnail(row)
        return ItemView(*shown, tone, role)

    def results(self, query: int, rows: Iterable[int]) -> list[ItemView]:
        """Return the views of results, framed as right or wrong if both labels are known."""
        wanted, views = self.items.label(query), []
        for row in rows:
            label = self.items.label(row)
            known = wanted is not None and label is not None
            views.append(self.view(row, ("wrong", "right")[label == wanted] if known else ""))
        return views
