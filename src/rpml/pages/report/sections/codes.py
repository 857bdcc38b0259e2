"""Bytes per vector against quality: the codes of every space."""

import numpy as np

from rpml.evaluation.codes import score_codes
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.report import charts
from rpml.pages.report.comparison import N_NEIGHBORS, Labels, Space
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Figure, Section
from rpml.pages.report.sections.scores import Cell, Line, format_value
from rpml.runtime.rows import sorted_sample, unit_rows

MAX_ROWS = 2000
SHOWN = {"float32": "float32", "int8": "int8", "binary + int8": "bits, rescored", "binary": "bits"}


def content(measurements: Measurements) -> Content:
    """Neighbors retained, or Recall@1 where there are labels, by space and code."""
    spaces, rng = measurements.spaces, measurements.rng("codes")
    lines, figure = quality_by_code(spaces, measurements.labels, rng)
    how = (
        "The same vectors in fewer bytes: int8 per dimension, one sign bit per dimension, and sign "
        f"bits whose {4 * N_NEIGHBORS} nearest are ranked again by int8, which takes the bytes of "
        "both. Queries are floats."
    )
    return {"how": how, "spaces": spaces, "lines": lines, "figure": figure}


def quality_by_code(
    spaces: list[Space], labels: Labels | None, rng: np.random.Generator
) -> tuple[list[Line], Figure]:
    """The table and its chart, measured on a sample of the rows, labeled ones if there are."""
    known = np.arange(len(spaces[0].vectors)) if labels is None else labels.positions
    some = sorted_sample(len(known), MAX_ROWS, rng)
    y = None if labels is None else labels.values[some]
    raw, k = spaces[0].vectors[known[some]], min(N_NEIGHBORS, len(some) - 1)
    near = nearest_neighbors(raw, k, metric="cosine").indices
    figure, heading = "neighbors_kept", "Of the nearest neighbors by the raw features, retained"
    if labels is not None:
        figure, heading = "recall@1", "Recall@1"
    found = {}
    for space in spaces:
        rows = unit_rows(np.asarray(space.vectors[known[some]], np.float32))
        scored = score_codes(rows, rows, near, y, learned=False)
        found[space.key] = {row["code"]: row for row in scored}
    lines = [
        Line(title, "", [_cell(by_code[code], figure) for by_code in found.values()])
        for code, title in SHOWN.items()
    ]
    series = [
        charts.Series(space.title, space.key, [100 * found[space.key][c][figure] for c in SHOWN])
        for space in spaces
    ]
    chart = charts.line_chart(f"{heading} (%)", series, "code", names=list(SHOWN.values()))
    return lines, Figure(f"{heading} (%)", chart)


def _cell(row: dict[str, float], figure: str) -> Cell:
    return Cell(format_value(row[figure], "percent"), f"{row['bytes']:,} bytes", False)


TEMPLATE = """
<div class="side-by-side">
{{ ui.scores(figure.heading, lines, spaces) }}
<div class="charts one">{{ ui.chart(figure) }}</div>
</div>
"""
SECTION = Section("codes", "Fewer bytes", content, TEMPLATE)
