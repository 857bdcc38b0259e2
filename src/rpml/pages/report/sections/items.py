"""Sections that show items: the maps, what changed, hits and misses, the grid, what is known."""

import numpy as np
from numpy.typing import NDArray

from rpml.estimator.description import SEPARATED_PAIRS as PAIRS
from rpml.estimator.description import separated_pairs
from rpml.evaluation.metrics.label_free import neighbor_overlap
from rpml.method.graph.heaps import nearest_rows
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.items import retrieval_queries
from rpml.pages.layout import grid_order
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, Strip
from rpml.runtime.errors import counted
from rpml.runtime.rows import Array, Indices, Integers, sorted_sample, unit_rows

SHOWN = 6  # neighbors per query


def show_maps(measurements: Measurements) -> Content:
    drawn, total = len(measurements.drawn), measurements.n_rows
    sampled = f"The maps show {drawn:,} of {total:,} items, chosen at random."
    return {
        "how": (
            "Items with similar vectors are close together. Point at an item or tap it, and it is "
            "marked in every map. Distances between distant groups mean little."
        ),
        "maps": measurements.titles,
        "notes": sampled if drawn < total else "",
    }


def show_changed(measurements: Measurements) -> Content:
    """Show the items whose neighbors changed most, or on which two models differ most."""
    rows, gallery, two = measurements.rows, measurements.gallery, measurements.source.second
    titles = measurements.titles
    spaces = {s.key: s.neighbors for s in measurements.spaces if s.key in titles}
    *_, before, after = spaces.values()
    pairs = []
    for i in most_changed(before, after, 6, measurements.rng("changed")):
        query = int(rows[i])
        lists = {titles[key]: rows[near[i, :SHOWN]].tolist() for key, near in spaces.items()}
        *_, one, other = lists.values()
        same = len(set(one) & set(other))
        remark = f"{same} of {len(one)} neighbors {'in common' if two else 'retained'}"
        views = {title: gallery.results(query, indices) for title, indices in lists.items()}
        pairs.append((gallery.view(query, "query"), remark, views))
    how = "Items that retained the fewest nearest neighbors: judge which list is better."
    if two:
        how = "Items with the fewest nearest neighbors in common: judge which list is better."
    if measurements.labels is not None:
        how += " Green with a tick: same label; red and dashed: another label."
    return {"how": how, "pairs": pairs}


def most_changed(
    before: Integers, after: Integers, count: int, rng: np.random.Generator
) -> Indices:
    """Return the rows that keep the fewest neighbors; ties in random order.

    Rows of one region change together, so a row that is a neighbor of an earlier one is skipped.
    """
    k = min(before.shape[1], after.shape[1])
    overlap = neighbor_overlap(before, after, k)
    order = np.lexsort((rng.random(len(overlap)), overlap))
    seen: set[int] = set()
    chosen = []
    for row in order.tolist():
        around = {row, *before[row, :SHOWN].tolist(), *after[row, :SHOWN].tolist()}
        if not around & seen:
            chosen.append(row)
            seen |= around
        if len(chosen) == count:
            break
    return np.array(chosen, dtype=np.intp)


def show_retrieval(measurements: Measurements) -> Content | None:
    labels, gallery = measurements.labels, measurements.gallery
    if labels is None:
        return None
    labeled = np.flatnonzero(labels != "")
    rows, vectors = measurements.rows[labeled], measurements.embedding.vectors[labeled]
    nearest = nearest_neighbors(vectors, min(SHOWN, len(rows) - 1), metric="cosine").indices
    chosen = retrieval_queries(nearest, labels[labeled], 5)

    def strip(i: int) -> Strip:
        query = int(rows[i])
        views = gallery.results(query, rows[nearest[i]].tolist())
        right = sum(v.tone == "right" for v in views)
        return [gallery.view(query, "query", "query"), *views], f"{right} of {len(views)} right", ""

    return {
        "how": (
            "Each row is a query (gray frame) and its nearest labeled items in the embedding. "
            "Green with a tick: same label; red and dashed: another label. The queries have mostly "
            "right or mostly wrong results, one per label."
        ),
        "strips": {
            title: [strip(i) for i in queries.tolist()]
            for title, queries in zip(("Successes", "Failures"), chosen, strict=True)
        },
    }


_PICTURES, _TEXTS = 20, 6  # cells per side


def show_grid(measurements: Measurements) -> Content:
    points, gallery = measurements.maps["rpml"], measurements.gallery
    rows = measurements.rows[measurements.drawn]
    pictures = gallery.items.images is not None
    most = _PICTURES if pictures else _TEXTS
    order, side = grid_order(points, most, measurements.rng("grid"))
    return {
        "how": (
            "A random sample of the items, moved from the map of the embedding to a grid: similar "
            "items should be side by side."
        ),
        "side": side,
        "kind": "pictures" if pictures else "texts",
        "views": [gallery.view(row) for row in rows[order].tolist()],
    }


MAX_QUERIES = 1000


def show_knowledge(measurements: Measurements) -> Content | None:
    """Show what was discounted; None for PCA without nuisance and queries."""
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
            "The embedding discounts what differs between near items, and the nuisance if one was "
            "given: neither should decide any longer which items are near."
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
    for place in np.flatnonzero(nearest[0] != nearest[1])[:PAIRS].tolist():
        before, now = (
            measurements.gallery.view(int(measurements.rows[rows[place]]), role=when)
            for rows, when in zip(nearest, ("before", "now"), strict=True)
        )
        strips.append(([before, now], "", f"query {sample[place]}"))
    return sentence, strips


def shared(neighbors: Integers, values: NDArray[np.str_]) -> float:
    """Return how often the nearest of the rows with a value has the same one."""
    known = values != ""
    same = values == values[neighbors[:, 0]]
    return float(same[known].mean()) if known.any() else 0.0
