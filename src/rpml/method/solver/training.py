"""Start, run and resume the solvers on the triplets of a fit, and order the axes they find.

The stochastic solver, sRPML, takes a few warm-started conjugate-gradient steps per mini-batch.

Prefix order (not in the paper): a rotation changes no distance, so the whole embedding stays the
same. In order of variance, though, the first few components are worse than a fit of that size. So
the space is halved repeatedly: the triplets choose the better part by the paper's loss with all
weights 1, and its axes come first. Rows are whitened as for that size, with stronger shrinkage for
smaller sizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import PinnedWeights, weight_function
from rpml.method.solver.conjugate_gradient import (
    REFRESH,
    Callback,
    OptimizeResult,
    SolverState,
    Stopping,
    descend,
    iterate,
    orthonormalize,
)
from rpml.method.triplets.sampling import batch_sampler, mine_batch_triplets
from rpml.method.whitening.linear_map import principal_axes, sign_of_largest
from rpml.runtime.context import Arrays, Context, Json, Progress
from rpml.runtime.rows import Array, Indices, Integers, Labels, Mask

if TYPE_CHECKING:
    from rpml.method.settings import FitSettings

Triplets = Integers
BATCH_TRIPLETS = 8  # per row of a batch, sampled at random
SMALLEST_PREFIX = 8  # prefix that is optimized
PREFIX_TRIPLETS = 10_000  # twice as many change the mean Recall@1 of prefixes of six sets by 0.05
PREFIX_ITERATIONS = 15  # 30 change the mean Recall@1 of prefixes of five sets by less than 0.1
PREFIX_DECREASE = 1e-4  # relative, of the loss, to stop at: changes that mean by less than 0.1, too
Start = tuple[Array, Array | None]
"""L and theta."""


def principal_subspace(Z: Array, l: int) -> Array:
    axes = principal_axes(Z, unit_input=False).axes[:, :l]
    if axes.shape[1] == l:
        return axes
    completed = np.linalg.qr(np.hstack([axes, np.eye(len(axes))]))[0]  # rows vary in few directions
    return np.hstack([axes, completed[:, axes.shape[1] : l]])


def given_subspace(init: object, p: int | None, l: int | None) -> Array:
    """Return the user's matrix with orthonormal columns; a size that is not known yet is None."""
    L = np.asarray(init)
    if L.ndim != 2 or L.shape != (p or L.shape[0], l or L.shape[1]):
        raise ValueError(
            f"init must have shape ({p or 'p'}, {l or 'n_components'}), features after "
            f"preprocessing by n_components, got {L.shape}."
        )
    if L.dtype.kind not in "iuf" or not np.isfinite(L).all():
        raise ValueError("init must hold finite numbers.")
    if np.linalg.matrix_rank(L) < L.shape[1]:
        raise ValueError("init must have linearly independent columns.")
    return orthonormalize(np.linalg.qr(L.astype(np.float64))[0])


def order_by_variance(Z: Array, L: Array) -> Array:
    """Sort the axes of the subspace by explained variance."""
    Y = Z @ L.astype(Z.dtype)
    Y = Y - Y.mean(axis=0)
    _, rotation = np.linalg.eigh(np.asarray(Y.T @ Y, np.float64))
    L = L @ rotation[:, ::-1]
    return np.asarray(L * sign_of_largest(L))


def solve(
    problem: TripletObjective,
    batches: Batches,
    start: Start,
    settings: FitSettings,
    context: Context,
    key: str = "",
) -> OptimizeResult:
    """Run the chosen solver on the objective, or on batches.

    Resumes from the checkpoint if it has a state with the same key. Without triplets, warns and
    returns the start.
    """
    if problem.n_triplets == 0:
        warnings.warn(
            "No triplet can be formed: all rows form one cluster, or each its own. "
            "The initial subspace is kept.",
            stacklevel=2,
        )
        return OptimizeResult(*start, 0.0, {"loss": []}, 0, True, "no triplets: nothing learned")
    by_epochs = settings.solver == "stochastic"
    total = settings.n_epochs if by_epochs else settings.max_iter
    unit = 1 if by_epochs else problem.n_triplets  # epochs record the mean loss

    def listen(state: SolverState) -> object:
        if by_epochs or state.iteration % REFRESH == 0:
            context.save("optimizer", *_stored(state), key)
        info = {"loss": state.loss / unit}
        return context.report(Progress("optimize", state.iteration, total, info))

    state = _resumed(start, context, key)
    if by_epochs:
        result = run_epochs(batches, state, total, context.seed, listen)
    else:
        stopping = Stopping(total, gradient=1e-7, decrease=settings.tol)
        rate = settings.learning_rate if settings.solver == "gd" else None
        result = descend(problem, state, stopping, listen, rate)
    if result.n_iter < total:  # report the end
        info = {"loss": result.loss / unit}
        context.report(Progress("optimize", result.n_iter, result.n_iter, info))
    return result


