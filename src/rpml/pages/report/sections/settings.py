"""Settings and versions."""

from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section
from rpml.pages.report.training import call, settings, versions


def content(measurements: Measurements) -> Content:
    """Show everything needed to repeat the fit and the report."""
    facts = {**versions(), "seed of this report": str(measurements.seed)}
    measured = len(measurements.rows)
    if measured < measurements.n_rows:
        facts["rows measured"] = f"{measured:,} of {measurements.n_rows:,}"
    return {
        "how": "Everything needed to repeat the fit and this report.",
        "call": call(measurements.model),
        "command": measurements.source.command,
        "settings": settings(measurements.model),
        "versions": facts,
    }


TEMPLATE = """
<pre class="code" tabindex="0">{{ call }}</pre>
{% if command %}<pre class="code" tabindex="0">{{ command }}</pre>{% endif %}
<div class="halves">
  <details><summary>All {{ settings|length }} settings</summary>
    <div class="scroller" role="region" aria-label="Settings" tabindex="0">
    {{ ui.facts(settings) }}
    </div>
  </details>
  {{ ui.facts(versions) }}
</div>
"""
SECTION = Section("settings", "Settings and versions", content, TEMPLATE)
