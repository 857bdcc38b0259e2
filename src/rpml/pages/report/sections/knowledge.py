"""Section about what the user knows and does not want to matter: a nuisance, or queries."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.separated import separated_pairs
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section


def _knowledge(measurements: Measurements) -> Content | None:
    """Show what was discounted; None if the fit is PCA and nothing is known of the items."""
    model = measurements.model
    evidence = None if model.whitening_ is None else model.whitening_.nuisance
    values = measurements.items.metadata.get("nuisance")
    if evidence is None and values is None and model.outcome_ == "PCA":
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
    pairs = separated_pairs(raw.vectors, found.vectors, measurements.rows, known)
    view, roles = measurements.gallery.view, values or [""] * measurements.n_rows
    return {
        "how": (
            "The embedding discounts what differs between near items, and what was given as not "
            "to matter: it should no longer decide which items are near."
        ),
        "lines": lines,
        "strips": [[view(row, role=roles[row]) for row in pair] for pair in pairs],
    }


def shared(neighbors: NDArray[np.integer], values: NDArray[np.str_]) -> float:
    """Return how often the nearest of the rows with a value has the same one."""
    known = values != ""
    same = values == values[neighbors[:, 0]]
    return float(same[known].mean()) if known.any() else 0.0


_TEMPLATE = """
{% for line in lines %}<p>{{ line }}</p>{% endfor %}
{% if strips %}
<h3>Nearest neighbors that no longer are: does their difference matter?</h3>
{% for s in strips %}{{ ui.strip(s) }}{% endfor %}
<p class="note">If it does, use PCA, or say what belongs together (labels, groups, pairs); if a
nuisance was given, leave it out.</p>
{% endif %}
"""
KNOWLEDGE = Section("knowledge", "What was discounted", _knowledge, _TEMPLATE)
