"""The measurements that the sections of a report show: raw features, PCA and the embedding."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.evaluation.advice import Recommendation
from rpml.evaluation.metrics import first_hit_rank, kmeans_labels, nmi_interval
from rpml.evaluation.metrics.label_free import (
    LABEL_FREE,
    NEAREST,
    label_free_figures,
    neighbor_overlap,
    spectrum,
)
from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.recommendation import CANDIDATES, recommend_fitted
from rpml.evaluation.registry import PCA, PCA_FAMILY
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.items import Items, clusters_of, fitted_on
from rpml.pages.layout import linked_maps
from rpml.pages.report.section import Gallery
from rpml.runtime.context import Progress
from rpml.runtime.errors import InputError, counted
from rpml.runtime.intervals import Interval, interval, paired, share_interval
from rpml.runtime.rows import Array, Indices, Mask, sorted_sample

MODELS = ("rpml", "second")  # keys of the spaces of the models
MAX_MEASURED = 20_000  # rows; a larger set is sampled
MAX_DRAWN = 5_000  # points per map
THUMBNAIL_BYTES = 6_500_000
N_STAGES = 4
Listener = Callable[[Progress], object]
Texts = NDArray[np.str_]
Gains = dict[str, dict[int, Interval]]
"""Recall@K of the embedding minus that of each alternative, by alternative and K."""


@dataclass(frozen=True)
class Source:
    """The names of the model, the features and the second model, as shown."""

    model: str
    features: str
    command: str = ""
    second: str = ""

    @property
    def models(self) -> list[str]:
        return [self.model, self.second] if self.second else ["RPML"]


@dataclass(frozen=True)
class Space:
    """Vectors of the rows and their nearest neighbors by cosine similarity."""

    key: str
    title: str
    vectors: Array
    neighbors: NDArray[np.int32]

    @property
    def n_dims(self) -> int:
        return int(self.vectors.shape[1])

    @cached_property
    def spectrum(self) -> tuple[Array, Interval]:
        """Shares of variance per axis, and the effective rank."""
        return spectrum(self.vectors)


class Score(NamedTuple):
    """A measure in every space, how to read it, and its format specification.

    `best` is the space that is better than all others beyond chance, if any.
    """

    name: str
    reading: str
    style: str
    figures: dict[str, Interval]
    best: str = ""


class Measurements:
    """A sample of the rows, the spaces compared on it, and their maps.

    `models` is one fitted model, or two to compare; sections about the fit are about the first,
    `model`. `rows` (m,) are the measured rows, `X` (m, d) their vectors and `labels` (m,) their
    labels, empty where unknown, or None if fewer than three are known. `trained` says whether all
    rows are the training rows. `clusters` (n_rows,) are those of the fit, or of the measured rows
    if it made none; None for other rows. `shared` is the share of nearest neighbors that two models
    have in common, `advice` the label-free recommendation, if there are no labels. `drawn` (p,) are
    positions in `rows` of the points on the maps, and `maps` has them (p, 2) by space.
    """

    def __init__(
        self,
        models: Sequence[RPML],
        X: Array,
        items: Items,
        source: Source,
        seed: int = 0,
        listen: Listener = lambda progress: None,
    ) -> None:
        if len(X) < 3:
            raise InputError(f"a report needs at least 3 rows, the features have {len(X)}")
        self.items, self.source, self.seed, self.n_rows = items, source, seed, len(X)
        self.model = model = models[0]
        rng = np.random.default_rng(seed)
        listen(Progress("report", 0, N_STAGES))
        self.rows = rows = _sample_rows(items, len(X), rng)
        labels = np.array([items.label(row) or "" for row in rows])
        self.X, self.labels = X[rows], labels if (labels != "").sum() >= 3 else None
        self.spaces = make_spaces(dict(zip(source.models, models, strict=True)), self.X)
        listen(Progress("report", 1, N_STAGES))
        self.label_free_scores = label_free_scores(self.spaces, rng)
        near = [space.neighbors for space in self.spaces if space.key in MODELS]
        self.shared = interval(neighbor_overlap(near[0], near[1]), rng) if len(near) > 1 else None
        self.label_scores: list[Score] = []
        self.gains: Gains = {}
        self.advice: Recommendation | None = None
        if self.labels is not None:
            self.label_scores, self.gains = label_scores(self.spaces, self.labels, rng)
        else:
            self.advice = _advice(model, self.X, seed)
        listen(Progress("report", 2, N_STAGES))
        self.drawn = sorted_sample(len(rows), MAX_DRAWN, rng)
        drawn = {s.key: s.vectors[self.drawn] for s in self.spaces if s.key != "pca"}
        self.maps = linked_maps(drawn, rng)
        listen(Progress("report", 3, N_STAGES))
        self.trained, self.clusters = fitted_on(model, X), clusters_of(model, X, rows)
        self.gallery = Gallery(items, rows[self.drawn], THUMBNAIL_BYTES)

    @property
    def embedding(self) -> Space:
        return next(space for space in self.spaces if space.key == "rpml")

    @property
    def titles(self) -> dict[str, str]:
        """The titles of the maps and of the lists of neighbors, by space."""
        if self.source.second:
            return {"raw": "Raw features", "rpml": self.source.model, "second": self.source.second}
        return {"raw": "Before: raw features", "rpml": "After: RPML"}

    def rng(self, name: str) -> np.random.Generator:
        """Return a generator for a section, so that a new section does not change others."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])


