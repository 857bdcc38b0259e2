"""Section about what the user knows and does not want to matter: a nuisance, or queries."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.separated import SHOWN, separated_pairs
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, ItemView, Section
from rpml.runtime.rows import Array, sorted_sample, unit_rows
from rpml.runtime.wording import counted

MAX_QUERIES = 1000


def _knowledge(measurements: Measurements) -> Content | None:
    """Show what was discounted; None if the fit is PCA and nothing is known of the items."""
    model = measurements.model
    evidence = None if model.whitening_ is None else model.whitening_.nuisance
    values = measurements.items.nuisance_values
    queries = measurements.items.queries
    if evidence is None and values is None and queries is None and model.outcome_ == "PCA":
        return None
    known = None if values is None else np.array([values[row] for row in measurements.rows])
    raw, found = measurements.spaces[0], measurements.embedding
    lines = [] if evidence is None else [f"The fit: {evidence.summary}."]
    if known is not None:
        before, after = (f"{shared(s.neighbors, known):.0%}" for s in (raw, found))
        lines.append(
            f"Of the items shown here, {before} have the value of their nearest neighbor by the "
            f"raw features, {after} by the embedding."
        )
    found_by: list[list[ItemView]] = []
    if queries is not None:
        sentence, found_by = _queries(measurements, queries)
        lines.append(sentence)
    pairs = separated_pairs(raw.vectors, found.vectors, measurements.rows, known)
    view, roles = measurements.gallery.view, values or [""] * measurements.n_rows
    return {
        "how": (
            "The embedding discounts what differs between near items, and what was given as not "
            "to matter: it should no longer decide which items are near."
        ),
        "lines": lines,
        "found_by": found_by,
        "strips": [[view(row, role=roles[row]) for row in pair] for pair in pairs],
    }


def _queries(measurements: Measurements, queries: Array) -> tuple[str, list[list[ItemView]]]:
    """Return how often queries are nearest to each other, and what a few of them find."""
    raw, found = measurements.spaces[0].vectors, measurements.embedding.vectors
    sample = sorted_sample(len(queries), MAX_QUERIES, measurements.rng("queries"))
    asked = np.asarray(queries[sample])
    nearest, shares = [], []
    for documents, own in ((raw, asked), (found, measurements.model.transform(asked))):
        units = unit_rows(np.asarray(own, np.float32))
        by_document = units @ unit_rows(np.asarray(documents, np.float32)).T
        by_query = units @ units.T
        np.fill_diagonal(by_query, -2)
        nearest.append(by_document.argmax(axis=1))
        shares.append(float((by_query.max(axis=1) > by_document.max(axis=1)).mean()))
    sentence = (
        f"Of {counted(len(asked), 'query', 'queries')}, {shares[0]:.0%} are nearer to another "
        f"query than to any item by the raw features, {shares[1]:.0%} by the embedding."
    )
    changed = np.flatnonzero(nearest[0] != nearest[1])[:SHOWN].tolist()
    view, rows = measurements.gallery.view, measurements.rows
    return sentence, [
        [
            view(int(rows[nearest[i][place]]), role=f"query {sample[place]}, {when}")
            for i, when in enumerate(("before", "now"))
        ]
        for place in changed
    ]


def shared(neighbors: NDArray[np.integer], values: NDArray[np.str_]) -> float:
    """Return how often the nearest of the rows with a value has the same one."""
    known = values != ""
    same = values == values[neighbors[:, 0]]
    return float(same[known].mean()) if known.any() else 0.0


_TEMPLATE = """
{% for line in lines %}<p>{{ line }}</p>{% endfor %}
{% if found_by %}
<h3>The nearest item of a query, before and now</h3>
{% for s in found_by %}{{ ui.strip(s) }}{% endfor %}
{% endif %}
{% if strips %}
<h3>Nearest neighbors that no longer are: does their difference matter?</h3>
{% for s in strips %}{{ ui.strip(s) }}{% endfor %}
<p class="note">If it does, use PCA, or say what belongs together (labels, groups, pairs); if a
nuisance was given, leave it out.</p>
{% endif %}
"""
KNOWLEDGE = Section("knowledge", "What was discounted", _knowledge, _TEMPLATE)