def _stored(state: SolverState) -> tuple[Arrays, Json]:
    """Return what a solver continues from; it evaluates loss and gradient again."""
    named = {"L": state.L, "theta": state.theta}
    named |= {f"direction_{i}": part for i, part in enumerate(state.direction)}
    arrays = {name: np.ascontiguousarray(a) for name, a in named.items() if a is not None}
    arrays |= {f"history_{name}": np.asarray(values) for name, values in state.history.items()}
    return arrays, {"loss": state.loss, "expected": state.expected, "iteration": state.iteration}


def _resumed(start: Start, context: Context, key: str) -> SolverState:
    """Return the stored state of a solver with this start and key, or the start."""
    saved = context.load("optimizer", key)
    if saved is None:
        return SolverState(*start)
    arrays, metadata = saved

    def parts(prefix: str) -> Arrays:
        names = sorted(name for name in arrays if name.startswith(prefix))
        return {name.removeprefix(prefix): arrays[name] for name in names}

    return SolverState(
        arrays["L"],
        arrays.get("theta"),
        direction=tuple(parts("direction_").values()),
        history={name: values.tolist() for name, values in parts("history_").items()},
        **metadata,
    )


def sizes_below(l: int) -> list[int]:
    """Return the powers of two whose prefixes are optimized, largest first."""
    powers = [2**j for j in range(l.bit_length()) if SMALLEST_PREFIX <= 2**j < l]
    return powers[::-1]


