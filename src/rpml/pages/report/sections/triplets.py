"""The triplets of the fit."""

from rpml.pages.report import charts
from rpml.pages.report.examples import Triplet, trusted_triplets
from rpml.pages.report.gallery import Gallery, Strip
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Figure, Section
from rpml.runtime.wording import counted

_ROLES = ("anchor", "positive", "negative")


def content(measurements: Measurements) -> Content | None:
    """Show histograms of weights and probabilities, and examples for training rows.

    None if the fit was not trained.
    """
    model = measurements.model
    if not hasattr(model, "triplets_"):
        return None
    weights, probabilities = model.triplet_weights_, model.triplet_probabilities_
    heading = "Triplet probabilities"
    figures = [Figure(heading, charts.histogram(heading, probabilities, "probability"))]
    summary = f"{counted(len(weights), 'triplet')}."
    if charts.is_constant(weights):
        summary += f" All have the weight {charts.number(float(weights[0]))}."
    else:
        heading = "Triplet weights"
        figures.insert(0, Figure(heading, charts.histogram(heading, weights, "weight")))
    shown: Content = {"most": [], "least": [], "by": "weight"}
    if measurements.trained and len(weights):
        trust = trusted_triplets(model)
        most, least = (
            [_strip(t, measurements.gallery) for t in part] for part in (trust.most, trust.least)
        )
        shown = {"most": most, "least": least, "by": trust.by}
    return {
        "how": (
            "A triplet asks that the positive be closer to the anchor than the negative. Its "
            "weight says how much the fit relies on it, its probability (at most 0.5) how well "
            "the embedding satisfies it."
        ),
        "figures": figures,
        "summary": summary,
        "trained": measurements.trained,
        **shown,
    }


def _strip(triplet: Triplet, gallery: Gallery) -> Strip:
    items = [gallery.view(r, "", role) for r, role in zip(triplet.rows, _ROLES, strict=True)]
    return Strip("", items, f"weight {triplet.weight:.3g}, probability {triplet.probability:.3g}")


TEMPLATE = """
<div class="charts">{% for figure in figures %}{{ ui.chart(figure) }}{% endfor %}</div>
<p>{{ summary }}</p>
{% if most %}
<div class="halves">
  <div><h3>Highest {{ by }}</h3>{% for s in most %}{{ ui.strip(s) }}{% endfor %}</div>
  <div><h3>Lowest {{ by }}</h3>{% for s in least %}{{ ui.strip(s) }}{% endfor %}</div>
</div>
{% elif not trained %}
<p class="note">
  These features are not the training rows, so the triplets cannot be shown as items.
</p>
{% endif %}
"""
SECTION = Section("triplets", "Triplets", content, TEMPLATE)
