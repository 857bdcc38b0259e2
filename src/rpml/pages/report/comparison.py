"""Before and after: the raw features, PCA of the same size, and the embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.comparison.bootstrap import Interval, interval, paired
from rpml.evaluation.metrics.label_free import (
    effective_rank,
    hubness,
    neighbour_overlap,
    never_found,
    spectrum,
)
from rpml.method.graph.neighbors import nearest_neighbors

KS = (1, 2, 4, 8)
NEAREST = 10  # neighbours the label-free figures look at


@dataclass(frozen=True)
class Space:
    """Vectors of the rows and their nearest neighbours by cosine."""

    key: str
    title: str
    vectors: NDArray[Any]
    neighbors: NDArray[np.int32]

    @property
    def size(self) -> int:
        """Numbers a vector has."""
        return int(self.vectors.shape[1])


@dataclass(frozen=True)
class Score:
    """One line of the table: a figure in every space, and how to read it."""

    name: str
    values: dict[str, float]
    reading: str
    style: str
    """How a value is printed: "percent", "number" or "whole"."""
    by_labels: bool = False
    intervals: dict[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """All lines; and, with labels, the paired differences of Recall@K to the other spaces."""

    scores: list[Score]
    differences: dict[str, dict[int, Interval]]
    """Space compared with -> K -> Recall@K of the embedding less that of the space."""
    spectra: dict[str, NDArray[np.floating]]


def make_spaces(model: Any, X: Any) -> list[Space]:
    """Raw features, PCA of the embedding's size (where the rows have the rank), embedding."""
    from rpml.evaluation.baselines.pca import PCA

    k = min(max(NEAREST, max(KS)), len(X) - 1)
    embedded = model.transform(X)
    vectors = {"raw": ("raw features", np.asarray(X, np.float32))}
    try:
        pca = PCA(embedded.shape[1]).fit(X)
        vectors["pca"] = ("PCA, same size", pca.transform(X))
    except ValueError:  # the rows do not have the rank: the table goes without it
        pass
    vectors["rpml"] = ("RPML", embedded)
    return [
        Space(key, title, rows, nearest_neighbors(rows, k, metric="cosine").indices)
        for key, (title, rows) in vectors.items()
    ]


def compare(
    spaces: Sequence[Space], labels: NDArray[Any] | None, rng: np.random.Generator
) -> Comparison:
    """Every score in every space; labels add Recall@K and NMI."""
    spectra = {space.key: spectrum(space.vectors) for space in spaces}
    scores: list[Score] = []
    differences: dict[str, dict[int, Interval]] = {}
    if labels is not None:
        hits = {space.key: _hits(space, labels) for space in spaces}
        scores += [_recall_score(k, hits, rng) for k in KS]
        scores.append(_nmi_score(spaces, labels, rng))
        differences = {
            key: {k: paired(hits["rpml"][k], hits[key][k], rng) for k in KS}
            for key in hits
            if key != "rpml"
        }
    scores += _label_free(spaces, spectra)
    return Comparison(scores, differences, spectra)


def _hits(space: Space, labels: NDArray[Any]) -> dict[int, NDArray[np.bool_]]:
    from rpml.evaluation.metrics import first_hit_rank

    ranks = first_hit_rank(space.vectors, labels)
    return {k: ranks < min(k, len(ranks)) for k in KS}


def _recall_score(
    k: int, hits: dict[str, dict[int, NDArray[np.bool_]]], rng: np.random.Generator
) -> Score:
    reading = (
        "share of items whose nearest neighbour has the same label"
        if k == 1
        else f"share of items with the same label among their {k} nearest"
    )
    found = {key: interval(by_k[k], rng) for key, by_k in hits.items()}
    values = {key: share.value for key, share in found.items()}
    return Score(f"Recall@{k}", values, reading, "percent", by_labels=True, intervals=found)


def _nmi_score(spaces: Sequence[Space], labels: NDArray[Any], rng: np.random.Generator) -> Score:
    from rpml.evaluation.metrics import clustering_scores

    seed = int(rng.integers(2**31 - 1))
    values = {s.key: clustering_scores(s.vectors, labels, seed)["nmi"] for s in spaces}
    reading = "how well k-means clusters agree with the labels"
    return Score("NMI", values, reading, "percent", by_labels=True)


def _label_free(spaces: Sequence[Space], spectra: dict[str, NDArray[np.floating]]) -> list[Score]:
    raw = spaces[0].neighbors
    k = min(NEAREST, raw.shape[1])

    def measured(function: Any) -> dict[str, float]:
        return {s.key: float(function(s)) for s in spaces}

    return [
        Score("Size", measured(lambda s: s.size), "numbers a vector has", "whole"),
        Score(
            "Neighbours kept",
            measured(lambda s: neighbour_overlap(raw, s.neighbors, k).mean()),
            f"share of an item's {k} nearest by raw features that stay among its {k} nearest",
            "percent",
        ),
        Score(
            "Effective rank",
            measured(lambda s: effective_rank(spectra[s.key])),
            "how many directions the vectors really use; far below the size means waste",
            "number",
        ),
        Score(
            "Hubness",
            measured(lambda s: hubness(s.neighbors, k)),
            "above about 1, a few items crowd everybody's results; nearer 0 is better",
            "number",
        ),
        Score(
            "Never found",
            measured(lambda s: never_found(s.neighbors, k)),
            f"share of items that are among nobody's {k} nearest; lower is better",
            "percent",
        ),
    ]
