"""Queries that succeed and queries that fail."""

from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.report.examples import SHOWN, retrieval_queries
from rpml.pages.report.gallery import Strip
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section


def content(measurements: Measurements) -> Content | None:
    """Show examples among the labeled rows; None without labels."""
    labels, gallery = measurements.labels, measurements.gallery
    if labels is None:
        return None
    rows = measurements.rows[labels.positions]
    vectors = measurements.embedding.vectors[labels.positions]
    k = min(SHOWN, len(rows) - 1)
    nearest = nearest_neighbors(vectors, k, metric="cosine").indices
    rng = measurements.rng("retrieval")
    successes, failures = retrieval_queries(nearest, labels.values, 5, rng)

    def strip(i: int) -> Strip:
        query = int(rows[i])
        views = gallery.results(query, rows[nearest[i]].tolist())
        right = sum(v.tone == "right" for v in views)
        items = [gallery.view(query, "query", "query"), *views]
        return Strip("", items, f"{right} of {len(views)} right")

    return {
        "how": (
            "Each row is a query (gray frame) and its nearest labeled items in the embedding. "
            "Green with a tick: same label; red and dashed: another label. Queries are chosen at "
            "random among the best and the worst, one per label."
        ),
        "columns": [
            ("Successes", "right", [strip(i) for i in successes.tolist()]),
            ("Failures", "wrong", [strip(i) for i in failures.tolist()]),
        ],
    }


TEMPLATE = """
<div class="halves">
  {% for title, kind, strips in columns %}
  <div>
    <h3>{{ title }}</h3>
    {% for s in strips %}
    {{ ui.strip(s) }}
    {% else %}
    <p class="muted">No query has mostly {{ kind }} results.</p>
    {% endfor %}
  </div>
  {% endfor %}
</div>
"""
SECTION = Section("retrieval", "Hits and misses", content, TEMPLATE)
