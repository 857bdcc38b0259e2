"""The measurements that the sections of a report show."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.estimator.clusters import cluster_rows
from rpml.evaluation.recommendation import CANDIDATES, Recommendation, recommend_fitted
from rpml.evaluation.registry import PCA_FAMILY
from rpml.pages.items import Items, clusters_of, fitted_on
from rpml.pages.layout import linked_maps
from rpml.pages.report.comparison import (
    SampledLabels,
    Space,
    SpaceComparison,
    compare_spaces,
    make_spaces,
)
from rpml.pages.report.examples import Gallery
from rpml.pages.thumbnails import Thumbnails
from rpml.runtime.context import Progress
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, Labels, sorted_sample

MAX_MEASURED = 20_000  # rows; a larger set is sampled
MAX_DRAWN = 5_000  # points per map
THUMBNAIL_BYTES = 6_500_000
N_STAGES = 4
Listener = Callable[[Progress], object]


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
    spaces: list[Space]
    """Raw features, PCA if possible, and the embeddings of one or two models."""
    comparison: SpaceComparison
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

    @cached_property
    def labels(self) -> SampledLabels | None:
        """The labels of the measured rows."""
        return sampled_labels(self.items, self.rows)

    @property
    def titles(self) -> dict[str, str]:
        """The titles of the maps and of the lists of neighbors, by space."""
        if self.source.second:
            return {"raw": "Raw features", "rpml": self.source.model, "second": self.source.second}
        return {"raw": "Before: raw features", "rpml": "After: RPML"}

    def rng(self, name: str) -> np.random.Generator:
        """Return a generator for a section, so that a new section does not change others."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])


def sampled_labels(items: Items, rows: NDArray[np.intp]) -> SampledLabels | None:
    """Return the labels of the rows; None if fewer than three have one."""
    if items.labels is None:
        return None
    positions = np.flatnonzero(items.labeled_mask[rows])
    if len(positions) < 3:
        return None
    return SampledLabels(positions, np.array([items.labels[rows[i]] for i in positions]))


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
    sampled = X[rows]
    labels = sampled_labels(items, rows)
    model = models[0]
    spaces = make_spaces(dict(zip(source.models, models, strict=True)), sampled)
    listen(Progress("report", 1, N_STAGES))
    comparison = compare_spaces(spaces, labels, rng)
    # a model that is PCA has no evidence of its own
    methods = PCA_FAMILY if model.outcome_ == "PCA" else CANDIDATES
    size = len(model.components_)
    own = None if model.whitening_ is None else model.whitening_.gain
    advice = None if labels else recommend_fitted(sampled, size, own, methods, seed)
    listen(Progress("report", 2, N_STAGES))
    drawn = sorted_sample(len(rows), MAX_DRAWN, rng)
    laid_out = {s.key: s.vectors[drawn] for s in spaces if s.key != "pca"}
    maps = linked_maps(laid_out, rng)
    listen(Progress("report", 3, N_STAGES))
    return Measurements(
        model=model,
        source=source,
        n_rows=len(X),
        trained=fitted_on(model, X),
        clusters=_clusters(model, X, rows),
        rows=rows,
        X=sampled,
        spaces=spaces,
        comparison=comparison,
        advice=advice,
        drawn=drawn,
        maps=maps,
        gallery=Gallery(items, Thumbnails(items, rows[drawn], THUMBNAIL_BYTES)),
        seed=seed,
    )


def _clusters(model: RPML, X: Array, rows: NDArray[np.intp]) -> Labels | None:
    """Return the clusters of all rows; of a fit that made none, those of the measured rows."""
    if hasattr(model, "labels_"):
        return clusters_of(model, X)
    labels = np.full(len(X), -1)
    labels[rows] = cluster_rows(model, X[rows])[0]
    return labels


def _sample_rows(items: Items, n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw up to MAX_MEASURED rows, labeled ones first, since only they can be scored."""
    labeled = np.flatnonzero(items.labeled_mask)
    if n <= MAX_MEASURED or len(labeled) in (0, n):
        return sorted_sample(n, MAX_MEASURED, rng)
    chosen = labeled[sorted_sample(len(labeled), MAX_MEASURED // 2, rng)]
    rest = np.setdiff1d(np.arange(n), labeled)
    more = rest[sorted_sample(len(rest), MAX_MEASURED - len(chosen), rng)]
    return np.sort(np.concatenate([chosen, more]))