def triplet_subset(triplets: Triplets) -> tuple[Indices, Triplets]:
    """Return rows and at most `PREFIX_TRIPLETS` triplets of positions in these, evenly sampled."""
    chosen = triplets[:: -(-len(triplets) // PREFIX_TRIPLETS) or 1]
    rows, places = np.unique(chosen, return_inverse=True)
    return rows.astype(np.intp), places


def prefix_order(Z: Array, L: Array, triplets: Triplets, alpha: float, shrinkage: Array) -> Array:
    """Rotate L so that every prefix of a power of two is chosen by the triplets."""
    rows, places = triplet_subset(triplets)
    Y = Z[rows] @ L.astype(Z.dtype)
    L = L @ prefix_rotation(Y, places, alpha, shrinkage)
    return np.asarray(L * sign_of_largest(L))


def prefix_rotation(Y: Array, triplets: Triplets, alpha: float, shrinkage: Array) -> Array:
    """Return the (l, l) rotation after which the triplets choose every prefix of a power of two.

    `Y` are embedded rows by decreasing variance, which the triplets index. `shrinkage` is the
    (l, l) part of the smoothed scatter, here the identity, that is its shrinkage.
    """
    l = width = Y.shape[1]
    rotation = np.eye(l)
    for size in sizes_below(l) if len(triplets) else ():
        axes = rotation[:, :width]
        smoothed = np.eye(width) + (l / size - 1) * axes.T @ shrinkage @ axes
        W = Y @ axes.astype(Y.dtype)
        rotation[:, :width] = axes @ _better_part(W, triplets, size, alpha, smoothed)
        width = size
    return rotation


def _better_part(W: Array, triplets: Triplets, size: int, alpha: float, smoothed: Array) -> Array:
    """Return a rotation of W whose first `size` columns have the lowest loss, once whitened."""
    values, axes = np.linalg.eigh(smoothed)
    inner = axes / np.sqrt(values)
    V = W @ inner.astype(W.dtype)
    start = order_by_variance(V, np.eye(len(inner)))[:, :size]
    problem = TripletObjective(V, triplets, "constant", alpha)
    stopping = Stopping(PREFIX_ITERATIONS, decrease=PREFIX_DECREASE)
    basis = descend(problem, SolverState(start, None), stopping).L
    basis = np.linalg.qr(inner @ basis)[0]
    rest = np.linalg.qr(basis, mode="complete")[0][:, size:]
    return np.hstack([order_by_variance(W, part) for part in (basis, rest)])


@dataclass(frozen=True)
class Batches:
    """What the epochs of sRPML learn from."""

    X: Array
    labels: Labels
    labeled: Mask
    """(n,) rows of given class: triplets of such rows keep their weight."""
    given: Indices
    """(k, 3) triplets from constraints, divided among the batches of each epoch; weight 1."""
    settings: FitSettings

    def run_epoch(self, state: SolverState, rng: np.random.Generator) -> None:
        """Run one pass over the rows; changes the state.

        Each batch pulls L towards its own rows, so the last iterate is noisy. With `average` the
        epoch ends at the mean of its iterates, otherwise at the last one, as in the paper.
        """
        sums = np.zeros(4)  # of loss, gradient norm, weight and triplets
        projections, n_batches = np.zeros((len(state.L), len(state.L))), 0
        thetas: Array | float = 0.0
        for rows, given in self._batches(rng):
            problem = self._problem(state, rows, given, rng)
            if problem.n_triplets == 0:
                continue
            start = SolverState(state.L, state.theta)
            result = descend(problem, start, Stopping(self.settings.batch_steps))
            state.L, state.theta = result.L, result.theta
            projections += state.L @ state.L.T
            thetas = thetas if state.theta is None else thetas + state.theta
            n_batches += 1
            weight = result.history["mean_weight"][-1] * problem.n_triplets
            norm = result.history["gradient_norm"][-1]
            sums += (result.loss, norm, weight, problem.n_triplets)
        if self.settings.average and n_batches:
            state.L = _mean_subspace(projections, state.L.shape[1])
            state.theta = None if state.theta is None else np.asarray(thetas / n_batches)
        state.loss, norm, weight = sums[:3] / max(1, sums[3])
        state.record(loss=state.loss, gradient_norm=norm, mean_weight=weight, n_triplets=sums[3])
        state.iteration += 1

    def _batches(self, rng: np.random.Generator) -> Iterator[tuple[Indices, Indices]]:
        """Yield the rows of each batch and its share of the given triplets."""
        batches = list(batch_sampler(self.labels, rng, batch_size=self.settings.batch_size))
        given = self.given
        if len(given):
            batches = batches or [np.empty(0, np.intp)]
            given = rng.permutation(given)
        return zip(batches, np.array_split(given, max(1, len(batches))), strict=False)

    def _problem(
        self, state: SolverState, rows: Indices, given: Indices, rng: np.random.Generator
    ) -> TripletObjective:
        """Return the objective of one batch."""
        settings = self.settings
        batch = np.ascontiguousarray(self.X[np.concatenate([rows, given.ravel()])])
        mined = mine_batch_triplets(
            batch[: len(rows)] @ state.L.astype(batch.dtype),
            self.labels[rows],
            rng,
            mining=settings.mining,
            limit=BATCH_TRIPLETS * settings.batch_size,
        )
        triplets = np.vstack([mined, len(rows) + np.arange(given.size).reshape(given.shape)])
        weight = weight_function(settings.weight)
        if self.labeled.any() or len(given):
            pinned = np.ones(len(triplets), bool)
            pinned[: len(mined)] = np.all(self.labeled[rows][mined], axis=1)
            weight = PinnedWeights(weight, pinned)
        return TripletObjective(batch, triplets, weight, settings.alpha, settings.weight_ridge)


def _mean_subspace(projections: Array, l: int) -> Array:
    """Return the extrinsic mean on the Grassmannian: the sum of the L L', reduced to rank l."""
    d = len(projections)
    _, axes = linalg.eigh(projections, subset_by_index=[d - l, d - 1])
    return np.ascontiguousarray(axes[:, ::-1])


def run_epochs(
    batches: Batches, state: SolverState, n_epochs: int, seed: int, callback: Callback | None = None
) -> OptimizeResult:
    """Run the stochastic solver.

    The random stream of an epoch only depends on `seed` and the epoch's number, so a run resumed
    from a saved state ends exactly like an uninterrupted one.
    """

    def epoch(state: SolverState) -> str:
        batches.run_epoch(state, np.random.default_rng([seed, state.iteration]))
        return ""

    def reason_to_stop(state: SolverState) -> str:
        return "all epochs done" if state.iteration >= n_epochs else ""

    return iterate(state, epoch, reason_to_stop, callback)
