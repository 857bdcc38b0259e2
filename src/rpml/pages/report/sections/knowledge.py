"""Section about what the user knows and does not want to matter: a nuisance, or queries."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.metrics.label_free import NEAREST
from rpml.pages.report.examples import Strip
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section
from rpml.runtime.rows import Array, unit_rows

N_PAIRS = 3


def _knowledge(measurements: Measurements) -> Content | None:
    """Show what became of the nuisance; None if neither the fit nor the items have one."""
    choice = measurements.model.whitening_
    evidence = None if choice is None else choice.nuisance
    values = measurements.items.metadata.get("nuisance")
    if evidence is None and values is None:
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
    gallery, rows = measurements.gallery, measurements.rows
    strips = [
        Strip("", [gallery.view(int(row), role=role(row, values)) for row in rows[pair]])
        for pair in separated(raw.vectors, raw.neighbors, found.neighbors, known)
    ]
    return {
        "how": "What was given as not to matter should no longer decide which items are near.",
        "lines": lines,
        "strips": strips,
    }


def role(row: int, values: list[str] | None) -> str:
    """Return the value of an item, shown with it."""
    return "" if values is None else values[row]


def shared(neighbors: NDArray[np.integer], values: NDArray[np.str_]) -> float:
    """Return how often the nearest of the rows with a value has the same one."""
    known = values != ""
    same = values == values[neighbors[:, 0]]
    return float(same[known].mean()) if known.any() else 0.0


def separated(
    X: Array,
    before: NDArray[np.integer],
    after: NDArray[np.integer],
    values: NDArray[np.str_] | None,
) -> list[list[int]]:
    """Return the most similar pairs that were nearest neighbors and are not near any more.

    With values, pairs that share one: their nearness may have been that of the value.
    """
    nearest = before[:, 0]
    gone = ~(after[:, :NEAREST] == nearest[:, None]).any(axis=1)
    if values is not None:
        gone &= (values == values[nearest]) & (values != "")
    units = unit_rows(X)
    similarity = np.einsum("ij,ij->i", units, units[nearest])
    pairs: list[list[int]] = []
    seen: set[int] = set()
    for row in np.flatnonzero(gone)[np.argsort(-similarity[gone], kind="stable")].tolist():
        pair = [row, int(nearest[row])]
        if not seen.intersection(pair):
            seen.update(pair)
            pairs.append(pair)
        if len(pairs) == N_PAIRS:
            break
    return pairs


_TEMPLATE = """
{% for line in lines %}<p>{{ line }}</p>{% endfor %}
{% if strips %}
<h3>Nearest neighbors that no longer are: does their difference matter?</h3>
{% for s in strips %}{{ ui.strip(s) }}{% endfor %}
<p class="note">If these belong together, what was given as a nuisance matters: leave it out.</p>
{% endif %}
"""
KNOWLEDGE = Section("knowledge", "What should not matter", _knowledge, _TEMPLATE)
