"""Quality against the number of components."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rpml.evaluation.metrics import first_hit_rank
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.solver.prefix import sizes_below
from rpml.pages.report import charts
from rpml.pages.report.comparison import SampledLabels
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Figure, Section
from rpml.runtime.intervals import interval
from rpml.runtime.rows import Array, sorted_sample

MAX_ROWS = 3000


def prefix_sizes(n_dims: int) -> list[int]:
    """Return 8, 16, 32, ... and the full size."""
    return [*reversed(sizes_below(n_dims)), n_dims]


def content(measurements: Measurements) -> Content | None:
    """Show neighbors retained and, with labels, Recall@1; None if there is no smaller size."""
    rng = measurements.rng("sizes")
    figures = quality_by_size(measurements.embedding.vectors, measurements.labels, rng)
    how = (
        "One fit serves every smaller size: the first components are an embedding of their own, "
        "rescaled to unit norm. Bars are 95% intervals. Choose the smallest size that is good "
        "enough."
    )
    return {"how": how, "figures": figures} if figures else None


def quality_by_size(
    vectors: Array, labels: SampledLabels | None, rng: np.random.Generator
) -> list[Figure]:
    """Draw charts over the prefix sizes, measured on a sample of the rows."""
    sizes = prefix_sizes(vectors.shape[1])
    if len(sizes) < 2:
        return []
    sample = vectors[sorted_sample(len(vectors), MAX_ROWS, rng)]
    k = min(NEAREST, len(sample) - 1)
    near = [nearest_neighbors(sample[:, :s], k, metric="cosine").indices for s in sizes]
    heading = f"Of the {k} nearest neighbors at full size, retained (%)"
    figures = [_chart(heading, sizes, [neighbor_overlap(near[-1], n, k) for n in near], rng)]
    if labels is not None:
        sampled = sorted_sample(len(labels), MAX_ROWS, rng)
        rows, y = vectors[labels.positions[sampled]], labels.values[sampled]
        hits = [first_hit_rank(rows[:, :s], y) < 1 for s in sizes]
        figures.append(_chart("Recall@1 (%)", sizes, hits, rng))
    return figures


def _chart(
    heading: str, sizes: list[int], values: Sequence[ArrayLike], rng: np.random.Generator
) -> Figure:
    """Draw means per size with 95% intervals."""
    means = [interval(per_row, rng) for per_row in values]
    line = charts.Series(
        heading,
        "rpml",
        [100 * m.value for m in means],
        [(100 * m.low, 100 * m.high) for m in means],
    )
    names = [str(s) for s in sizes]
    return Figure(heading, charts.line_chart(heading, [line], "components", names=names))


TEMPLATE = """
<div class="charts">{% for figure in figures %}{{ ui.chart(figure) }}{% endfor %}</div>
"""
SECTION = Section("sizes", "Smaller sizes", content, TEMPLATE)
