"""A section of the report: a title, a template, and the function that fills it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rpml.pages.report.measurements import Measurements

Content = dict[str, object]


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
