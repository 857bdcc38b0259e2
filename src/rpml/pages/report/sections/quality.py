"""Sections about the quality of the embedding: scores, evidence, spectrum, sizes, codes."""

import numpy as np

from rpml.evaluation.codes import coded
from rpml.evaluation.metrics import first_hit_rank
from rpml.evaluation.metrics.label_free import NEAREST, neighbor_overlap
from rpml.evaluation.registry import METHODS, REFERENCE
from rpml.method.codes import BITS
from rpml.method.graph.heaps import nearest_rows
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.solver.prefix import sizes_below
from rpml.method.whitening.calibration import expected_gain
from rpml.pages.report import charts
from rpml.pages.report.measurements import Measurements, SampledLabels, Space
from rpml.pages.report.section import Content, Score, Section, format_interval, format_value
from rpml.pages.report.verdict import bounds, signed
from rpml.runtime.intervals import Interval, interval
from rpml.runtime.rows import Array, sorted_sample, unit_rows
from rpml.runtime.wording import counted


def _scores(measurements: Measurements) -> Content:
    """Show scores with and without labels; a clearly best value is marked."""
    labels, n_measured = measurements.labels, len(measurements.rows)
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
        "spaces": measurements.spaces,
        "with_labels": [s for s in measurements.scores if s.uses_labels],
        "without_labels": [s for s in measurements.scores if not s.uses_labels],
        "differences": _differences(measurements),
    }


_COMPARED = (1, 4)  # K


def _differences(measurements: Measurements) -> charts.Chart | None:
    """Draw differences in Recall@K to each alternative; None without labels."""
    source = measurements.source
    names = {"raw": "raw", "pca": "PCA", "second": source.second}
    shown = [
        charts.Series.of_shares(f"R@{k}, vs {names[key]}", key, [gain])
        for key, gains in measurements.differences.items()
        for k, gain in gains.items()
        if k in _COMPARED
    ]
    heading = f"Recall@K of {source.models[0]} minus that of the alternative"
    return charts.interval_chart(heading, shown, "percentage points") if shown else None


_SCORES_TEMPLATE = """
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
SCORES = Section("table", "Before and after", _scores, _SCORES_TEMPLATE)


def _evidence(measurements: Measurements) -> Content | None:
    """Show the rank gains of the methods; None with labels or too few rows."""
    advice = measurements.advice
    if advice is None or not advice.evidence:
        return None
    ranked = sorted(advice.evidence.items(), key=lambda pair: -pair[1].value)
    return {
        "how": (
            "The features were split into two halves. Rows that are near by one half should rank "
            "high by the other: the rank gain is how much the mean logarithm of that rank falls, "
            "compared with PCA. RPML is judged with its default settings. Small figures are 95% "
            "intervals unless stated otherwise."
        ),
        "methods": [
            (METHODS[name].title, _rank_gain(name, gain), _expected(name, gain.value))
            for name, gain in ranked
        ],
        "kept": [
            (size, format_value(share.value, "percent"), format_interval(share, "percent"))
            for size, share in advice.neighbors_kept.items()
        ],
        "size": advice.n_components,
    }


def _rank_gain(name: str, gain: Interval) -> tuple[str, str]:
    """Return the rank gain and its interval as texts."""
    exact = name == REFERENCE or gain.low == gain.high  # RPML fell back to PCA
    bounds = "" if exact else f"{signed(gain.low, 2)} to {signed(gain.high, 2)}"
    return signed(gain.value, 2), bounds


def _expected(name: str, rank_gain: float) -> tuple[str, str]:
    """Return the gain at such a rank gain on the calibration sets, at least zero, as texts."""
    if name == "raw":  # of another size, where the rank gain is not calibrated
        return "not known", ""
    if name == REFERENCE or rank_gain < 0:
        return "reference" if name == REFERENCE else "none", ""
    gain = expected_gain(rank_gain)
    return f"{signed(100 * gain.value)} points", bounds(gain)


_EVIDENCE_TEMPLATE = """
<div class="halves">
<div class="scroller" role="region" aria-label="Rank gains" tabindex="0">
<table class="scores">
  <thead><tr>
    <th scope="col">Method, {{ size }} dimensions</th>
    <th scope="col" class="number">Rank gain</th>
    <th scope="col" class="number">Gain in Recall@1 on other data with such a
    rank gain: median, and 4 of 5 sets</th>
  </tr></thead>
  <tbody>
  {% for title, gain, expected in methods %}
    <tr><th scope="row">{{ title }}</th>
    <td class="number">{{ gain[0] }}<span class="interval">{{ gain[1] }}</span></td>
    <td class="number">{{ expected[0] }}<span class="interval">{{ expected[1] }}</span></td>
    </tr>
  {% endfor %}
  </tbody>
</table>
</div>
<div class="scroller" role="region" aria-label="Neighbors retained by PCA" tabindex="0">
<table class="scores">
  <thead><tr>
    <th scope="col">Dimensions of PCA</th>
    <th scope="col" class="number">Of the 10 nearest neighbors, retained</th>
  </tr></thead>
  <tbody>
  {% for dimensions, share, interval in kept %}
    <tr><th scope="row">{{ dimensions }}</th>
    <td class="number">{{ share }}<span class="interval">{{ interval }}</span></td></tr>
  {% endfor %}
  </tbody>
