"""Settings and versions."""

from rpml.estimator import RPML
from rpml.estimator.fitted import describe_settings
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section
from rpml.runtime.environment import versions
from rpml.runtime.wording import one_line


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


def settings(model: RPML) -> dict[str, str]:
    """Return all settings of the fit, as text."""
    described = describe_settings(model)
    flat: dict[str, str] = {}
    for name, value in described.items():
        if isinstance(value, dict):
            (kind, inner), *_ = value.items()
            flat[name] = kind
            flat |= {f"{name}: {key}": _text(v) for key, v in inner.items()}
        else:
            flat[name] = _text(value)
    return flat


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def call(model: RPML) -> str:
    """Return the Python call that builds this estimator, without default settings."""
    defaults = type(model)().get_params(deep=False)
    params = {k: v for k, v in model.get_params(deep=False).items() if k != "callback"}
    parts = [f"{k}={v!r}" for k, v in params.items() if repr(v) != repr(defaults[k])]
    return f"RPML({', '.join(one_line(part) for part in parts)})"


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
