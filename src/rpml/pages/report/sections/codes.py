"""Quality against bytes per vector, for the codes of every space."""

import numpy as np

from rpml.evaluation.codes import coded, nearest_rows
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.method.codes import BITS
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.report import charts
from rpml.pages.report.comparison import SampledLabels, Space
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import (
    Cell,
    Content,
    Figure,
    Line,
    Section,
    format_interval,
    format_value,
)
from rpml.runtime.intervals import Interval, interval
from rpml.runtime.rows import sorted_sample, unit_rows
from rpml.runtime.wording import counted

MAX_ROWS = 2000
SHOWN = {"float32": 32, **BITS}  # bits per dimension


def content(measurements: Measurements) -> Content:
    """Show neighbors retained, or Recall@1 with labels, by space and code."""
    spaces, rng = measurements.spaces, measurements.rng("codes")
    lines, figure = quality_by_code(spaces, measurements.labels, rng)
    how = (
        "The same vectors in fewer bytes: 8, 4, 2 bits or one bit per dimension. Queries are "
        "floats. Fewer bits leave bytes for more dimensions, which is often the better use of them "
        "(rpml compare --bytes). Small figures are 95% intervals."
    )
    return {"how": how, "spaces": spaces, "lines": lines, "figure": figure}


def quality_by_code(
    spaces: list[Space], labels: SampledLabels | None, rng: np.random.Generator
) -> tuple[list[Line], Figure]:
    """Return the table and its chart, measured on a sample of the rows, labeled ones if any."""
    labeled = np.arange(len(spaces[0].vectors)) if labels is None else labels.positions
    sampled = sorted_sample(len(labeled), MAX_ROWS, rng)
    y = None if labels is None else labels.values[sampled]
    raw, k = spaces[0].vectors[labeled[sampled]], min(NEAREST, len(sampled) - 1)
    near = nearest_neighbors(raw, k, metric="cosine").indices
    heading = (
        "Recall@1" if y is not None else "Of the nearest neighbors by the raw features, retained"
    )
    by_space: dict[str, dict[str, tuple[int, Interval]]] = {}
    for space in spaces:
        rows = unit_rows(np.asarray(space.vectors[labeled[sampled]], np.float32))
        by_space[space.key] = {}
        for code, bits in SHOWN.items():
            stored = rows if code == "float32" else coded(rows, code)
            nearest = nearest_rows(rows, stored, np.arange(len(rows)), k)
            per_row = neighbor_overlap(near, nearest, k) if y is None else y[nearest[:, 0]] == y
            n_bytes = -(-rows.shape[1] * bits // 8)
            by_space[space.key][code] = n_bytes, interval(per_row, rng)
    lines = [
        Line(code, "", [_cell(*by_code[code]) for by_code in by_space.values()]) for code in SHOWN
    ]
    series = [_series(space, [by_space[space.key][code][1] for code in SHOWN]) for space in spaces]
    chart = charts.line_chart(f"{heading} (%)", series, "code", names=list(SHOWN))
    return lines, Figure(f"{heading} (%)", chart)


def _series(space: Space, means: list[Interval]) -> charts.Series:
    ends = [(100 * m.low, 100 * m.high) for m in means]
    return charts.Series(space.title, space.key, [100 * m.value for m in means], ends)


def _cell(n_bytes: int, mean: Interval) -> Cell:
    text = format_value(mean.value, "percent")
    return Cell(text, format_interval(mean, "percent"), False, counted(n_bytes, "byte"))


TEMPLATE = """
<div class="side-by-side{% if spaces|length > 3 %} single{% endif %}">
{{ ui.scores(figure.heading, lines, spaces) }}
<div class="charts one">{{ ui.chart(figure) }}</div>
</div>
"""
SECTION = Section("codes", "Fewer bytes", content, TEMPLATE)
