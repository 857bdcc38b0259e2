"""The method as one picture: what each stage does, on real drawings, from the code itself."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import require

CHARACTERS, DRAWINGS = 6, 14
TITLES = (
    "vectors that\nnobody labeled",
    "nearest\nneighbors",
    "authority ascent\n= pseudo-labels",
    "triplets",
    "loss over (θ, L) by\nRiemannian CG",
    "embedding",
)
_INK, _GRAY, _PALE = "#222222", "#8a8a8a", "#d5d5d5"
_COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b0a000")


@dataclass(frozen=True)
class Story:
    """What the panels show, all of it computed by the package."""

    images: NDArray[Any]
    before: NDArray[np.floating]
    after: NDArray[np.floating]
    edges: NDArray[np.intp]
    parents: NDArray[np.intp]
    labels: NDArray[np.intp]
    triplet: NDArray[np.intp]
    loss: NDArray[np.floating]


def tell_story(seed: int = 19) -> Story:
    """Fit a few characters of the demonstration's drawings and keep every stage's result."""
    from rpml.estimator import RPML
    from rpml.io.datasets.demos import gradient_histograms, load_drawings
    from rpml.method.clustering.aas import AuthorityAscentShift
    from rpml.method.graph.neighbors import nearest_neighbors

    rng = np.random.default_rng(seed)
    drawings, _ = load_drawings()
    chosen = rng.choice(np.unique(drawings.character), CHARACTERS, replace=False)
    rows = np.concatenate([np.flatnonzero(drawings.character == c)[:DRAWINGS] for c in chosen])
    X = gradient_histograms(drawings.images[rows])
    near = nearest_neighbors(X, 5, metric="cosine").indices
    aas = AuthorityAscentShift(5).fit(X)
    model = RPML(8, clustering=aas.labels_, training="always", max_iter=500, random_state=seed).fit(
        X
    )
    edges = np.array([(i, j) for i, row in enumerate(near) for j in row], np.intp)
    before = _plane(X, seed)
    return Story(
        drawings.images[rows],
        before,
        _plane(model.transform(X), seed, like=before),
        edges,
        np.asarray(aas.parents_, np.intp),
        np.asarray(aas.labels_, np.intp),
        _wide_triplet(np.asarray(model.triplets_, np.intp), before),
        np.asarray(model.history_["loss"], float),
    )


def _plane(
    X: NDArray[Any], seed: int, like: NDArray[np.floating] | None = None
) -> NDArray[np.floating]:
    """A map of the rows in the unit square, turned as near as it gets to another map."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # a hundred rows: threads would only wait for each other
        points = TSNE(2, perplexity=20, init="pca", random_state=seed).fit_transform(X)
    if like is not None:
        left, _, right = np.linalg.svd(
            (points - points.mean(axis=0)).T @ (like - like.mean(axis=0))
        )
        points = points @ left @ right
    low, high = points.min(axis=0), points.max(axis=0)
    return np.asarray((points - low) / (high - low))


def _wide_triplet(triplets: NDArray[np.intp], points: NDArray[np.floating]) -> NDArray[np.intp]:
    """The triplet that is easiest to see: the pair far apart, the negative at a like distance."""
    a, p, n = (points[triplets[:, i]] for i in range(3))
    pair, first, second = (np.linalg.norm(u - v, axis=1) for u, v in ((a, p), (n, a), (n, p)))
    score = pair - 0.5 * np.abs(first - second) - np.abs(np.minimum(first, second) - 0.45)
    return np.asarray(triplets[np.argmax(score)])


def framework_figure(path: str | PathLike[str], seed: int = 19) -> None:
    """Draw the chain of stages and write it; the suffix decides the format."""
    figures = require("matplotlib.figure", "report", "the framework figure")
    story = tell_story(seed)
    figure = figures.Figure(figsize=(13.2, 2.7), dpi=150, facecolor="white")
    panels = figure.subplots(1, len(TITLES))
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.03, top=0.78, wspace=0.2)
    for panel, title in zip(panels, TITLES, strict=True):
        panel.set_title(title, fontsize=13, color=_INK)
        panel.set_xticks([])
        panel.set_yticks([])
        for side in panel.spines.values():
            side.set_color(_PALE)
    _draw_drawings(panels[0], story.images, story.before, None)
    _draw_graph(panels[1], story)
    _draw_clusters(panels[2], story)
    _draw_triplet(panels[3], story)
    _draw_loss(panels[4], story.loss)
    _draw_drawings(panels[5], story.images, story.after, _tones(story.labels))
    for left, right in pairwise(panels):
        _draw_arrow(figure, left, right)
    figure.savefig(path)


