"""The parts of the page: each takes what was measured and says what the template shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.diagnostics import (
    Diagnostic,
    of_clusters,
    of_stability,
    of_triplets,
    of_whitening,
)
from rpml.pages.report import charts
from rpml.pages.report.comparison import Comparison, Score, Space
from rpml.pages.report.examples import (
    SHOWN,
    Triplet,
    cluster_samples,
    most_changed,
    retrieval_queries,
    trusted_triplets,
)
from rpml.pages.report.verdict import spaced
from rpml.pages.report.views import Gallery, ItemView, Strip

_ENOUGH, _STABILITY_ROWS = 60, 3000  # rows the stability of clusters is measured on


@dataclass(frozen=True)
class Figure:
    """A chart (SVG, already escaped) with its heading."""

    heading: str
    svg: str


@dataclass(frozen=True)
class Cell:
    """A figure of the table as text, with its interval."""

    text: str
    interval: str
    best: bool


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    name: str
    reading: str
    cells: list[Cell]
    by_labels: bool


@dataclass(frozen=True)
class Pair:
    """The neighbours of one item before and after."""

    query: ItemView
    before: list[ItemView]
    after: list[ItemView]
    remark: str


def table(comparison: Comparison, spaces: list[Space]) -> list[Line]:
    """Scores as text; the best of a line is marked where more is better."""
    return [_line(score, [s.key for s in spaces]) for score in comparison.scores]


def _line(score: Score, keys: list[str]) -> Line:
    values = {key: round(score.values[key], 3) for key in keys}
    best = max(values.values()) if score.by_labels else None
    cells = [
        Cell(_text(score.values[key], score.style), _interval(score, key), values[key] == best)
        for key in keys
    ]
    return Line(score.name, score.reading, cells, score.by_labels)


def _text(value: float, style: str) -> str:
    if style == "percent":
        return f"{100 * value:.1f}\u00a0%"
    return f"{value:,.0f}" if style == "whole" else f"{value:.2f}".replace("-", "−")


def _interval(score: Score, key: str) -> str:
    found = score.intervals.get(key)
    return "" if found is None else f"{100 * found.low:.1f} – {100 * found.high:.1f}"


def differences(comparison: Comparison) -> Figure | None:
    """Gains in Recall@K over each alternative, with intervals."""
    names = {"raw": "raw", "pca": "PCA"}
    ranges = [
        charts.Range(f"R@{k}, vs {names[key]}", key, 100 * m.value, 100 * m.low, 100 * m.high)
        for key, gains in comparison.differences.items()
        for k, m in gains.items()
        if k in (1, 4)
    ]
    if not ranges:
        return None
    heading = "Gain in Recall over the alternatives"
    return Figure(heading, charts.interval_chart(heading, ranges, "percentage points"))


def checks(model: Any, X: NDArray[Any], rng: np.random.Generator) -> list[Diagnostic]:
    """Diagnostics that need no labels; those of neighbours are in the table already."""
    found = [*of_clusters(model.labels_), *of_triplets(model), *of_whitening(model)]
    if len(X) >= _ENOUGH:
        some = np.sort(rng.permutation(len(X))[:_STABILITY_ROWS])
        found.insert(4, of_stability(model, X[some], rng))
    return [
        replace(d, shown=spaced(d.shown.replace("->", "→")), meaning=spaced(d.meaning))
        for d in found
    ]


def training(model: Any) -> list[Figure]:
    """What the solver recorded."""
    step = "epoch" if model.solver == "stochastic" else "iteration"
    shown = {"loss": "Loss", "gradient_norm": "Gradient norm", "mean_weight": "Mean triplet weight"}
    figures = []
    for name, heading in shown.items():
        values = model.history_.get(name, [])
        log = name == "gradient_norm" and bool(values) and min(values) > 0
        line = charts.Series(heading, "rpml", values)
        figures.append(Figure(heading, charts.line_chart(heading, [line], step, log)))
    return figures


@dataclass(frozen=True)
class Clusters:
    """Sizes of the pseudo-clusters and some of them as items."""

    count: int
    singletons: int
    unlabelled: int
    largest: int
    median: float
    figure: Figure
    samples: list[Strip]


def clusters(labels: NDArray[np.intp], gallery: Gallery | None) -> Clusters:
    """From the pseudo-labels; `gallery` is None if the rows shown are not the training rows."""
    sizes = np.bincount(labels[labels >= 0])
    sizes = sizes[sizes > 0]
    chart = charts.histogram("Cluster sizes", sizes, "items in a cluster", log_bins=True)
    samples = []
    if gallery is not None:
        samples = [
            Strip(f"Cluster {name}", [gallery.view(r) for r in rows], f"{size} items")
            for name, size, rows in cluster_samples(labels, 5, 10)
        ]
    return Clusters(
        count=len(sizes),
        singletons=int((sizes == 1).sum()),
        unlabelled=int((labels < 0).sum()),
        largest=int(sizes.max(initial=0)),
        median=float(np.median(sizes)) if len(sizes) else 0.0,
        figure=Figure("Cluster sizes", chart),
        samples=samples,
    )


@dataclass(frozen=True)
class Triplets:
    """Histograms of weights and probabilities; the ends as items."""

    count: int
    by: str
    figures: list[Figure]
    most: list[Strip]
    least: list[Strip]


def triplets(model: Any, gallery: Gallery | None) -> Triplets:
    """`gallery` is None if the rows shown are not the training rows."""
    weights, probabilities = model.triplet_weights_, model.triplet_probabilities_
    figures = [
        Figure("Triplet weights", charts.histogram("Triplet weights", weights, "weight")),
        Figure(
            "Triplet probabilities",
            charts.histogram("Triplet probabilities", probabilities, "probability"),
        ),
    ]
    if gallery is None or not len(weights):
        return Triplets(len(weights), "weight", figures, [], [])
    trust = trusted_triplets(model)
    most, least = ([_strip(t, gallery) for t in part] for part in (trust.most, trust.least))
    return Triplets(len(weights), trust.by, figures, most, least)


def _strip(triplet: Triplet, gallery: Gallery) -> Strip:
    roles = ("anchor", "positive", "negative")
    items = [gallery.view(r, "", role) for r, role in zip(triplet.rows, roles, strict=True)]
    return Strip("", items, f"weight {triplet.weight:.3g}, probability {triplet.probability:.3g}")


def spectra(comparison: Comparison, spaces: list[Space]) -> Figure:
    """Share of variance by axis, all spaces in one chart."""
    most = min(256, max(len(v) for v in comparison.spectra.values()))
    lines = [
        charts.Series(s.title, s.key, np.maximum(comparison.spectra[s.key][:most], 1e-9))
        for s in spaces
    ]
    heading = "Share of variance by axis"
    return Figure(heading, charts.line_chart(heading, lines, "axis, strongest first", log=True))


def changed(
    spaces: list[Space], rows: NDArray[np.intp], gallery: Gallery, rng: np.random.Generator
) -> list[Pair]:
    """Neighbours before and after of the items that changed most."""
    before, after = spaces[0].neighbors, spaces[-1].neighbors
    pairs = []
    for i in most_changed(before, after, 6, rng):
        query = int(rows[i])
        lists = [rows[s[i, :SHOWN]].tolist() for s in (before, after)]
        same = len(set(lists[0]) & set(lists[1]))
        pairs.append(
            Pair(
                gallery.view(query, "query"),
                gallery.found(query, lists[0]),
                gallery.found(query, lists[1]),
                f"{same} of {len(lists[0])} neighbours stay",
            )
        )
    return pairs


def retrieval(
    space: Space,
    labels: NDArray[Any],
    rows: NDArray[np.intp],
    gallery: Gallery,
    rng: np.random.Generator,
) -> dict[str, list[Strip]]:
    """Queries that succeed and queries that fail in the embedding."""
    chosen = retrieval_queries(space.neighbors, labels, 5, rng)

    def strip(i: int) -> Strip:
        query, found = int(rows[i]), rows[space.neighbors[i, :SHOWN]].tolist()
        views = gallery.found(query, found)
        right = sum(v.tone == "right" for v in views)
        items = [gallery.view(query, "query", "query"), *views]
        return Strip("", items, f"{right} of {len(views)} right")

    return {
        "successes": [strip(i) for i in chosen.successes.tolist()],
        "failures": [strip(i) for i in chosen.failures.tolist()],
    }
