"""Sections about the fit: checks, training, clusters, triplets, settings."""

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.estimator.description import mean_losses, outcome_lines
from rpml.estimator.fitted import describe_settings
from rpml.evaluation.diagnostics import of_clusters, of_stability, of_triplets, of_whitening
from rpml.pages.report import charts
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, ItemView, Section
from rpml.runtime.environment import versions
from rpml.runtime.rows import Labels, sorted_sample
from rpml.runtime.wording import counted, one_line

_MIN_ROWS, _STABILITY_ROWS = 60, 3000  # range in which the stability of clusters is measured


def _checks(measurements: Measurements) -> Content | None:
    """Show diagnostics of a fit with clusters and triplets; the table has those of neighbors."""
    model, X = measurements.model, measurements.X
    labels = getattr(model, "labels_", None)
    if labels is None:
        return None
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


_CHECKS_TEMPLATE = """
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
CHECKS = Section("checks", "Checks", _checks, _CHECKS_TEMPLATE)


_HEADINGS = {
    "loss": "Mean loss per triplet",
    "gradient_norm": "Gradient norm",
    "mean_weight": "Mean triplet weight",
}


def _training(measurements: Measurements) -> Content:
    """Show the curves of the history; a constant one is described in words."""
    model = measurements.model
    step = "epoch" if model.solver == "stochastic" else "iteration"
    figures, constants = [], []
    history = {**getattr(model, "history_", {}), "loss": mean_losses(model)}
    for name, heading in _HEADINGS.items():
        values = np.asarray(history.get(name, []), float)
        if len(values) == 0:
            continue
        if len(values) == 1 or charts.is_constant(values):
            throughout = " throughout" if len(values) > 1 else ""
            constants.append(f"{heading}: {charts.number(float(values[0]))}{throughout}.")
            continue
        log = name == "gradient_norm" and bool(values.min() > 0)
        line = charts.Series(heading, "rpml", values)
        figures.append(charts.line_chart(heading, [line], step, log))
    lines = [f"{name.capitalize()}: {text}." for name, text in outcome_lines(model).items()]
    how = (
        "The loss should fall and level off, and the gradient norm should fall by orders of "
        "magnitude. A mean triplet weight near 0 means that the fit ignores its triplets."
    )
    return {
        "how": how if figures else "What the fit came to, and why.",
        "figures": figures,
        "lines": [*lines, *constants],
    }


_TRAINING_TEMPLATE = """
<div class="charts">{% for figure in figures %}{{ ui.chart(figure) }}{% endfor %}</div>
{% for line in lines %}<p>{{ line }}</p>{% endfor %}
"""
TRAINING = Section("training", "Training", _training, _TRAINING_TEMPLATE)


def _clusters(measurements: Measurements) -> Content:
    """Show cluster sizes, and examples if the rows are the training rows."""
    fitted = getattr(measurements.model, "labels_", None)
    shown, gallery = measurements.clusters, measurements.gallery
    labels = fitted
    if labels is None:  # then the measured rows were clustered
        assert shown is not None
        labels = shown[measurements.rows]
    sizes = np.bincount(labels[labels >= 0])
    sizes = sizes[sizes > 0]
    samples = [] if shown is None else cluster_samples(shown, 5, 10)
    together = sizes[sizes > 1]
    facts = {
        "of two or more items": f"{len(together):,}",
        "their median size": f"{float(np.median(together)) if len(together) else 0:g}",
        "items of the largest": f"{int(sizes.max(initial=0)):,}",
        "singletons": f"{int((sizes == 1).sum()):,}",
    }
    noise = int((labels < 0).sum())
    if noise:
        facts["items in none"] = f"{noise:,}"
    role = "take the place of labels in the fit"
    if fitted is None:
        role = "were made for this report, since the fit had no use for clusters"
    return {
        "how": (
            f"The pseudo-clusters {role}. Many small and pure ones are good; a single giant or "
            "mostly singletons are a warning."
        ),
        "figure": charts.histogram(
            "Sizes of the pseudo-clusters", sizes, "items per pseudo-cluster", log_bins=True
        ),
        "facts": facts,
        "samples": [
            (name, counted(size, "item"), [gallery.view(row) for row in rows])
            for name, size, rows in samples
        ],
        "trained": shown is not None,
    }


def cluster_samples(labels: Labels, count: int, members: int) -> list[tuple[int, int, list[int]]]:
    """Return (cluster, size, some members) of clusters from the largest to pairs."""
    names, sizes = np.unique(labels[labels >= 0], return_counts=True)
    names, sizes = names[sizes > 1], sizes[sizes > 1]
    order = np.argsort(-sizes, kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, count).round().astype(int))
    shown = []
    for c in order[places] if len(order) else order:
        rows = np.flatnonzero(labels == names[c])
        step = max(1, len(rows) // members)
        shown.append((int(names[c]), int(sizes[c]), rows[::step][:members].tolist()))
    return shown


_CLUSTERS_TEMPLATE = """
<div class="halves">
  <div class="charts one">{{ ui.chart(figure) }}</div>
  <dl class="numbers">
    {% for name, value in facts.items() %}
    <div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>
    {% endfor %}
  </dl>