def _square(panel: Any) -> None:
    panel.set_xlim(-0.08, 1.08)
    panel.set_ylim(-0.08, 1.08)
    panel.set_box_aspect(1)


def _tones(labels: NDArray[np.intp]) -> list[str]:
    """A color a row: the larger clusters have their own, the others are gray."""
    sizes = np.bincount(labels)
    rank = np.argsort(np.argsort(-sizes, kind="stable"))
    return [_COLORS[rank[c]] if rank[c] < len(_COLORS) and sizes[c] > 1 else _GRAY for c in labels]


def _draw_drawings(
    panel: Any, images: NDArray[Any], points: NDArray[np.floating], tones: list[str] | None
) -> None:
    colors = require("matplotlib.colors", "report", "the framework figure")
    size = 0.05
    for k, (image, (x, y)) in enumerate(zip(images, points, strict=True)):
        picture = np.ones((*image.shape, 4))
        picture[..., :3] = colors.to_rgb(tones[k] if tones else _INK)
        picture[..., 3] = np.asarray(image, float)
        panel.imshow(picture, extent=(x - size, x + size, y - size, y + size), aspect="auto")
    _square(panel)


def _draw_graph(panel: Any, story: Story) -> None:
    lines = require("matplotlib.collections", "report", "the framework figure")
    segments = story.before[story.edges]
    panel.add_collection(lines.LineCollection(segments, colors=_PALE, linewidths=0.7))
    panel.scatter(*story.before.T, s=9, color=_INK, zorder=2)
    _square(panel)


def _draw_clusters(panel: Any, story: Story) -> None:
    tones = _tones(story.labels)
    for i, parent in enumerate(story.parents):
        if parent != i:
            start, stop = story.before[i], story.before[parent]
            panel.plot(*zip(start, stop, strict=True), color=tones[i], lw=0.8, alpha=0.7)
    panel.scatter(*story.before.T, s=9, c=tones, zorder=2)
    modes = np.flatnonzero(story.parents == np.arange(len(story.parents)))
    panel.scatter(
        *story.before[modes].T,
        s=70,
        marker="*",
        c=[tones[m] for m in modes],
        edgecolors=_INK,
        linewidths=0.6,
        zorder=3,
    )
    _square(panel)


def _draw_triplet(panel: Any, story: Story) -> None:
    tones = _tones(story.labels)
    panel.scatter(*story.before.T, s=7, c=tones, alpha=0.35)
    a, p, n = story.before[story.triplet]
    panel.plot(*np.array([a, p]).T, color="#009e73", lw=2)
    for end in (a, p):
        panel.plot(*np.array([n, end]).T, color="#d55e00", lw=1.4, ls="--")
    for point, name in ((a, "anchor"), (p, "positive"), (n, "negative")):
        panel.scatter(*point, s=40, color=_INK, zorder=3)
        below = 0.15 < point[1] < np.mean([a[1], p[1], n[1]])
        panel.annotate(
            name,
            point,
            xytext=(0, -8 if below else 8),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=9,
            color=_INK,
            bbox={"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.75},
        )
    middle = n + 0.42 * ((a + p) / 2 - n)
    panel.annotate("α", middle, fontsize=11, ha="center", va="center", color="#d55e00")
    _square(panel)


def _draw_loss(panel: Any, loss: NDArray[np.floating]) -> None:
    panel.plot(loss, color="#0072b2", lw=2)
    panel.margins(0.12)
    panel.set_box_aspect(1)
    panel.text(
        0.95,
        0.93,
        r"$\sum_i \log(1 + e^{w_i m_i})$" + "\n" + r"$w_i = w_\theta(x_i)$" + "\n"
        r"$L^\top L = I$",
        transform=panel.transAxes,
        ha="right",
        va="top",
        fontsize=10,
        color=_INK,
    )


def _draw_arrow(figure: Any, left: Any, right: Any) -> None:
    """From one panel to the next, in the gap between them."""
    patches = require("matplotlib.patches", "report", "the framework figure")
    figure.canvas.draw()
    a, b = left.get_position(), right.get_position()
    gap = b.x0 - a.x1
    y = (a.y0 + a.y1) / 2
    figure.add_artist(
        patches.FancyArrowPatch(
            (a.x1 + 0.12 * gap, y),
            (b.x0 - 0.12 * gap, y),
            arrowstyle="-|>",
            mutation_scale=14,
            color=_GRAY,
            transform=figure.transFigure,
        )
    )
