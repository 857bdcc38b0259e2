"""The settings and the result of a fit, frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.method.clustering.exemplars import Exemplars
from rpml.method.solver.conjugate_gradient import OptimizeResult
from rpml.method.whitening.linear_map import Preprocessing
from rpml.method.whitening.neighborhoods import (
    MAX_ROWS,
    QUERIES,
    ScatterChoice,
    leading_axes_kept,
)
from rpml.runtime.memory import Shape

Array = NDArray[np.floating]
Labels = NDArray[np.intp]
DEFAULT_COMPONENTS = 128


@dataclass(frozen=True)
class FitSettings:
    """Every setting of a fit; each is explained on `rpml.RPML`."""

    n_components: int | None
    weight: str
    solver: str
    alpha: float
    clustering: Any
    n_neighbors: int
    triplets_per_anchor: int
    max_triplets: int
    sampler: str
    init: Any
    normalize_input: bool
    whiten: float | str | None
    n_axes: int | None
    weight_ridge: float | None
    max_iter: int
    tol: float
    learning_rate: float
    batch_size: int
    n_epochs: int
    batch_steps: int
    average: bool
    mining: str


@dataclass(frozen=True)
class FitResult:
    """A fitted embedding and how it came about."""

    preprocessing: Preprocessing
    choice: ScatterChoice | None
    L: Array
    theta: Array | None
    labels: Labels
    exemplars: Exemplars
    known: NDArray[np.bool_]
    """(n,) rows whose class was given."""
    n_classes: int
    """Labels below it are given classes."""
    triplets: NDArray[np.integer]
    weights: Array
    probabilities: Array
    optimum: OptimizeResult


def fit_shape(settings: Any, n: int, like: Any, mapped: bool) -> Shape:
    """What decides the memory of a fit of n rows that are `like` these, by the settings of RPML."""
    d = like.shape[1]
    size = settings.n_components or min(DEFAULT_COMPONENTS, d)
    n_axes = leading_axes_kept(n, d, size)
    return Shape(
        n=n,
        d=d,
        n_components=size,
        n_neighbors=settings.n_neighbors,
        n_triplets=min(settings.max_triplets, settings.triplets_per_anchor * n),
        itemsize=like.dtype.itemsize,
        mapped=mapped,
        n_axes=n_axes,
        sample=min(n, MAX_ROWS) * (3 * n_axes + QUERIES),
    )
