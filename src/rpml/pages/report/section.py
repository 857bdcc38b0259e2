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

    Attributes
    ----------
    anchor : str
        The id of the section in the page.
    title : str
    content : callable
        From the measurements to the values of the template; None leaves the section out.
        The value "how" is the sentence that tells how to read the section.
    template : str
        Jinja2 HTML; the macros of ``macros.html`` are available as ``ui``.
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
