"""The evidence behind the verdict without labels."""

from rpml.evaluation.rank_gain import expected_gain
from rpml.evaluation.registry import METHODS, REFERENCE
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Cell, Content, Section, format_interval, format_value
from rpml.pages.report.verdict import bounds, signed
from rpml.runtime.intervals import Interval


def content(measurements: Measurements) -> Content | None:
    """Show the rank gains of the methods; None with labels or too few rows."""
    advice = measurements.advice
    if advice is None or not advice.evidence:
        return None
    ranked = sorted(advice.evidence.items(), key=lambda pair: -pair[1].value)
    return {
        "how": (
            "The features were split into two halves. A method that captures what the items share "
            "ranks those high that the other half finds near; its rank gain is how much the mean "
            "logarithm of that rank falls, compared with PCA. RPML is judged with its default "
            "settings. Small figures are 95% intervals where nothing else is said."
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


def _rank_gain(name: str, gain: Interval) -> Cell:
    exact = name == REFERENCE or gain.low == gain.high  # RPML fell back to PCA
    bounds = "" if exact else f"{signed(gain.low, 2)} to {signed(gain.high, 2)}"
    return Cell(signed(gain.value, 2), bounds, best=False)


def _expected(name: str, rank_gain: float) -> Cell:
    """Return the gain at such a rank gain on the calibration sets, at least zero."""
    if name == "raw":  # of another size, where the rank gain is not calibrated
        return Cell("not known", "", best=False)
    if name == REFERENCE or rank_gain < 0:
        return Cell("reference" if name == REFERENCE else "none", "", best=False)
    gain = expected_gain(rank_gain)
    return Cell(f"{signed(100 * gain.value)} points", bounds(gain), best=False)


TEMPLATE = """
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
    <td class="number">{{ gain.text }}<span class="interval">{{ gain.interval }}</span></td>
    <td class="number">{{ expected.text }}<span class="interval">{{ expected.interval }}</span></td>
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
SECTION = Section("evidence", "Evidence without labels", content, TEMPLATE)
