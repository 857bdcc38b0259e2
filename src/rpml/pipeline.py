"""The whole method, stage by stage, as in the paper's Algorithm 1."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.context import Context
from rpml.objective import TripletObjective
from rpml.optimize import OptimizeResult, Stopping
from rpml.preprocess import Preprocessing, identity, principal_axes, whitening
from rpml.pseudolabels import Labels, find_neighbors, override, pseudo_labels
from rpml.scatter import ScatterChoice, neighbor_whitening
from rpml.stochastic import BatchSettings
from rpml.training import initial_subspace, order_by_variance, train, train_in_batches
from rpml.triplets import sample_triplets
from rpml.weights import Guard, weight_function

Array = NDArray[np.floating]
DEFAULT_COMPONENTS = 128


@dataclass(frozen=True)
class Config:
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
    guard: float | None
    max_iter: int
    tol: float
    learning_rate: float
    batch_size: int
    n_epochs: int
    batch_steps: int
    average: bool


@dataclass(frozen=True)
class Result:
    """A fitted embedding and how it came about."""

    preprocessing: Preprocessing
    choice: ScatterChoice | None
    L: Array
    theta: Array | None
    labels: Labels
    triplets: NDArray[np.integer]
    weights: Array
    probabilities: Array
    optimum: OptimizeResult


def learn(X: Any, config: Config, context: Context, known: Labels | None = None) -> Result:
    """Learn an embedding of the rows of X.

    `known` are labels for a supervised or semi-supervised fit, -1 where there is none.
    """
    preprocessing, choice = prepare(X, config, context)
    Z = preprocessing.apply(X)
    labels = pseudo_labels(Z, config.clustering, config.n_neighbors, context)
    if known is not None:
        labels = override(labels, known)
    triplets = draw_triplets(Z, labels, config, context)
    l = config.n_components or min(DEFAULT_COMPONENTS, Z.shape[1])
    L = initial_subspace(Z, l, config.init, context.rng("init"))
    theta = weight_function(config.weight).initial(L.shape[0], L.shape[1], context.rng("theta"))
    optimum = optimize(Z, labels, triplets, (L, theta), config, context)
    L = order_by_variance(Z, optimum.L)
    problem = objective(Z, triplets, config)
    problem.move_to(L, optimum.theta)
    terms = problem.terms()
    return Result(
        preprocessing, choice, L, optimum.theta, labels, triplets, terms.w, terms.p, optimum
    )


def prepare(X: Any, config: Config, context: Context) -> tuple[Preprocessing, ScatterChoice | None]:
    """Centre and whiten on the leading axes; with whiten=None leave the rows as they are."""
    if config.whiten is None:
        return identity(X.shape[1], config.normalize_input), None
    spectrum = principal_axes(X, config.normalize_input, center=True)
    available = len(spectrum.variances)
    if available == 0:
        raise ValueError(
            f"The rows of X (n_features={X.shape[1]}) are all the same after scaling to unit norm: "
            "set normalize_input=False."
        )
    wanted = config.n_components or min(DEFAULT_COMPONENTS, available)
    if available < wanted:
        raise ValueError(
            f"n_components={wanted} is more than the {available} directions in which "
            f"the {X.shape[0]} rows of X vary: ask for {available} or fewer."
        )
    n_axes = min(config.n_axes or max(256, 2 * wanted), available)
    unit = config.normalize_input
    if isinstance(config.whiten, str):
        return neighbor_whitening(X, spectrum, unit, wanted, context.rng("whiten"))
    return whitening(spectrum, config.whiten, max(n_axes, wanted), unit, unit), None


def draw_triplets(
    Z: Array, labels: Labels, config: Config, context: Context
) -> NDArray[np.integer]:
    """T of Algorithm 1, from the pseudo-labels."""
    wanted = len(Z) * config.triplets_per_anchor
    near = None
    if config.sampler != "uniform":
        near = find_neighbors(Z, config.n_neighbors, "cosine", context)
    return sample_triplets(
        labels,
        context.rng("triplets"),
        per_anchor=config.triplets_per_anchor,
        total=config.max_triplets if wanted > config.max_triplets else None,
        sampler=config.sampler,
        neighbors=near,
        X=Z,
    )


def optimize(
    Z: Array,
    labels: Labels,
    triplets: NDArray[np.integer],
    start: tuple[Array, Array | None],
    config: Config,
    context: Context,
) -> OptimizeResult:
    """Run the chosen solver; without triplets the initial subspace is kept, with a warning."""
    if len(triplets) == 0:
        warnings.warn(
            "No triplet can be formed: the rows form one single cluster or every row its own. "
            "The initial subspace is kept.",
            UserWarning,
            stacklevel=2,
        )
        return OptimizeResult(*start, 0.0, {"loss": []}, 0, True, "no triplets: nothing learned")
    if config.solver == "stochastic":
        settings = BatchSettings(
            weight=config.weight,
            alpha=config.alpha,
            guard=_guard(config),
            batch_size=config.batch_size,
            n_epochs=config.n_epochs,
            steps=config.batch_steps,
            average=config.average,
        )
        return train_in_batches(Z, labels, start, settings, context)
    stopping = Stopping(config.max_iter, gradient=1e-7, decrease=config.tol)
    rate = config.learning_rate if config.solver == "gd" else None
    return train(objective(Z, triplets, config), start, stopping, context, rate)


def objective(Z: Array, triplets: NDArray[np.integer], config: Config) -> TripletObjective:
    return TripletObjective(Z, triplets, config.weight, config.alpha, _guard(config))


def _guard(config: Config) -> Guard | None:
    return None if config.guard is None else Guard(config.guard)
