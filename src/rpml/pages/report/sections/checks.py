"""Diagnostics of the fit that need no labels."""

import re
from dataclasses import replace

from rpml.evaluation.diagnostics import of_clusters, of_stability, of_triplets, of_whitening
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section
from rpml.runtime.rows import sorted_sample

_MIN_ROWS, _STABILITY_ROWS = 60, 3000  # range in which the stability of clusters is measured


def content(measurements: Measurements) -> Content:
    """Show diagnostics of clusters, triplets and whitening; the table has those of neighbors."""
    model, X = measurements.model, measurements.X
    labels = getattr(model, "labels_", None)
    if labels is None and measurements.clusters is not None:
        labels = measurements.clusters[measurements.rows]
    assert labels is not None
    checks = [*of_clusters(labels), *of_triplets(model), *of_whitening(model)]
    if len(X) >= _MIN_ROWS:
        rng = measurements.rng("checks")
        rows = sorted_sample(len(X), _STABILITY_ROWS, rng)
        checks.insert(4, of_stability(model, X[rows], rng))
    shown = [
        replace(d, title=_worded(d.title), shown=_worded(d.shown), meaning=_worded(d.meaning))
        for d in checks
    ]
    how = "Properties of the fit that need no labels; a line marked ▲ needs attention."
    return {"how": how, "checks": shown}


def _worded(text: str) -> str:
    """Replace rows by items, the word of the page."""
    return re.sub(r"\brow(s?)\b", r"item\1", text.replace("->", "→"))


TEMPLATE = """
<div class="scroller" role="region" aria-label="Table of checks" tabindex="0">
<table class="scores">
  <thead><tr><th scope="col">Check</th><th scope="col" class="number">Value</th></tr></thead>
  <tbody>
  {% for check in checks %}
    <tr{% if check.concern %} class="concern"{% endif %}>
      <th scope="row">{{ check.title }}<span class="reading">{{ check.meaning }}</span></th>
      <td class="number">
        {% if check.concern %}
        <span aria-hidden="true">▲</span><span class="unseen">needs attention: </span>
        {% endif %}
        {{ check.shown }}
      </td>
    </tr>
  {% endfor %}
  </tbody>
</table>
</div>
"""
SECTION = Section("checks", "Checks", content, TEMPLATE)
