"""The measurements that the sections of a report show: raw features, PCA and the embedding."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.evaluation.advice import Recommendation
from rpml.evaluation.metrics import first_hit_rank, kmeans_labels, nmi_interval
from rpml.evaluation.metrics.label_free import (
    NEAREST,
    hubness_interval,
    is_antihub,
    neighbor_overlap,
    spectrum,
)
from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.recommendation import CANDIDATES, recommend_fitted
from rpml.evaluation.registry import PCA_FAMILY
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.items import Items, clusters_of, fitted_on
from rpml.pages.layout import linked_maps
from rpml.pages.report.section import Gallery, Score
from rpml.runtime.context import Progress
from rpml.runtime.errors import InputError
from rpml.runtime.intervals import Interval, interval, paired, share_interval
from rpml.runtime.rows import Array, Labels, sorted_sample
from rpml.runtime.wording import counted

MODELS = ("rpml", "second")  # keys of the spaces of the models
MAX_MEASURED = 20_000  # rows; a larger set is sampled
MAX_DRAWN = 5_000  # points per map
THUMBNAIL_BYTES = 6_500_000
N_STAGES = 4
Listener = Callable[[Progress], object]
Hits = dict[str, dict[int, NDArray[np.bool_]]]
"""By key of the space and K: whether a labeled row has its label among its K nearest."""


@dataclass(frozen=True)
class Source:
    """The names of the model, the features and the second model, as shown."""

    model: str
    features: str
    command: str = ""
    second: str = ""

    @property
    def models(self) -> list[str]:
        """The names of the embeddings."""
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
        """Number of dimensions."""
        return int(self.vectors.shape[1])

    @cached_property
    def spectrum(self) -> tuple[Array, Interval]:
        """Shares of variance per axis."""
        return spectrum(self.vectors)


@dataclass(frozen=True)
class SampledLabels:
    """The labeled rows of a sample: their positions in the sample, and their labels."""

    positions: NDArray[np.intp]
    values: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Measurements:
    """All measurements, in the order of the sampled rows."""

    model: RPML
    source: Source
    n_rows: int
    trained: bool
    """Whether the rows are the training rows."""
    clusters: Labels | None
    """(n_rows,) clusters of the fit, or of the rows if the fit made none; None for other rows."""
    rows: NDArray[np.intp]
    """(m,) measured rows."""
    X: Array
    """(m, d) their vectors."""
    labels: SampledLabels | None
    spaces: list[Space]
    """Raw features, PCA if possible, and the embeddings of one or two models."""
    scores: list[Score]
    differences: dict[str, dict[int, Interval]]
    """Recall@K of the embedding minus that of each alternative, by alternative and K; empty without
    labels."""
    shared: Interval | None
    """Share of nearest neighbors that two models have in common; None for one model."""
    advice: Recommendation | None
    """The label-free recommendation; None with labels."""
    drawn: NDArray[np.intp]
    """(p,) positions in `rows` of the points on the maps."""
    maps: dict[str, NDArray[np.float32]]
    """(p, 2) points by space: "raw", "rpml" and perhaps "second"."""
    gallery: Gallery
    seed: int

    @property
    def items(self) -> Items:
        """Ids, labels and pictures of all rows."""
        return self.gallery.items

    @property
    def embedding(self) -> Space:
        """The space of the model."""
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


def measure(
    models: Sequence[RPML],
    X: Array,
    items: Items,
    source: Source,
    seed: int = 0,
    listen: Listener = lambda progress: None,
) -> Measurements:
    """Sample the rows, compare the spaces and lay out the maps.

    `models` is one fitted model, or two to compare; sections about the fit are about the first.
    """
    if len(X) < 3:
        raise InputError(f"a report needs at least 3 rows, the features have {len(X)}")
    rng = np.random.default_rng(seed)
    listen(Progress("report", 0, N_STAGES))
    rows = _sample_rows(items, len(X), rng)
    labels, sampled, model = _sampled_labels(items, rows), X[rows], models[0]
    spaces = make_spaces(dict(zip(source.models, models, strict=True)), sampled)
    listen(Progress("report", 1, N_STAGES))
    scores = label_free_scores(spaces, rng)
    shared = _shared_neighbors(spaces, rng)
    differences: dict[str, dict[int, Interval]] = {}
    if labels is not None:
        with_labels, differences = label_scores(spaces, labels, rng)
        scores = with_labels + scores
    # a model that is PCA has no evidence of its own
    methods = PCA_FAMILY if model.outcome_ == "PCA" else CANDIDATES
    size = len(model.components_)
    own = None if model.whitening_ is None else model.whitening_.gain
    advice = None if labels else recommend_fitted(sampled, size, own, methods, seed)
    listen(Progress("report", 2, N_STAGES))
    drawn = sorted_sample(len(rows), MAX_DRAWN, rng)
    maps = linked_maps({s.key: s.vectors[drawn] for s in spaces if s.key != "pca"}, rng)
    listen(Progress("report", 3, N_STAGES))
    return Measurements(
        model=model,
        source=source,
        n_rows=len(X),
        trained=fitted_on(model, X),
        clusters=_clusters(model, X, rows),
        rows=rows,
        X=sampled,
        labels=labels,
        spaces=spaces,
        scores=scores,
        differences=differences,
        shared=shared,
        advice=advice,
        drawn=drawn,
        maps=maps,
        gallery=Gallery(items, rows[drawn], THUMBNAIL_BYTES),
        seed=seed,
    )


def _sample_rows(items: Items, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw up to MAX_MEASURED rows, labeled ones first, since only they can be scored."""
    labeled = np.flatnonzero(items.labeled_mask)
    if n <= MAX_MEASURED or len(labeled) in (0, n):
        return sorted_sample(n, MAX_MEASURED, rng)
    chosen = labeled[sorted_sample(len(labeled), MAX_MEASURED // 2, rng)]
    rest = np.setdiff1d(np.arange(n), labeled)
    more = rest[sorted_sample(len(rest), MAX_MEASURED - len(chosen), rng)]
    return np.sort(np.concatenate([chosen, more]))


def _sampled_labels(items: Items, rows: NDArray[np.intp]) -> SampledLabels | None:
    """Return the labels of the rows; None if fewer than three have one."""
    positions = np.flatnonzero(items.labeled_mask[rows])
    if items.labels is None or len(positions) < 3:
        return None
    return SampledLabels(positions, np.array([items.labels[rows[i]] for i in positions]))


def _clusters(model: RPML, X: Array, rows: NDArray[np.intp]) -> Labels | None:
    """Return the clusters of all rows; of a fit that made none, those of the measured rows."""
    if hasattr(model, "labels_"):
        return clusters_of(model, X)
    labels = np.full(len(X), -1)
    labels[rows] = model.cluster_rows(X[rows])[0]
    return labels


def make_spaces(models: Mapping[str, RPML], X: Array) -> list[Space]:
    """Return raw features, PCA of the first model's size (if the rows have that rank), embeddings.

    The spaces of the one or two models have the keys "rpml" and "second".
    """
    from rpml.evaluation.baselines import PCA

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


def _shared_neighbors(spaces: Sequence[Space], rng: np.random.Generator) -> Interval | None:
    near = [space.neighbors for space in spaces if space.key in MODELS]
    k = min(NEAREST, near[0].shape[1])
    return interval(neighbor_overlap(near[0], near[1], k), rng) if len(near) > 1 else None


def label_scores(
    spaces: Sequence[Space], labels: SampledLabels, rng: np.random.Generator
) -> tuple[list[Score], dict[str, dict[int, Interval]]]:
    """Return Recall@K and NMI of the labeled rows, and the differences in Recall@K."""
    hits: Hits = {}
    for space in spaces:
        ranks = first_hit_rank(space.vectors[labels.positions], labels.values)
        hits[space.key] = {k: ranks < min(k, len(ranks)) for k in KS}
    scores = [_recall_score(k, hits, rng) for k in KS]
    clusters = {s.key: kmeans_labels(s.vectors[labels.positions], labels.values) for s in spaces}
    figures = {key: nmi_interval(found, labels.values) for key, found in clusters.items()}
    reading = "normalized mutual information of the labels and a k-means partition of the vectors"
    scores.append(Score("NMI", reading, "percent", figures, uses_labels=True))
    others = [key for key in hits if key != "rpml"]
    differences = {
        key: {k: paired(hits["rpml"][k], hits[key][k], rng) for k in KS} for key in others
    }
    return scores, differences


def _recall_score(k: int, hits: Hits, rng: np.random.Generator) -> Score:
    reading = (
        "share of items whose nearest neighbor has the same label"
        if k == 1
        else f"share of items with their own label among the {k} nearest neighbors"
    )
    figures = {
        key: share_interval(float(by_k[k].mean()), len(by_k[k])) for key, by_k in hits.items()
    }
    first = max(figures, key=lambda key: figures[key].value)
    clear = all(paired(hits[first][k], hits[key][k], rng).clear > 0 for key in hits if key != first)
    return Score(f"Recall@{k}", reading, "percent", figures, True, first if clear else "")


def label_free_scores(spaces: Sequence[Space], rng: np.random.Generator) -> list[Score]:
    """Return what can be measured without labels."""
    raw = spaces[0].neighbors
    k = min(NEAREST, raw.shape[1])
    measures: list[tuple[str, str, str, Callable[[Space], Interval]]] = [
        ("Dimensions", "per vector", "whole", lambda s: Interval(s.n_dims, s.n_dims, s.n_dims)),
        (
            "Neighbors retained",
            f"share of the {k} nearest neighbors by the raw features that remain among the {k} "
            "nearest",
            "percent",
            lambda s: interval(neighbor_overlap(raw, s.neighbors, k), rng),
        ),
        (
            "Effective rank",
            "how many directions the vectors use; far below the dimensions means waste",
            "tenths",
            lambda s: s.spectrum[1],
        ),
        (
            "Hubness",
            f"skewness of how often items appear among the {k} nearest of others; above about 1 a "
            "few items crowd the results",
            "number",
            lambda s: hubness_interval(s.neighbors, k, rng),
        ),
        (
            "Antihubs",
            f"share of items that are among the {k} nearest of no other item; lower is better",
            "percent",
            lambda s: interval(is_antihub(s.neighbors, k), rng),
        ),
    ]
    return [
        Score(name, reading, style, {s.key: figure_of(s) for s in spaces})
        for name, reading, style, figure_of in measures
    ]
