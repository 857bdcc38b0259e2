"""Constraints of `rpml fit`: files of pairs and triplets, checked before anything is computed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.io.features import Features
    from rpml.io.features.links import Links

WIDTHS = {"must_link": 2, "cannot_link": 2, "closer": 3}
_LINES = "One per line: ids or row numbers from 0, then an optional weight."

MustLink = Annotated[
    str | None, typer.Option(metavar="FILE", help=f"CSV of row pairs of the same class. {_LINES}")
]
CannotLink = Annotated[
    str | None, typer.Option(metavar="FILE", help="CSV of row pairs of different classes.")
]
Comparisons = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="CSV of rows a, b, c: a is closer to b than to c."),
]
Conflicts = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="Contradictions: raise an error, or weight (drop the lighter).",
    ),
]


def read_constraints(
    files: dict[str, str | None], data: Features, y: Any, conflicts: str
) -> dict[str, Any]:
    """Arguments of `RPML.fit`; contradictions are named by file and line."""
    from rpml.io.features.links import read_links
    from rpml.method.clustering.pseudo_labels import as_labels
    from rpml.method.supervision.constraints import gather

    if conflicts not in ("raise", "weight"):
        raise InputError(f"--conflicts {conflicts}: use raise or weight")
    n = len(data.values)
    read = {
        kind: read_links(path, width, n, data.ids)
        for kind, width in WIDTHS.items()
        if (path := files.get(kind)) is not None
    }
    if not read:
        return {}
    given: dict[str, Any] = {kind: links.values for kind, links in read.items()}
    try:
        gather(None if y is None else as_labels(y, n), n, **given, conflicts=conflicts)
    except ValueError as error:
        raise InputError(_by_line(str(error), read)) from None
    return {**given, "conflicts": conflicts}


def _by_line(text: str, read: dict[str, Links]) -> str:
    """The library's must_link[3] as the line of the file it came from."""

    def place(found: re.Match[str]) -> str:
        links = read[found[1]]
        lines = ", ".join(str(links.lines[int(i)]) for i in found[2].split(","))
        return f"{links.path}: line {lines}"

    text = re.sub(r"(must_link|cannot_link|closer)\[([\d, ]+)\]", place, text)
    return text.replace("set conflicts='weight'", "pass --conflicts weight").rstrip(".")
