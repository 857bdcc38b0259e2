"""The report of a fitted model on a set of vectors, from measuring to the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.recommendation import recommend
from rpml.pages.report import sections
from rpml.pages.report.comparison import Space, compare, make_spaces
from rpml.pages.report.grid import grid_side, snap_to_grid
from rpml.pages.report.items import Items
from rpml.pages.report.layout import layout
from rpml.pages.report.mapdata import map_data
from rpml.pages.report.page import render
from rpml.pages.report.sizes import quality_by_size
from rpml.pages.report.thumbnails import Thumbnails
from rpml.pages.report.training import call, fitted_on, settings, versions
from rpml.pages.report.verdict import judge
from rpml.pages.report.views import Gallery
from rpml.runtime.context import Progress
from rpml.runtime.errors import InputError

MEASURED = 20_000  # rows that are measured; a larger set is sampled
DRAWN = 5_000  # rows on the maps
_THUMBNAIL_BUDGET = 6_500_000
_GRID_IMAGES, _GRID_TEXTS = 20, 6  # cells across
_MAP_NEIGHBORS = 6
Listener = Callable[[Progress], Any]


@dataclass(frozen=True)
class Source:
    """Where model and features come from, for the settings at the end."""

    model: str
    features: str
    command: str = ""


def build_report(
    model: Any,
    X: Any,
    items: Items,
    source: Source,
    seed: int = 0,
    listen: Listener = lambda progress: None,
) -> str:
    """Measure, choose examples, draw and write the page.

    Parameters
    ----------
    model : RPML
        Fitted.
    X : (n, d) array
        Vectors to look at: the training rows or others.
    items : Items
        Their ids and, where known, labels and pictures.
    source : Source
        Names for the reader.
    seed : int
        Of samples, maps and intervals.
    listen : callable
        Told of the progress.

    Returns
    -------
    str
        The HTML page.
    """
    if len(X) < 3:
        raise InputError(f"a report needs at least 3 rows, the features have {len(X)}")
    rng = np.random.default_rng(seed)
    stages = _Stages(listen)
    stages.next()
    trained = fitted_on(model, X)
    rows = _sample(np.arange(len(X)), MEASURED, rng)
    labels = None if items.labels is None else np.array(items.labels)[rows]
    spaces = make_spaces(model, X[rows])
    stages.next()
    comparison = compare(spaces, labels, rng)
    advice = None
    if labels is None:
        advice = recommend(X[rows], spaces[-1].size, random_state=seed)
    stages.next()
    drawn = _sample(np.arange(len(rows)), DRAWN, rng)
    maps = _maps(spaces, drawn, rng)
    stages.next()
    thumbnails = Thumbnails(items, rows[drawn], _THUMBNAIL_BUDGET)
    gallery = Gallery(items, thumbnails)
    known = gallery if trained else None
    parts = {
        "verdict": judge(comparison, spaces, _which_rows(len(X), len(rows), trained), advice),
        "spaces": spaces,
        "table": sections.table(comparison, spaces),
        "differences": sections.differences(comparison),
        "checks": sections.checks(model, X[rows], rng),
        "training": sections.training(model),
        "clusters": sections.clusters(model.labels_, known),
        "triplets": sections.triplets(model, known),
        "spectra": sections.spectra(comparison, spaces),
        "sizes": quality_by_size(spaces[-1], labels, rng),
        "changed": sections.changed(spaces, rows, gallery, rng),
        "retrieval": None
        if labels is None
        else sections.retrieval(spaces[-1], labels, rows, gallery, rng),
        "grid": _grid(maps["rpml"], rows[drawn], gallery, rng),
        "model": model,
        "source": source,
        "trained": trained,
        "counts": {"rows": len(X), "measured": len(rows), "drawn": len(drawn)},
        "labelled": labels is not None,
        "settings": settings(model),
        "versions": versions(),
        "call": call(model),
        "seed": seed,
    }
    data = map_data(
        maps, items, rows[drawn], _categories(model, items, rows[drawn], trained), thumbnails
    )
    data["neighbors"] = _drawn_neighbors(spaces, drawn, len(rows))
    page = render(parts, data)
    stages.next()
    return page


class _Stages:
    """Counts the parts of the work for the progress line."""

    TOTAL = 4

    def __init__(self, listen: Listener) -> None:
        self._listen, self._done = listen, -1

    def next(self) -> None:
        self._done += 1
        self._listen(Progress("report", self._done, self.TOTAL))


def _sample(rows: NDArray[np.intp], most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    if len(rows) <= most:
        return rows
    return np.sort(rng.choice(rows, most, replace=False))


def _which_rows(total: int, measured: int, trained: bool) -> str:
    some = f"{measured:,} of {total:,} rows" if measured < total else f"{total:,} rows"
    if trained:
        return f"{some}, the ones the model learned from, without labels"
    return f"{some}, not the ones the model learned from"


def _maps(
    spaces: list[Space], drawn: NDArray[np.intp], rng: np.random.Generator
) -> dict[str, NDArray[np.float32]]:
    """Before and after; the second starts where the first ended, so that the two compare."""
    before = layout(spaces[0].vectors[drawn], rng)
    return {"raw": before, "rpml": layout(spaces[-1].vectors[drawn], rng, start=before)}


def _categories(
    model: Any, items: Items, rows: NDArray[np.intp], trained: bool
) -> dict[str, list[str]]:
    found = {}
    if items.labels is not None:
        found["label"] = [items.labels[row] for row in rows]
    if trained:
        found["cluster"] = [str(c) if c >= 0 else "none" for c in model.labels_[rows].tolist()]
    return found


def _drawn_neighbors(
    spaces: list[Space], drawn: NDArray[np.intp], measured: int
) -> dict[str, list[list[int]]] | None:
    """Neighbours by place on the map; None where not every measured row is drawn."""
    if len(drawn) < measured:
        return None
    return {
        key: space.neighbors[:, :_MAP_NEIGHBORS].tolist()
        for key, space in (("raw", spaces[0]), ("rpml", spaces[-1]))
    }


def _grid(
    points: NDArray[np.floating],
    rows: NDArray[np.intp],
    gallery: Gallery,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """A sample of the items on a square grid, by their place on the map of the embedding."""
    pictures = gallery.items.images is not None
    side = grid_side(len(points), _GRID_IMAGES if pictures else _GRID_TEXTS)
    chosen = rng.choice(len(points), side * side, replace=False)
    order = snap_to_grid(points[chosen], side)
    views = [gallery.view(int(rows[chosen[i]])) for i in order]
    return {"side": side, "pictures": pictures, "views": views}
