"""The share of variance per principal axis."""

import numpy as np

from rpml.pages.report import charts
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Figure, Section, format_interval, format_value

_MAX_AXES = 256
_HEADING = "Share of variance per axis"


def content(measurements: Measurements) -> Content:
    """Show all spaces in one chart, and their effective ranks."""
    spectra, spaces = measurements.comparison.spectra, measurements.spaces
    lines = [
        charts.Series(s.title, s.key, np.maximum(spectra[s.key].shares[:_MAX_AXES], 1e-9))
        for s in spaces
    ]
    return {
        "how": (
            "A flat line uses all directions, a steep one wastes most of them. The effective rank "
            "says how many directions are in use; small figures are its 95% interval."
        ),
        "figure": Figure(
            _HEADING, charts.line_chart(_HEADING, lines, "axis, strongest first", log=True)
        ),
        "ranks": [
            (s, format_value(rank.value, "tenths"), format_interval(rank, "tenths"))
            for s in spaces
            for rank in [spectra[s.key].effective_rank]
        ],
    }


TEMPLATE = """
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
SECTION = Section("spectrum", "Spectrum", content, TEMPLATE)
