"""The table of a comparison: means over seeds, bootstrap intervals, differences to PCA."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.registry import REFERENCE, Method
from rpml.runtime.context import Json
from rpml.runtime.errors import require
from rpml.runtime.intervals import Interval, bounded, interval, paired
from rpml.runtime.wording import text_table

if TYPE_CHECKING:
    import pandas


SCORES = (
    *(f"recall@{k}" for k in KS),
    *("nmi", "f", "precision", "recall", "recall@1 across"),
)
FIGURES = ("neighbors_kept", "effective_rank", "hubness", "seconds")
_BOUNDS = tuple(
    f"{name}_{end}" for name in ("nmi", "effective_rank", "hubness") for end in ("low", "high")
)
_PERCENT = (*SCORES, "neighbors_kept", "embedding_kept", "gain")
_SHORT = {"recall@1": "R@1", "gain": "vs PCA", "recall@8": "R@8", "nmi": "NMI"}
_SHORT_LABEL_FREE = {"effective_rank": "effective rank", "hubness": "hubness"}
Cell = Json
Row = Json


@dataclass(frozen=True)
class Comparison:
    """The measured cells and their table."""

    cells: list[Cell]
    order: list[tuple[Method, int]]
    """(method, dimension) of each row of the table."""

    @cached_property
    def rows(self) -> list[Row]:
        """One dict per method and dimension: means over seeds, shares in [0, 1]."""
        return [self._row(method, dim) for method, dim in self.order]

    def hits(self, method: str, dim: int, k: int = 1) -> NDArray[np.float64] | None:
        """Return the share of seeds in which each query is right; None without labels."""
        ranks = [c["ranks"] for c in self._cells(method, dim) if "ranks" in c]
        return np.mean([r < k for r in ranks], axis=0) if ranks else None

    def difference(self, method: str, other: str, dim: int) -> Interval | None:
        """Return the R@1 gain of one method over another on the same queries."""
        one, two = self.hits(method, dim), self.hits(other, dim)
        if one is None or two is None:
            return None
        return paired(one, two, np.random.default_rng(0))

    def frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return require("pandas", "compare", "Comparison.frame").DataFrame(self.rows)

    def markdown(self) -> str:
        """Return a Markdown table in percent; rows that use labels are in italics."""
        return markdown_text(self.lines())

    def lines(self) -> list[list[str]]:
        """Return header and rows as text."""
        columns = [c for c in (*SCORES, *FIGURES) if any(c in row for row in self.rows)]
        gains = {"gain": "R@1 gain over PCA"} if "recall@1" in columns else {}
        lines = [["method", "dim", *columns, *gains.values()]]
        for row in self.rows:
            title = f"*{row['title']}*" if row["uses_labels"] else row["title"]
            cells = [figure_text(row, column) for column in (*columns, *gains)]
            lines.append([title, str(row.get("dim", "–")), *cells])
        return lines

    def short_lines(self) -> list[list[str]]:
        """Return the columns that fit into a terminal, intervals as half of their width."""
        labeled = any("recall@1" in row for row in self.rows)
        columns = {**(_SHORT if labeled else _SHORT_LABEL_FREE), "neighbors_kept": "kept"}
        if any("recall@1 across" in row for row in self.rows):
            columns["recall@1 across"] = "R@1 across"
        columns["seconds"] = "seconds"
        lines = [["method", "dim", *columns.values()]]
        for row in self.rows:
            figures = [figure_text(row, name, short=True) for name in columns]
            lines.append([row["title"], str(row.get("dim", "–")), *figures])
        return lines

    def write(self, path: str | Path) -> None:
        """Write the rows as .csv, .json or .md, by the suffix."""
        text = table_text(self.rows, self.lines(), Path(path).suffix)
        Path(path).write_text(text, encoding="utf8")

    def __str__(self) -> str:
        return text_table(self.short_lines())

    def _cells(self, method: str, dim: int) -> list[Cell]:
        return [c for c in self.cells if c["method"] == method and c["asked"] == dim]

    def _row(self, method: Method, dim: int) -> Row:
        cells = self._cells(method.name, dim)
        row: Row = {
            "method": method.name,
            "title": method.title,
            "uses_labels": method.uses_labels,
            "asked": dim,
            "seeds": len(cells),
        }
        measured = [c for c in cells if "error" not in c]
        row |= next(({"error": c["error"]} for c in cells if "error" in c), {})
        if not measured:
            return row
        row["dim"] = measured[0]["dim"]
        for name in (*SCORES, *FIGURES, *_BOUNDS):
            if all(name in cell for cell in measured):
                row[name] = float(np.mean([c[name] for c in measured]))
        if all("overlap" in c for c in measured):
            overlap = np.mean([c["overlap"] for c in measured], axis=0)
            row |= mean_figure("neighbors_kept", overlap)
        for k in KS:
            if (hits := self.hits(method.name, dim, k)) is not None:
                row |= mean_figure(f"recall@{k}", hits)
        gain = None
        if method.name != REFERENCE:
            gain = self.difference(method.name, REFERENCE, dim)
        return row if gain is None else row | bounded("gain", gain)


def mean_figure(name: str, values: NDArray[np.generic]) -> dict[str, float]:
    """Return the mean of a value per query with its 95% interval, under the names of a table."""
    return bounded(name, interval(values, np.random.default_rng(0)))


def table_text(rows: Sequence[Row], lines: Sequence[list[str]], ending: str) -> str:
    """Format rows as the content of a .csv or .json file, or lines as that of an .md file."""
    if ending == ".md":
        return markdown_text(lines)
    if ending == ".json":
        return json.dumps(rows, indent=2) + "\n"
    if ending != ".csv":
        raise ValueError(f"{ending!r}: the name must end in .csv, .json or .md.")
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def markdown_text(lines: Sequence[list[str]]) -> str:
    """Format header and rows as a Markdown table with figures to the right."""
    header, *body = lines
    marks = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, marks, *body]) + "\n"


def figure_text(row: Row, column: str, short: bool = False) -> str:
    """Format a figure with its 95% interval, if it has one: both ends, or half of its width."""
    if column not in row:
        return "" if column == "gain" else "–"
    scale, sign = (100 if column in _PERCENT else 1), ("+" if column == "gain" else "")
    low, high = (scale * row.get(f"{column}_{end}", 0.0) for end in ("low", "high"))
    shown = f"{scale * row[column]:{sign}z.1f}"
    if low == high:
        return shown
    return (
        f"{shown} ±{(high - low) / 2:.1f}"
        if short
        else (f"{shown} [{low:{sign}z.1f}, {high:{sign}z.1f}]")
    )
