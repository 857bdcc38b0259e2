"""Section about what the user knows and does not want to matter: a nuisance, or queries."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.separated import SHOWN, separated_pairs
from rpml.method.graph.heaps import nearest_rows
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Section, Strip
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
    strips: dict[str, list[Strip]] = {}
    if queries is not None:
        sentence, answers = _queries(measurements, queries)
        lines.append(sentence)
        strips["The nearest item of a query, before and now"] = answers
    pairs = separated_pairs(raw.vectors, found.vectors, measurements.rows, known)
    view, roles = measurements.gallery.view, values or [""] * measurements.n_rows
    strips["Nearest neighbors that no longer are: does their difference matter?"] = [
        ([view(row, role=roles[row]) for row in pair], "", "") for pair in pairs
    ]
    return {
        "how": (
            "The embedding discounts what differs between near items, and what was given as not "
            "to matter: it should no longer decide which items are near."
        ),
        "lines": lines,
        "strips": strips,
        "note": (
            "If it does, use PCA, or say what belongs together (labels, groups, pairs); if a "
            "nuisance was given, leave it out."
        ),
    }


def _queries(measurements: Measurements, queries: Array) -> tuple[str, list[Strip]]:
    """Return how often queries are nearest to each other, and what a few of them find."""
    raw, found = measurements.spaces[0].vectors, measurements.embedding.vectors
    sample = sorted_sample(len(queries), MAX_QUERIES, measurements.rng("queries"))
    asked = np.asarray(queries[sample])
    nearest, shares = [], []
    for documents, own in ((raw, asked), (found, measurements.model.transform(asked))):
        units, rows = (unit_rows(np.asarray(x, np.float32)) for x in (own, documents))
        score, row = nearest_rows(units, rows, 1)
        by_query = nearest_rows(units, units, 1, own=np.arange(len(units)))[0]
        nearest.append(row[:, 0])
        shares.append(float((by_query > score).mean()) if len(asked) > 1 else 0.0)
    sentence = (
        f"Of {counted(len(asked), 'query', 'queries')}, {shares[0]:.0%} are nearer to another "
        f"query than to any item by the raw features, {shares[1]:.0%} by the embedding."
    )
    strips = []
    for place in np.flatnonzero(nearest[0] != nearest[1])[:SHOWN].tolist():
        before, now = (
            measurements.gallery.view(int(measurements.rows[rows[place]]), role=when)
            for rows, when in zip(nearest, ("before", "now"), strict=True)
        )
        strips.append(([before, now], "", f"query {sample[place]}"))
    return sentence, strips


def shared(neighbors: NDArray[np.integer], values: NDArray[np.str_]) -> float:
    """Return how often the nearest of the rows with a value has the same one."""
    known = values != ""
    same = values == values[neighbors[:, 0]]
    return float(same[known].mean()) if known.any() else 0.0


KNOWLEDGE = Section("knowledge", "What was discounted", _knowledge)
