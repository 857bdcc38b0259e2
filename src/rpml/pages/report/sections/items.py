"""Sections that show items: the maps, what changed, hits and misses, the grid."""

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.metrics.label_free import neighbor_overlap
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.layout import grid_side, layout_note, snap_to_grid
from rpml.pages.report.measurements import Measurements
from rpml.pages.report.section import Content, ItemView, Section

SHOWN = 6  # neighbors per query
Rows = NDArray[np.intp]


def _maps(measurements: Measurements) -> Content:
    """Return the titles and notes of the maps; the points are passed as data."""
    notes = []
    if len(measurements.drawn) < measurements.n_rows:
        notes.append(
            f"The maps show {len(measurements.drawn):,} of {measurements.n_rows:,} items, chosen "
            "at random."
        )
    notes.append(layout_note(len(measurements.drawn)))
    return {
        "how": (
            "Items with similar vectors are close together. Point at an item or tap it, and it is "
            "marked in every map. Distances between distant groups mean little."
        ),
        "maps": measurements.titles,
        "notes": " ".join(note for note in notes if note),
    }


_MAPS_TEMPLATE = """
<div class="controls">
  <label>Color by <select id="color-by"></select></label>
  <label>Find
    <input id="find" type="search" placeholder="an id or a text" autocomplete="off"
      spellcheck="false">
  </label>
  <span id="find-status" class="muted" role="status"></span>
  <button type="button" id="find-next" hidden>Next match</button>
</div>
<div class="maps">
  {% for key, title in maps.items() %}
  <figure class="map" data-map="{{ key }}">
    <figcaption>
      <span id="map-{{ key }}">{{ title }}</span>
      <span class="map-buttons">
        <button type="button" data-act="in" aria-label="Zoom in, {{ title }}">+</button>
        <button type="button" data-act="out" aria-label="Zoom out, {{ title }}">−</button>
        <button type="button" data-act="reset" aria-label="Show all, {{ title }}">⤢</button>
      </span>
    </figcaption>
    <div class="map-box">
      <canvas tabindex="0" role="application" aria-labelledby="map-{{ key }}"
        aria-describedby="map-keys"></canvas>
    </div>
  </figure>
  {% endfor %}
</div>
<div id="legend" class="legend" role="group" aria-label="Legend" hidden></div>
<p class="note" id="map-keys">
  Drag to move; click the map, then scroll to zoom (or pinch). Keyboard: arrow keys go from item to
  item, Shift with arrows moves the map, + and − zoom, 0 shows all, Enter selects an item.
</p>
{% if notes %}<p class="note" id="map-notes">{{ notes }}</p>{% endif %}
<div id="card" class="card" role="status" aria-live="polite">
  <p class="muted">No item selected: point at one, or find one by its id.</p>
</div>
<noscript>
  <p class="note">The maps need JavaScript; everything else on this page works without it.</p>
</noscript>
"""
MAPS = Section("maps", "Maps", _maps, _MAPS_TEMPLATE)


def _changed(measurements: Measurements) -> Content:
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
        query_view = gallery.view(query, "query")
        pairs.append({"query": query_view, "lists": views, "remark": remark})
    how = "Items that retained the fewest nearest neighbors: judge which list is better."
    if two:
        how = "Items with the fewest nearest neighbors in common: judge which list is better."
    if measurements.labels is not None:
        how += " Green with a tick: same label; red and dashed: another label."
    return {"how": how, "pairs": pairs}


def most_changed(
    before: NDArray[np.integer], after: NDArray[np.integer], count: int, rng: np.random.Generator
) -> Rows:
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


_CHANGED_TEMPLATE = """
{% for pair in pairs %}
<div class="pair">
  <div class="pair-query">
    {{ ui.item(pair.query, "named") }}
    <p class="muted">{{ pair.remark }}</p>
  </div>
  <div class="pair-lists">
    {% for title, views in pair.lists.items() %}
    <div><h3>{{ title }}</h3>{{ ui.row(views) }}</div>
    {% endfor %}
  </div>
</div>
{% else %}
<p>There are too few items to compare neighbors.</p>
{% endfor %}
"""
CHANGED = Section("changed", "What changed most", _changed, _CHANGED_TEMPLATE)


def _retrieval(measurements: Measurements) -> Content | None:
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

    def strip(i: int) -> tuple[list[ItemView], str]:
        query = int(rows[i])
        views = gallery.results(query, rows[nearest[i]].tolist())
        right = sum(v.tone == "right" for v in views)
        query_view = gallery.view(query, "query", "query")
        return [query_view, *views], f"{right} of {len(views)} right"

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


def retrieval_queries(
    nearest: NDArray[np.integer], labels: NDArray[np.str_], count: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Return random queries with mostly right results, and others with mostly wrong ones.

    One per label, and only labels with at least two items, since others can only fail.
    """
    right = (labels[nearest[:, :SHOWN]] == labels[:, None]).mean(axis=1)
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    able = np.flatnonzero(sizes[codes] > 1)

    def pick(score: NDArray[np.floating]) -> Rows:
        order = able[np.lexsort((rng.random(len(able)), -score[able]))]
        _, first = np.unique(codes[order], return_index=True)
        return np.asarray(order[np.sort(first)[:count]])

    successes = pick(right)
    failures = pick(1 - right)
    return successes[right[successes] > 0.5], failures[right[failures] < 0.5]


_RETRIEVAL_TEMPLATE = """
<div class="halves">
  {% for title, kind, strips in columns %}
  <div>
    <h3>{{ title }}</h3>
    {% for s in strips %}
    {{ ui.strip(*s) }}
    {% else %}
    <p class="muted">No query has mostly {{ kind }} results.</p>
    {% endfor %}
  </div>
  {% endfor %}
</div>
"""
RETRIEVAL = Section("retrieval", "Hits and misses", _retrieval, _RETRIEVAL_TEMPLATE)


_PICTURES, _TEXTS = 20, 6  # cells per side


def _grid(measurements: Measurements) -> Content:
    """Show a sample of the items by their position on the map of the embedding."""
    points, gallery = measurements.maps["rpml"], measurements.gallery
    rows = measurements.rows[measurements.drawn]
    pictures = gallery.items.images is not None
    side = grid_side(len(points), _PICTURES if pictures else _TEXTS)
    chosen = measurements.rng("grid").choice(len(points), side * side, replace=False)
    order = snap_to_grid(points[chosen], side)
    return {
        "how": (
            "A random sample of the items, moved from the map of the embedding to a grid: similar "
            "items should be side by side."
        ),
        "side": side,
        "kind": "pictures" if pictures else "texts",
        "views": [gallery.view(int(rows[chosen[i]])) for i in order],
    }


_GRID_TEMPLATE = """
<div class="scroller" role="region" aria-label="Grid of items" tabindex="0">
<div class="mosaic {{ kind }} side-{{ side }}">
{% for view in views %}{{ ui.item(view) }}{% endfor %}
</div>
</div>
"""
GRID = Section("grid", "The embedding at a glance", _grid, _GRID_TEMPLATE)