</table>
</div>
</div>
"""
EVIDENCE = Section("evidence", "Evidence without labels", _evidence, _EVIDENCE_TEMPLATE)


_MAX_AXES = 256


def _spectrum(measurements: Measurements) -> Content:
    """Show all spaces in one chart, and their effective ranks."""
    spaces = measurements.spaces
    lines = [
        charts.Series(s.title, s.key, np.maximum(s.spectrum[0][:_MAX_AXES], 1e-9)) for s in spaces
    ]
    return {
        "how": (
            "A flat line uses all directions, a steep one wastes most of them. The effective rank "
            "says how many directions are in use; small figures are its 95% interval."
        ),
        "figure": charts.line_chart(
            "Share of variance per axis", lines, "axis, strongest first", log=True
        ),
        "ranks": [
            (s, format_value(rank.value, "tenths"), format_interval(rank, "tenths"))
            for s in spaces
            for rank in [s.spectrum[1]]
        ],
    }


_SPECTRUM_TEMPLATE = """
<div class="halves">
  <div class="charts one">{{ ui.chart(figure) }}</div>
  <dl class="numbers">
  {% for space, rank, interval in ranks %}
  <div>
    <dt><span class="key {{ space.key }}" aria-hidden="true"></span>{{ space.title }}</dt>
    <dd>{{ rank }}<span class="of"> of {{ "{:,}".format(space.n_dims) }} dimensions</span>
    <span class="interval">{{ interval }}</span></dd>
  </div>
  {% endfor %}
  </dl>
</div>
"""
SPECTRUM = Section("spectrum", "Spectrum", _spectrum, _SPECTRUM_TEMPLATE)


_SIZES_ROWS = 3000


def prefix_sizes(n_dims: int) -> list[int]:
    """Return 8, 16, 32, ... and the full size."""
    return [*reversed(sizes_below(n_dims)), n_dims]


def _sizes(measurements: Measurements) -> Content | None:
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
) -> list[charts.Chart]:
    """Draw charts over the prefix sizes, measured on a sample of the rows."""
    sizes = prefix_sizes(vectors.shape[1])
    if len(sizes) < 2:
        return []
    sample = vectors[sorted_sample(len(vectors), _SIZES_ROWS, rng)]
    k = min(NEAREST, len(sample) - 1)
    near = [nearest_neighbors(sample[:, :s], k, metric="cosine").indices for s in sizes]
    heading = f"Of the {k} nearest neighbors at full size, retained (%)"
    measured = {heading: [interval(neighbor_overlap(near[-1], n, k), rng) for n in near]}
    if labels is not None:
        sampled = sorted_sample(len(labels), _SIZES_ROWS, rng)
        rows, y = vectors[labels.positions[sampled]], labels.values[sampled]
        hits = [first_hit_rank(rows[:, :s], y) < 1 for s in sizes]
        measured["Recall@1 (%)"] = [interval(per_row, rng) for per_row in hits]
    names = [str(s) for s in sizes]
    return [
        charts.line_chart(
            heading, [charts.Series.of_shares(heading, "rpml", means)], "components", names=names
        )
        for heading, means in measured.items()
    ]


_SIZES_TEMPLATE = """
<div class="charts">{% for figure in figures %}{{ ui.chart(figure) }}{% endfor %}</div>
"""
SIZES = Section("sizes", "Smaller sizes", _sizes, _SIZES_TEMPLATE)


_CODES_ROWS = 2000
_CODES = {"float32": 32, **BITS}  # bits per dimension


def _codes(measurements: Measurements) -> Content:
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
) -> tuple[list[Score], charts.Chart]:
    """Return the table and its chart, measured on a sample of the rows, labeled ones if any."""
    labeled = np.arange(len(spaces[0].vectors)) if labels is None else labels.positions
    sampled = sorted_sample(len(labeled), _CODES_ROWS, rng)
    y = None if labels is None else labels.values[sampled]
    raw, k = spaces[0].vectors[labeled[sampled]], min(NEAREST, len(sampled) - 1)
    near = nearest_neighbors(raw, k, metric="cosine").indices
    heading = "Of the nearest neighbors by the raw features, retained (%)"
    scores = [Score(code, "", "percent", {}) for code in _CODES]
    for space in spaces:
        rows = unit_rows(np.asarray(space.vectors[labeled[sampled]], np.float32))
        for score in scores:
            stored = rows if score.name == "float32" else coded(rows, score.name)
            nearest = nearest_rows(rows, stored, k, own=np.arange(len(rows)))[1]
            per_row = neighbor_overlap(near, nearest, k) if y is None else y[nearest[:, 0]] == y
            score.figures[space.key] = interval(per_row, rng)
            n_bytes = -(-rows.shape[1] * _CODES[score.name] // 8)
            score.notes[space.key] = counted(n_bytes, "byte")
    series = [
        charts.Series.of_shares(space.title, space.key, [s.figures[space.key] for s in scores])
        for space in spaces
    ]
    heading = heading if y is None else "Recall@1 (%)"
    return scores, charts.line_chart(heading, series, "code", names=list(_CODES))


_CODES_TEMPLATE = """
<div class="side-by-side{% if spaces|length > 3 %} single{% endif %}">
{{ ui.scores(figure.heading, lines, spaces) }}
<div class="charts one">{{ ui.chart(figure) }}</div>
</div>
"""
CODES = Section("codes", "Fewer bytes", _codes, _CODES_TEMPLATE)
