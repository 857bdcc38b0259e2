"""The table of scores before and after, and the differences in Recall@K."""

from rpml.pages.report import charts
from rpml.pages.report.comparison import Score, SpaceComparison
from rpml.pages.report.measurements import Measurements, Source
from rpml.pages.report.section import (
    Cell,
    Content,
    Figure,
    Line,
    Section,
    format_interval,
    format_value,
)


def content(measurements: Measurements) -> Content:
    """Show scores with and without labels; a clearly best value is marked."""
    comparison, spaces = measurements.comparison, measurements.spaces
    keys = [space.key for space in spaces]
    labels = measurements.labels
    n_measured = len(measurements.rows)
    how = (
        "Small figures are 95% intervals; bold marks a value that is better than all others "
        "beyond chance."
    )
    if labels is not None and len(labels) < n_measured:
        how += (
            f" {len(labels):,} of {n_measured:,} items have a label: the scores with labels are "
            "measured on these alone, searching among these alone."
        )
    return {
        "how": how,
        "spaces": spaces,
        "with_labels": [_line(s, keys) for s in comparison.scores if s.uses_labels],
        "without_labels": [_line(s, keys) for s in comparison.scores if not s.uses_labels],
        "differences": differences(comparison, measurements.source),
    }


def _line(score: Score, keys: list[str]) -> Line:
    cells = [
        Cell(
            format_value(score.values[key], score.style),
            format_interval(score.intervals.get(key), score.style),
            key == score.best,
        )
        for key in keys
    ]
    return Line(score.name, score.reading, cells)


def differences(comparison: SpaceComparison, source: Source) -> Figure | None:
    """Draw differences in Recall@K to each alternative; None without labels."""
    names = {"raw": "raw", "pca": "PCA", "second": source.second}
    ranges = [
        charts.Range(f"R@{k}, vs {names[key]}", key, 100 * g.value, 100 * g.low, 100 * g.high)
        for key, gains in comparison.differences.items()
        for k, g in gains.items()
        if k in (1, 4)
    ]
    if not ranges:
        return None
    heading = f"Recall@K of {source.models[0]} minus that of the alternative"
    return Figure(heading, charts.interval_chart(heading, ranges, "percentage points"))


TEMPLATE = """
{% if with_labels %}
<div class="side-by-side{% if spaces|length > 3 %} single{% endif %}">
{{ ui.scores("With labels", with_labels, spaces) }}
<div class="charts one">{{ ui.chart(differences) }}
<p class="note">
  To the right of 0 the embedding is better. A difference whose interval includes 0 may be chance.
</p></div>
</div>
<div class="spaced">{{ ui.scores("Without labels", without_labels, spaces) }}</div>
{% else %}
{{ ui.scores("Without labels", without_labels, spaces) }}
{% endif %}
"""
SECTION = Section("table", "Before and after", content, TEMPLATE)