</div>
{% if samples %}
<h3>Examples, from the largest to the smallest</h3>
{% for name, size, views in samples %}
{{ ui.strip(views, size, "Pseudo-cluster " ~ name) }}
{% endfor %}
{% elif not trained %}
<p class="note">
  These features are not the training rows, so the pseudo-clusters cannot be shown as items.
</p>
{% endif %}
"""
CLUSTERS = Section("clusters", "Pseudo-clusters", _clusters, _CLUSTERS_TEMPLATE)


_SAME = 0.02  # relative range below which weights count as equal


def _triplets(measurements: Measurements) -> Content | None:
    """Show histograms of weights and probabilities, and examples for training rows.

    None if the fit was not trained.
    """
    model = measurements.model
    if not hasattr(model, "triplets_"):
        return None
    weights, probabilities = model.triplet_weights_, model.triplet_probabilities_
    figures = [charts.histogram("Triplet probabilities", probabilities, "probability")]
    summary = f"{counted(len(weights), 'triplet')}."
    if charts.is_constant(weights):
        summary += f" All have the weight {charts.number(float(weights[0]))}."
    else:
        figures.insert(0, charts.histogram("Triplet weights", weights, "weight"))
    by, columns = "weight", {}
    if measurements.trained and len(weights):
        by, most, least = trusted_triplets(model)
        columns = {
            name: [_triplet_strip(measurements, int(t)) for t in part]
            for name, part in (("Highest", most), ("Lowest", least))
        }
    return {
        "how": (
            "A triplet asks that the positive be closer to the anchor than the negative. Its "
            "weight says how much the fit relies on it, its probability (at most 0.5) how well "
            "the embedding satisfies it."
        ),
        "figures": figures,
        "summary": summary,
        "trained": measurements.trained,
        "by": by,
        "columns": columns,
    }


def trusted_triplets(model: RPML, count: int = 4) -> tuple[str, NDArray[np.intp], NDArray[np.intp]]:
    """Return the most and the least trusted triplets with different anchors, by number.

    They are ordered by weight, or by probability if all weights are about equal; the first value
    says by which.
    """
    weights, probabilities = model.triplet_weights_, model.triplet_probabilities_
    vary = float(np.ptp(weights)) > _SAME * float(weights.max())
    order = np.argsort(weights if vary else probabilities, kind="stable")

    def pick(ordered: NDArray[np.intp]) -> NDArray[np.intp]:
        _, first = np.unique(model.triplets_[ordered, 0], return_index=True)
        return ordered[np.sort(first)[:count]]

    return "weight" if vary else "probability", pick(order[::-1]), pick(order)


def _triplet_strip(measurements: Measurements, t: int) -> tuple[list[ItemView], str]:
    model, gallery = measurements.model, measurements.gallery
    roles = zip(model.triplets_[t].tolist(), ("anchor", "positive", "negative"), strict=True)
    weight, probability = model.triplet_weights_[t], model.triplet_probabilities_[t]
    views = [gallery.view(row, "", role) for row, role in roles]
    return views, f"weight {weight:.3g}, probability {probability:.3g}"


_TRIPLETS_TEMPLATE = """
<div class="charts">{% for figure in figures %}{{ ui.chart(figure) }}{% endfor %}</div>
<p>{{ summary }}</p>
{% if columns %}
<div class="halves">
  {% for name, strips in columns.items() %}
  <div><h3>{{ name }} {{ by }}</h3>{% for s in strips %}{{ ui.strip(*s) }}{% endfor %}</div>
  {% endfor %}
</div>
{% elif not trained %}
<p class="note">
  These features are not the training rows, so the triplets cannot be shown as items.
</p>
{% endif %}
"""
TRIPLETS = Section("triplets", "Triplets", _triplets, _TRIPLETS_TEMPLATE)


def _settings(measurements: Measurements) -> Content:
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
            flat |= {f"{name}: {key}": _setting_text(v) for key, v in inner.items()}
        else:
            flat[name] = _setting_text(value)
    return flat


def _setting_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def call(model: RPML) -> str:
    """Return the Python call that builds this estimator, without default settings."""
    defaults = type(model)().get_params(deep=False)
    params = {k: v for k, v in model.get_params(deep=False).items() if k != "callback"}
    parts = [f"{k}={v!r}" for k, v in params.items() if repr(v) != repr(defaults[k])]
    return f"RPML({', '.join(one_line(part) for part in parts)})"


_SETTINGS_TEMPLATE = """
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
SETTINGS = Section("settings", "Settings and versions", _settings, _SETTINGS_TEMPLATE)