def _advice(model: RPML, X: Array, seed: int) -> Recommendation:
    # a model that is PCA has no evidence of its own
    methods = PCA_FAMILY if model.outcome_ == "PCA" else CANDIDATES
    own = None if model.whitening_ is None else model.whitening_.gain
    return recommend_fitted(X, len(model.components_), own, methods, seed)


def _sample_rows(items: Items, n: int, rng: np.random.Generator) -> Indices:
    """Draw up to MAX_MEASURED rows, labeled ones first, since only they can be scored."""
    labeled = np.flatnonzero(items.labeled_mask)
    if n <= MAX_MEASURED or len(labeled) in (0, n):
        return sorted_sample(n, MAX_MEASURED, rng)
    chosen = labeled[sorted_sample(len(labeled), MAX_MEASURED // 2, rng)]
    rest = np.setdiff1d(np.arange(n), labeled)
    more = rest[sorted_sample(len(rest), MAX_MEASURED - len(chosen), rng)]
    return np.sort(np.concatenate([chosen, more]))


def make_spaces(models: Mapping[str, RPML], X: Array) -> list[Space]:
    """Return raw features, PCA of the first model's size (if the rows have that rank), embeddings.

    The spaces of the one or two models have the keys "rpml" and "second".
    """
    k = min(max(NEAREST, *KS), len(X) - 1)
    embeddings = [model.transform(X) for model in models.values()]
    n_dims = embeddings[0].shape[1]
    vectors = {"raw": ("raw features", np.asarray(X, np.float32))}
    with suppress(ValueError):  # without PCA if the rows have a lower rank
        vectors["pca"] = (f"PCA, {counted(n_dims, 'dimension')}", PCA(n_dims).fit(X).transform(X))
    for key, name, embedding in zip(MODELS, models, embeddings, strict=False):
        vectors[key] = (f"{name}, {counted(embedding.shape[1], 'dimension')}", embedding)
    return [
        Space(key, title, rows, nearest_neighbors(rows, k, metric="cosine").indices)
        for key, (title, rows) in vectors.items()
    ]


def label_scores(
    spaces: Sequence[Space], labels: Texts, rng: np.random.Generator
) -> tuple[list[Score], Gains]:
    """Return Recall@K and NMI of the labeled rows, and the differences in Recall@K."""
    rows = np.flatnonzero(labels != "")
    y = labels[rows]
    ranks = {s.key: first_hit_rank(s.vectors[rows], y) for s in spaces}
    hits = {k: {key: r < min(k, len(r)) for key, r in ranks.items()} for k in KS}
    scores = [_recall_score(k, hits[k], rng) for k in KS]
    reading = "normalized mutual information of the labels and a k-means partition of the vectors"
    nmi = {s.key: nmi_interval(kmeans_labels(s.vectors[rows], y), y) for s in spaces}
    scores.append(Score("NMI", reading, ".1%", nmi))
    others = [key for key in ranks if key != "rpml"]
    return scores, {
        key: {k: paired(hits[k]["rpml"], hits[k][key], rng) for k in KS} for key in others
    }


def _recall_score(k: int, hits: Mapping[str, Mask], rng: np.random.Generator) -> Score:
    reading = f"share of items with their own label among the {k} nearest neighbors"
    if k == 1:
        reading = "share of items whose nearest neighbor has the same label"
    figures = {key: share_interval(float(hit.mean()), len(hit)) for key, hit in hits.items()}
    first = max(figures, key=lambda key: figures[key].value)
    clear = all(paired(hits[first], hits[key], rng).clear > 0 for key in hits if key != first)
    return Score(f"Recall@{k}", reading, ".1%", figures, first if clear else "")


def label_free_scores(spaces: Sequence[Space], rng: np.random.Generator) -> list[Score]:
    raw = spaces[0].neighbors
    sizes = {s.key: Interval(s.n_dims, s.n_dims, s.n_dims) for s in spaces}
    figures = {s.key: label_free_figures(raw, s.neighbors, s.spectrum[1], rng) for s in spaces}
    return [Score("Dimensions", "per vector", ",.0f", sizes)] + [
        Score(*text, {key: found[name] for key, found in figures.items()})
        for name, text in LABEL_FREE.items()
    ]
