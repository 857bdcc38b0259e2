"""The whole method, stage by stage, as in the paper's Algorithm 1."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.method.clustering.exemplars import find_exemplars
from rpml.method.clustering.pseudo_labels import (
    Labels,
    apply_supervision,
    find_neighbors,
    pseudo_labels,
)
from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import PinnedWeights, WeightRidge, weight_function
from rpml.method.settings import DEFAULT_COMPONENTS, FitResult, FitSettings
from rpml.method.solver.conjugate_gradient import Evaluator, OptimizeResult, Stopping
from rpml.method.solver.prefix import nested_rotation, some_triplets
from rpml.method.solver.stochastic import BatchSettings, Epoch, EpochState, run_epoch
from rpml.method.solver.training import (
    initial_subspace,
    order_by_variance,
    settle_signs,
    train,
    train_in_batches,
)
from rpml.method.supervision.constraints import Supervision
from rpml.method.triplets.sampling import parted_triplets, sample_triplets
from rpml.method.whitening.classes import count_pairs, label_scatter, label_spread, with_labelled
from rpml.method.whitening.groups import (
    MIN_GROUPS,
    Groups,
    better_choice,
    drop_singles,
    group_means,
    group_scatter,
    representatives,
    sample_rows,
)
from rpml.method.whitening.linear_map import (
    Preprocessing,
    Spectrum,
    identity,
    principal_axes,
    whitening,
)
from rpml.method.whitening.neighborhoods import (
    MAX_ROWS,
    ScatterChoice,
    coordinates,
    neighbor_scatter,
    shrinkage_share,
    whiten_by,
)
from rpml.runtime.context import Arrays, Context

Array = NDArray[np.floating]


def learn(
    X: Any, config: FitSettings, context: Context, groups: Groups, known: Supervision | None = None
) -> FitResult:
    """Learn an embedding of the rows of X.

    Rows with the same number in `groups` show the same thing, -1 is no group. `known` are classes
    and constraints of a supervised or semi-supervised fit.
    """
    preprocessing, choice = unpack(
        context.stage("whiten", lambda: pack(*prepare(X, groups, config, context, known)))
    )
    Z = preprocessing.apply(X)
    config = started(config, choice, Z.shape[1])
    groups = groups if choice is None or "groups" in choice.source else no_groups(len(Z))
    basins = cluster(Z, groups, config, context)
    labels = basins if known is None else apply_supervision(basins, known, Z)
    triplets, certain = draw_triplets(Z, labels, groups, config, context, known)
    l = config.n_components or min(DEFAULT_COMPONENTS, Z.shape[1])
    L = initial_subspace(Z, l, config.init, context.rng("init"))
    theta = weight_function(config.weight).initial(L.shape[0], L.shape[1], context.rng("theta"))
    problem = objective(Z, triplets, config, certain)
    settings = batch_settings(config, None if known is None else known.is_classed())

    def epoch(state: EpochState, rng: np.random.Generator) -> None:
        run_epoch(Z, labels, state, settings, rng)

    optimum = optimize(problem, epoch, (L, theta), config, context)
    L = order_by_variance(Z, optimum.L)
    L = nest(Z, L, triplets, config, shrinkage_share(preprocessing, choice, L))
    problem.move_to(L, optimum.theta)
    terms = problem.terms()
    return FitResult(
        preprocessing=preprocessing,
        choice=choice,
        L=L,
        theta=optimum.theta,
        labels=labels,
        exemplars=find_exemplars(problem.Y, basins, labels),
        known=np.zeros(len(Z), bool) if known is None else known.is_classed(),
        n_classes=0 if known is None else known.n_classes,
        triplets=triplets,
        weights=terms.w,
        probabilities=terms.p,
        optimum=optimum,
    )


def started(config: FitSettings, choice: ScatterChoice | None, width: int) -> FitSettings:
    """Where labels whitened, the axes come in their order, and L starts with the first of them."""
    if choice is None or "labels" not in choice.source or not isinstance(config.init, str):
        return config
    l = config.n_components or min(DEFAULT_COMPONENTS, width)
    return replace(config, init=np.eye(width, l)) if config.init == "pca" else config


def nest(
    Z: Array, L: Array, triplets: NDArray[np.integer], config: FitSettings, shrinkage: Array
) -> Array:
    """The same subspace, its axes turned so that a prefix is a smaller embedding."""
    if config.max_iter == 0:  # nothing is to be learned: the principal axes, in order
        return L
    rows, places = some_triplets(triplets)
    Y = Z[rows] @ L.astype(Z.dtype)
    return settle_signs(L @ nested_rotation(Y, places, config.alpha, shrinkage))


SOURCES = ("neighbors", "groups", "none", "labels", "groups and labels")


def pack(preprocessing: Preprocessing, choice: ScatterChoice | None) -> Arrays:
    """The preprocessing as the arrays of a stage."""
    arrays = {
        "mean": preprocessing.mean,
        "matrix": preprocessing.matrix,
        "unit": np.array([preprocessing.unit_input, preprocessing.unit_output]),
    }
    if choice is not None:
        arrays["source"] = np.array([SOURCES.index(choice.source)])
        arrays["shrinkage"] = np.array([choice.shrinkage])
        arrays["agreement"] = np.array(list(choice.agreement.items())).reshape(-1, 2)
    return arrays


def unpack(arrays: Arrays) -> tuple[Preprocessing, ScatterChoice | None]:
    unit_input, unit_output = arrays["unit"].tolist()
    preprocessing = Preprocessing(unit_input, arrays["mean"], arrays["matrix"], unit_output)
    if "source" not in arrays:
        return preprocessing, None
    agreement = {float(shrinkage): float(share) for shrinkage, share in arrays["agreement"]}
    source = SOURCES[int(arrays["source"][0])]
    return preprocessing, ScatterChoice(source, float(arrays["shrinkage"][0]), agreement)


def no_groups(n: int) -> Groups:
    return np.full(n, -1, np.intp)


def prepare(
    X: Any, groups: Groups, config: FitSettings, context: Context, known: Supervision | None = None
) -> tuple[Preprocessing, ScatterChoice | None]:
    """Centre and whiten on the leading axes; with whiten=None leave the rows as they are."""
    if config.whiten is None:
        return identity(X.shape[1], config.normalize_input), None
    spectrum = principal_axes(X, config.normalize_input, center=True)
    wanted = size_within(spectrum, X.shape, config)
    if isinstance(config.whiten, str):
        rng = context.rng("whiten")
        rows = scatter_rows(groups, known, rng)
        sample = Sample(X, rows, groups[rows], None if known is None else known.labels[rows])
        return whiten_by_scatter(sample, spectrum, config.normalize_input, wanted, rng)
    return whiten_by_exponent(spectrum, wanted, config), None


def size_within(spectrum: Spectrum, shape: tuple[int, int], config: FitSettings) -> int:
    """The size of the embedding, if the rows vary in so many directions."""
    available = len(spectrum.variances)
    if available == 0:
        raise ValueError(
            f"The rows of X (n_features={shape[1]}) are all the same after scaling to unit norm: "
            "set normalize_input=False."
        )
    wanted = config.n_components or min(DEFAULT_COMPONENTS, available)
    if available < wanted:
        raise ValueError(
            f"n_components={wanted} is more than the {available} directions in which "
            f"the {shape[0]} rows of X vary: ask for {available} or fewer."
        )
    return wanted


def whiten_by_exponent(spectrum: Spectrum, wanted: int, config: FitSettings) -> Preprocessing:
    """The preprocessing of a numeric `whiten`."""
    n_axes = min(config.n_axes or max(256, 2 * wanted), len(spectrum.variances))
    unit = config.normalize_input
    return whitening(spectrum, float(config.whiten or 0.0), max(n_axes, wanted), unit, unit)


@dataclass(frozen=True)
class Sample:
    """Rows of X that a whitening is chosen on, and what is known of them."""

    X: Any
    rows: NDArray[np.intp]
    groups: Groups
    """Of each of the rows."""
    classes: Labels | None
    """Of each of the rows, if there are any."""


def scatter_rows(groups: Groups, known: Supervision | None, rng: np.random.Generator) -> Labels:
    """Which rows to choose a whitening on; the known ones first."""
    rows = sample_rows(groups, MAX_ROWS, rng)
    return rows if known is None else with_labelled(rows, known.labels, rng)


def whiten_by_scatter(
    sample: Sample, spectrum: Spectrum, unit: bool, n_components: int, rng: np.random.Generator
) -> tuple[Preprocessing, ScatterChoice]:
    """Whiten by the scatter within groups where they help, within neighbourhoods otherwise.

    What is known of the rows refines either. Many labels tell something of more axes, and which
    of them to keep.
    """
    some = (sample.X, sample.rows, spectrum, unit, n_components)
    sampled = drop_singles(sample.groups)
    data = coordinates(*some)
    seed = int(rng.integers(2**31))  # the same splits for both, so that they compare
    things = data.some(representatives(sampled)[0])
    found = neighbor_scatter(things, np.random.default_rng(seed))
    if sampled.max() >= MIN_GROUPS:
        found = better_choice(group_scatter(data, sampled, np.random.default_rng(seed)), found)
    kept, spread = data.W.shape[1], None
    if sample.classes is not None:
        wide = coordinates(*some, least=2 * count_pairs(sample.classes))
        found = label_scatter(wide, sample.classes, found, np.random.default_rng(seed))
        if "labels" in found[1].source:
            spread = label_spread(wide, sample.classes, found[0])
    scatter, choice = found
    whole = whiten_by(spectrum, scatter, choice.shrinkage, n_components, unit, spread)
    return replace(whole, matrix=whole.matrix[:, :kept]), choice


def cluster(Z: Array, groups: Groups, config: FitSettings, context: Context) -> Labels:
    """c(.) of the paper; a group is one point, its mean, so that its rows share a label."""
    first, of_row = representatives(groups)
    given = not (isinstance(config.clustering, str) or hasattr(config.clustering, "fit_predict"))
    if given or len(first) == len(Z):
        return pseudo_labels(Z, config.clustering, config.n_neighbors, context)
    things = group_means(Z, of_row)
    return pseudo_labels(things, config.clustering, config.n_neighbors, context)[of_row]


def draw_triplets(
    Z: Array,
    labels: Labels,
    groups: Groups,
    config: FitSettings,
    context: Context,
    known: Supervision | None = None,
) -> tuple[NDArray[np.integer], NDArray[np.bool_] | None]:
    """T of Algorithm 1, from the pseudo-labels; with groups or classes, as many again from these.

    Also which of them are known to be right, None if nothing is known.
    """
    rng = context.rng("triplets")
    near = None
    if config.sampler != "uniform":
        near = find_neighbors(Z, config.n_neighbors, "cosine", context)

    def draw(labels: Labels, limit: int, sampler: str) -> NDArray[np.integer]:
        total = limit if len(Z) * config.triplets_per_anchor > limit else None
        return sample_triplets(
            labels,
            rng,
            per_anchor=config.triplets_per_anchor,
            total=total,
            sampler=sampler,
            neighbors=near,
            X=Z,
            groups=groups,
        )

    sources = triplet_sources(labels, groups, config, known)
    limit = config.max_triplets // len(sources)
    drawn = [draw(labels, limit, sampler) for labels, sampler in sources]
    if known is None:
        return np.vstack(drawn), None
    drawn.append(parted_triplets(labels, known.apart, config.triplets_per_anchor, rng))
    triplets = np.vstack([*drawn, known.closer])
    certain = known.certain(triplets)
    certain[len(triplets) - len(known.closer) :] = True
    return triplets, certain


def triplet_sources(
    labels: Labels, groups: Groups, config: FitSettings, known: Supervision | None
) -> list[tuple[Labels, str]]:
    """What triplets are drawn from, each as often: labels, groups, known classes; and how."""
    sources = [(labels, config.sampler)]
    if groups.max() >= 0:
        sources.append((groups, "uniform"))
    if known is not None and 0 < known.is_classed().sum() < len(labels):
        sources.append((np.where(known.is_classed(), known.labels, -1), "uniform"))
    return sources


def optimize(
    problem: Evaluator,
    epoch: Epoch,
    start: tuple[Array, Array | None],
    config: FitSettings,
    context: Context,
) -> OptimizeResult:
    """Run the chosen solver on the objective, or on epochs; wherever the rows of either are.

    Without triplets the initial subspace is kept, with a warning.
    """
    if problem.n_triplets == 0:
        warnings.warn(
            "No triplet can be formed: the rows form one single cluster or every row its own. "
            "The initial subspace is kept.",
            UserWarning,
            stacklevel=2,
        )
        return OptimizeResult(*start, 0.0, {"loss": []}, 0, True, "no triplets: nothing learned")
    if config.solver == "stochastic":
        return train_in_batches(epoch, start, config.n_epochs, context)
    stopping = Stopping(config.max_iter, gradient=1e-7, decrease=config.tol)
    rate = config.learning_rate if config.solver == "gd" else None
    return train(problem, start, stopping, context, rate)


def batch_settings(config: FitSettings, sure: NDArray[np.bool_] | None = None) -> BatchSettings:
    return BatchSettings(
        weight=config.weight,
        alpha=config.alpha,
        weight_ridge=ridge_of(config),
        batch_size=config.batch_size,
        n_epochs=config.n_epochs,
        steps=config.batch_steps,
        average=config.average,
        mining=config.mining,
        sure=sure,
    )


def objective(
    Z: Array,
    triplets: NDArray[np.integer],
    config: FitSettings,
    certain: NDArray[np.bool_] | None = None,
) -> TripletObjective:
    """The objective; certain triplets keep their weight."""
    weight = weight_function(config.weight)
    if certain is not None and weight.learnable:
        weight = PinnedWeights(weight, certain)
    return TripletObjective(Z, triplets, weight, config.alpha, ridge_of(config))


def ridge_of(config: FitSettings) -> WeightRidge | None:
    return None if config.weight_ridge is None else WeightRidge(config.weight_ridge)
