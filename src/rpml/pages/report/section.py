"""A section of the report, and what sections show: charts and tables of values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rpml.pages.report.measurements import Measurements
    from rpml.runtime.intervals import Interval

Content = dict[str, object]
PLACES = {"percent": 1, "tenths": 1, "number": 2, "whole": 0}


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
class Figure:
    """A chart (SVG, already escaped) with its heading."""

    heading: str
    svg: str


class Cell(NamedTuple):
    """A value of the table as text, with its interval and a note."""

    text: str
    interval: str
    best: bool
    note: str = ""


class Line(NamedTuple):
    """A line of the table."""

    name: str
    reading: str
    cells: list[Cell]


def format_value(value: float, style: str) -> str:
    if style == "percent":
        return f"{100 * value:.1f}%"
    return f"{value:,.{PLACES[style]}f}".replace("-", "−")


def format_interval(bounds: Interval | None, style: str) -> str:
    """Format the bounds of an interval; empty without one."""
    if bounds is None:
        return ""
    scale = 100 if style == "percent" else 1
    ends = (f"{scale * v:,.{PLACES[style]}f}" for v in (bounds.low, bounds.high))
    low, high = (end.replace("-", "−") for end in ends)
    return f"{low} – {high}"
