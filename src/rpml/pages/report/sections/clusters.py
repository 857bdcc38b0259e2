"""The pseudo-clusters of the fit."""

import numpy as np

from rpml.pages.report import charts
from rpml.pages.report.examples import cluster_samples
from rpml.pages.report.gallery import Strip
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Figure, Section
from rpml.runtime.wording import counted

_HEADING = "Sizes of the pseudo-clusters"


def content(measurements: Measurements) -> Content:
    """Show cluster sizes, and examples if the rows are the training rows."""
    fitted = getattr(measurements.model, "labels_", None)
    shown, gallery = measurements.clusters, measurements.gallery
    labels = fitted
    if labels is None:  # then the measured rows were clustered
        assert shown is not None
        labels = shown[measurements.rows]
    sizes = np.bincount(labels[labels >= 0])
    sizes = sizes[sizes > 0]
    chart = charts.histogram(_HEADING, sizes, "items per pseudo-cluster", log_bins=True)
    samples = []
    if shown is not None:
        samples = [
            Strip(f"Pseudo-cluster {name}", [gallery.view(r) for r in rows], counted(size, "item"))
            for name, size, rows in cluster_samples(shown, 5, 10)
        ]
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
        role = "are those of the measured items; the fit was not trained and used none"
    return {
        "how": (
            f"The pseudo-clusters {role}. Many small and pure ones are good; a single giant or "
            "mostly singletons are a warning."
        ),
        "figure": Figure(_HEADING, chart),
        "facts": facts,
        "samples": samples,
        "trained": shown is not None,
    }


TEMPLATE = """
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
{% for s in samples %}{{ ui.strip(s) }}{% endfor %}
{% elif not trained %}
<p class="note">
  These features are not the training rows, so the pseudo-clusters cannot be shown as items.
</p>
{% endif %}
"""
SECTION = Section("clusters", "Pseudo-clusters", content, TEMPLATE)
