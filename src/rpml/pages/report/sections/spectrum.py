"""The share of variance per principal axis."""

import numpy as np

from rpml.evaluation.metrics.label_free import effective_rank
from rpml.pages.report import charts
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Figure, Section

_MAX_AXES = 256
_HEADING = "Share of variance per axis"


def content(measurements: Measurements) -> Content:
    """All spaces in one chart, and their effective ranks."""
    spectra, spaces = measurements.comparison.spectra, measurements.spaces
    lines = [
        charts.Series(s.title, s.key, np.maximum(spectra[s.key][:_MAX_AXES], 1e-9)) for s in spaces
    ]
    return {
        "how": (
            "A flat line uses all directions, a steep one wastes most of them. The effective rank "
            "says how many directions are in use."
        ),
        "figure": Figure(
            _HEADING, charts.line_chart(_HEADING, lines, "axis, strongest first", log=True)
        ),
        "ranks": [(s, f"{effective_rank(spectra[s.key]):.2f}") for s in spaces],
    }


TEMPLATE = """
<div class="halves">
  <div class="charts one">{{ ui.chart(figure) }}</div>
  <dl class="numbers">
  {% for space, rank in ranks %}
  <div>
    <dt><span class="key {{ space.key }}" aria-hidden="true"></span>{{ space.title }}</dt>
    <dd>{{ rank }}<span class="of"> of {{ "{:,}".format(space.n_dims) }} dimensions</span></dd>
  </div>
  {% endfor %}
  </dl>
</div>
"""
SECTION = Section("spectrum", "Spectrum", content, TEMPLATE)
