"""The settings, inputs and result of a fit, and the memory it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self

import numpy as np

from rpml.method.clustering.pseudo_labels import Exemplars
from rpml.method.knowledge.constraints import Supervision
from rpml.method.solver.conjugate_gradient import OptimizeResult
from rpml.method.whitening.choice import Whitening
from rpml.method.whitening.constants import DEFAULT_COMPONENTS, SCATTER_ROWS
from rpml.method.whitening.groups import Groups, drop_singles, sample_rows
from rpml.method.whitening.neighborhoods import n_leading_axes
from rpml.method.whitening.nuisance import Nuisance
from rpml.runtime.context import WORKING_MEMORY, Progress
from rpml.runtime.rows import Array, Indices, Integers, Labels, Mask, RandomState, divided
from rpml.runtime.threads import SUM_CHUNKS, thread_count

BASE_MEMORY = 300 * 2**20  # the interpreter with numpy, scipy, scikit-learn and compiled kernels
MIN_BLOCKS = 16 * 2**20  # bytes


@dataclass(repr=False, eq=False)
class FitSettings:
    """The parameters of `rpml.RPML`, which is its own settings: there they are explained."""

    n_components: int | None = None
    _: KW_ONLY
    weight: str = "concat"
    solver: str = "cg"
    training: str = "auto"
    alpha: float = 45.0
    clustering: object = "aas"
    n_neighbors: int = 50
    triplets_per_anchor: int = 4
    max_triplets: int = 400_000
    sampler: str = "uniform"
    init: object = "pca"
    normalize_input: bool = True
    whiten: float | str | None = "auto"
    center: float = 1.0
    weight_ridge: float | None = 0.01
    max_iter: int = 100
    tol: float = 1e-5
    learning_rate: float = 1.0
    batch_size: int = 960
    n_epochs: int = 3
    batch_steps: int = 3
    average: bool = True
    mining: str = "all"
    normalize: bool = True
    use_labels: bool = False
    subsample: int | None = 20_000
    memory_limit: int | None = None
    n_jobs: int | None = None
    verbose: int = 0
    callback: Callable[[Progress], object] | None = None
    random_state: RandomState = None


@dataclass(frozen=True)
class FitInputs:
    """Everything a fit is given besides its rows."""

    groups: Groups  # (n,) rows with the same number >= 0 show the same instance
    supervision: Supervision | None = None  # classes and constraints
    whitening: Whitening | None = None  # the whitening to use; chosen if None
    pairs: Indices | None = None  # (m, 2) rows that probably belong together
    nuisance: Nuisance | None = None  # what varies between rows and does not matter
    queries: Array | None = None  # (m, d) unlabeled queries, for which the rows are the documents
    continues: bool = False  # whether an update continues an earlier fit, whose supervision this is

    @property
    def unwanted(self) -> str:
        """Which of "nuisance" and "queries" are given, as a text."""
        names = {"nuisance": self.nuisance, "queries": self.queries}
        return " and ".join(name for name, given in names.items() if given is not None)

    @property
    def classes(self) -> Labels | None:
        """Given classes and links of the rows, -1 where unknown."""
        return None if self.supervision is None else self.supervision.labels

    @property
    def labeled_mask(self) -> Mask:
        if self.supervision is None:
            return np.zeros(len(self.groups), bool)
        return self.supervision.is_classed()

    def sample(self, limit: int | None, rng: np.random.Generator) -> Indices | None:
        """Draw about `limit` rows, including all that supervision mentions; None means all rows."""
        if limit is None or len(self.groups) <= limit:
            return None
        rows = sample_rows(self.groups, limit, rng)
        return rows if self.supervision is None else np.union1d(rows, self.supervision.mentioned())

    def subset(self, rows: Indices, whitening: Whitening) -> FitInputs:
        """Return the inputs of a subset of the rows, whose whitening is given."""
        subset = None if self.supervision is None else self.supervision.subset(rows)
        nuisance = None if self.nuisance is None else self.nuisance.subset(rows)
        groups = drop_singles(self.groups[rows])
        return FitInputs(groups, subset, whitening=whitening, nuisance=nuisance)

    def divided(self, scale: float) -> FitInputs:
        """Return the inputs of rows that are divided by a power of two."""
        if self.queries is None or scale == 1:
            return self
        return replace(self, queries=divided(self.queries, scale))

    def without_labels(self) -> FitInputs:
        """Return the inputs without classes; with constraints, which are certain, as they are."""
        known = self.supervision
        if known is None or known.has_constraints:
            return self
        return replace(self, supervision=None)


@dataclass(frozen=True)
class Clusters:
    """The pseudo-labels of the rows."""

    labels: Labels
    exemplars: Exemplars
    labeled_mask: Mask  # (n,) rows whose class was given
    n_classes: int  # labels below it are given classes

    def among(self, rows: Indices, n: int) -> Clusters:
        """Return the clusters of n rows, of which only `rows` were clustered."""
        labels, mask = np.full(n, -1, self.labels.dtype), np.zeros(n, bool)
        labels[rows], mask[rows] = self.labels, self.labeled_mask
        exemplars = replace(self.exemplars, rows=rows[self.exemplars.rows])
        return Clusters(labels, exemplars, mask, self.n_classes)


@dataclass(frozen=True)
class Training:
    """The triplets and how the solver ended."""

    triplets: Integers
    weights: Array
    probabilities: Array
    optimum: OptimizeResult


NOT_TRAINED = "not trained: the rows show nothing that triplets could add"
NO_EVIDENCE = "not trained: there is no evidence with a whitening that is set"


@dataclass(frozen=True)
class FitResult:
    """A fitted embedding and how it was found."""

    whitening: Whitening
    L: Array
    sampled: Indices  # (m,) a random sample of the training rows, or all of them
    sample: Array  # (m, l) their projections
    message: str  # why the solver ended, or why nothing was trained
    clusters: Clusters | None = None  # None if nothing asked for them
    training: Training | None = None  # None if the axes are those of the whitening

    def of_rows_times(self, scale: float) -> Self:
        """Return the same embedding for rows `scale` times as long as the training rows."""
        applied = self.whitening.preprocessing.for_rows_times(scale)
        return replace(self, whitening=replace(self.whitening, preprocessing=applied))

    def among(self, rows: Indices, n: int) -> Self:
        """Return the result in terms of all n rows, of which `rows` were trained on."""
        result = replace(self, sampled=rows[self.sampled])
        if self.clusters is not None:
            result = replace(result, clusters=self.clusters.among(rows, n))
        if self.training is None:
            return result
        training = replace(self.training, triplets=rows[self.training.triplets])
        message = f"{self.message}; learned from {len(rows)} of {n} rows"
        return replace(result, training=training, message=message)


def fit_memory(settings: FitSettings, n: int, like: Array, mapped: bool) -> tuple[int, int]:
    """Return the peak bytes of a fit of n rows, without and with the blocks of the search.

    `like` has the width and dtype of the rows; mapped ones take no memory of their own.
    """
    d, number, n_read = like.shape[1], max(4, like.dtype.itemsize), n
    n = min(n, settings.subsample or n)
    size = settings.n_components or min(DEFAULT_COMPONENTS, d)
    n_axes, n_edges = n_leading_axes(n, d, size), n * settings.n_neighbors
    own = ((0 if mapped else n_read) + (n if n_read > n else 0)) * d * like.dtype.itemsize
    rows = n * n_axes * number  # preprocessed
    whitening = 16 * min(n, SCATTER_ROWS) * n_axes
    # the graph in both directions, and a copy while they are merged: more than their search
    graph = rows + 34 * n_edges
    moving = n * size * number * (4 + min(thread_count(), SUM_CHUNKS))
    n_triplets = min(settings.max_triplets, settings.triplets_per_anchor * n)
    solver = rows + 8 * n_edges + moving + 60 * n_triplets
    held = BASE_MEMORY + own + max(whitening, graph, solver)
    return held, held + min(WORKING_MEMORY // 2, 17 * n * d)  # less for few rows


def search_memory(settings: FitSettings, n: int, like: Array, mapped: bool) -> int:
    """Return the bytes for the search's blocks; ValueError if `memory_limit` is too little."""
    if (limit := settings.memory_limit) is None:
        return WORKING_MEMORY
    held = fit_memory(settings, n, like, mapped)[0]
    if limit - held < MIN_BLOCKS:
        raise ValueError(
            f"memory_limit={limit} ({limit / 2**30:.2f} GB) is too little: this fit needs about "
            f"{(held + MIN_BLOCKS) / 2**30:.2f} GB; raise the limit, lower n_neighbors or fit a "
            "sample of the rows."
        )
    return int(min(limit - held, WORKING_MEMORY))
