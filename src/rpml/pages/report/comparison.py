"""Comparison of the raw features, PCA of the same size, and the embedding."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.evaluation.metrics import first_hit_rank, kmeans_labels, nmi_interval
from rpml.evaluation.metrics.label_free import (
    NEAREST,
    VarianceSpectrum,
    hubness_interval,
    is_antihub,
    neighbor_overlap,
    spectrum,
)
from rpml.evaluation.metrics.retrieval import KS
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.intervals import Interval, interval, paired, share_interval
from rpml.runtime.rows import Array
from rpml.runtime.wording import counted

MODELS = ("rpml", "second")  # keys of the spaces of the models


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


@dataclass(frozen=True)
class SampledLabels:
    """The labeled rows of a sample: their positions in the sample, and their labels."""

    positions: NDArray[np.intp]
    values: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Score:
    """One row of the table: a measure in every space, and how to read it."""

    name: str
    values: dict[str, float]
    """By key of the space."""
    reading: str
    style: str
    """"percent", "tenths", "number" or "whole"."""
    uses_labels: bool = False
    intervals: dict[str, Interval] = field(default_factory=dict)
    """95% intervals by key of the space, where known."""
    best: str = ""
    """The space that is better than all others beyond chance, if any."""


@dataclass(frozen=True)
class SpaceComparison:
    """All rows of the table."""

    scores: list[Score]
    differences: dict[str, dict[int, Interval]]
    """Recall@K of the embedding minus that of each alternative, by alternative and K; empty without
    labels."""
    spectra: dict[str, VarianceSpectrum]
    n_labeled: int = 0
    shared: Interval | None = None
    """Share of nearest neighbors that two models have in common; None for one model."""


def make_spaces(models: Mapping[str, RPML], X: Array) -> list[Space]:
    """Return raw features, PCA of the first model's size (if the rows have that rank), embeddings.

    The spaces of the one or two models have the keys "rpml" and "second".
    """
    from rpml.evaluation.baselines.unsupervised import PCA

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


def compare_spaces(
    spaces: Sequence[Space], labels: SampledLabels | None, rng: np.random.Generator
) -> SpaceComparison:
    """Compute every score in every space; labels add Recall@K and NMI of the labeled rows."""
    spectra = {space.key: spectrum(space.vectors) for space in spaces}
    label_free = _label_free(spaces, spectra, rng)
    near = [space.neighbors for space in spaces if space.key in MODELS]
    k = min(NEAREST, near[0].shape[1])
    shared = interval(neighbor_overlap(near[0], near[1], k), rng) if len(near) > 1 else None
    if labels is None:
        return SpaceComparison(label_free, {}, spectra, shared=shared)
    hits = {space.key: _hits(space, labels) for space in spaces}
    scores = [_recall_score(k, hits, rng) for k in KS]
    scores.append(_nmi_score(spaces, labels))
    differences = {
        key: {k: paired(hits["rpml"][k], hits[key][k], rng) for k in KS}
        for key in hits
        if key != "rpml"
    }
    return SpaceComparison([*scores, *label_free], differences, spectra, len(labels), shared)


Hits = dict[int, NDArray[np.bool_]]


def _hits(space: Space, labels: SampledLabels) -> Hits:
    """Return, by K, whether a labeled row has its label among its K nearest labeled rows."""
    ranks = first_hit_rank(space.vectors[labels.positions], labels.values)
    return {k: ranks < min(k, len(ranks)) for k in KS}


def _recall_score(k: int, hits: dict[str, Hits], rng: np.random.Generator) -> Score:
    reading = (
        "share of items whose nearest neighbor has the same label"
        if k == 1
        else f"share of items with their own label among the {k} nearest neighbors"
    )
    intervals = {
        key: share_interval(float(by_k[k].mean()), len(by_k[k])) for key, by_k in hits.items()
    }
    values = {key: share.value for key, share in intervals.items()}
    first = max(values, key=lambda key: values[key])
    clear = all(paired(hits[first][k], hits[key][k], rng).clear > 0 for key in hits if key != first)
    return Score(
        f"Recall@{k}", values, reading, "percent", True, intervals, best=first if clear else ""
    )


def _nmi_score(spaces: Sequence[Space], labels: SampledLabels) -> Score:
    clusters = {s.key: kmeans_labels(s.vectors[labels.positions], labels.values) for s in spaces}
    intervals = {key: nmi_interval(found, labels.values) for key, found in clusters.items()}
    values = {key: interval.value for key, interval in intervals.items()}
    reading = "normalized mutual information of the labels and a k-means partition of the vectors"
    return Score("NMI", values, reading, "percent", True, intervals)


def _label_free(
    spaces: Sequence[Space], spectra: dict[str, VarianceSpectrum], rng: np.random.Generator
) -> list[Score]:
    raw = spaces[0].neighbors
    k = min(NEAREST, raw.shape[1])

    def score(name: str, reading: str, style: str, of: Callable[[Space], Interval]) -> Score:
        intervals = {s.key: of(s) for s in spaces}
        values = {key: figure.value for key, figure in intervals.items()}
        # values that hold by definition have no interval
        estimated = {key: figure for key, figure in intervals.items() if figure.low < figure.high}
        return Score(name, values, reading, style, intervals=estimated)

    return [
        Score("Dimensions", {s.key: float(s.n_dims) for s in spaces}, "per vector", "whole"),
        score(
            "Neighbors retained",
            f"share of the {k} nearest neighbors by the raw features that remain among the {k} "
            "nearest",
            "percent",
            lambda s: interval(neighbor_overlap(raw, s.neighbors, k), rng),
        ),
        score(
            "Effective rank",
            "how many directions the vectors use; far below the dimensions means waste",
            "tenths",
            lambda s: spectra[s.key].effective_rank,
        ),
        score(
            "Hubness",
            f"skewness of how often items appear among the {k} nearest of others; above about 1 a "
            "few items crowd the results",
            "number",
            lambda s: hubness_interval(s.neighbors, k, rng),
        ),
        score(
            "Antihubs",
            f"share of items that are among the {k} nearest of no other item; lower is better",
            "percent",
            lambda s: interval(is_antihub(s.neighbors, k), rng),
        ),
    ]
