"""Initialize, run and resume the solvers on the triplets of a fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.solver.conjugate_gradient import (
    REFRESH,
    OptimizeResult,
    SolverState,
    Stopping,
    descend,
)
from rpml.method.solver.manifolds import orthonormalize, random_subspace
from rpml.method.solver.stochastic import Batches, run_epochs
from rpml.method.whitening.linear_map import principal_axes, sign_of_largest
from rpml.runtime.context import Arrays, Context, Json, Progress
from rpml.runtime.rows import Array
from rpml.runtime.schema import COUNT, HISTORY, ArraySpec, Number, Schema

if TYPE_CHECKING:
    from rpml.method.settings import FitSettings

_LARGE = 1e30  # beyond any gradient of a loss on rows of unit scale
_CURVES = ("loss", "gradient_norm", "mean_weight", "step", "trials")
_EPOCH_CURVES = ("loss", "gradient_norm", "mean_weight", "n_triplets")
Start = tuple[Array, Array | None]
"""L and theta."""


def initial_subspace(Z: Array, l: int, init: object, rng: np.random.Generator) -> Array:
    """Return L0: the leading principal axes of Z, a random subspace, or the user's matrix."""
    p = Z.shape[1]
    if isinstance(init, str) and init == "random":
        return random_subspace(p, l, rng)
    if not isinstance(init, str):
        return given_subspace(init, p, l)
    axes = principal_axes(Z, unit_input=False, center=True).axes[:, :l]
    if axes.shape[1] == l:
        return axes
    completed = np.linalg.qr(np.hstack([axes, np.eye(p)]))[0]  # rows vary in fewer directions
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
    batches: Callable[[], Batches],
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
            UserWarning,
            stacklevel=2,
        )
        return OptimizeResult(*start, 0.0, {"loss": []}, 0, True, "no triplets: nothing learned")
    by_epochs = settings.solver == "stochastic"
    total = settings.n_epochs if by_epochs else settings.max_iter
    unit = 1 if by_epochs else problem.n_triplets  # epochs record the mean loss

    def listen(state: SolverState) -> object:
        if by_epochs or state.iteration % REFRESH == 0:
            context.save("optimizer", *_pack(state), key)
        info = {"loss": state.loss / unit}
        return context.report(Progress("optimize", state.iteration, total, info))

    saved = context.load("optimizer", _state_schema(start, by_epochs), key)
    state = _unpack(*saved) if saved else SolverState(*start)
    if by_epochs:
        result = run_epochs(batches(), state, total, context.seed, listen)
    else:
        stopping = Stopping(total, gradient=1e-7, decrease=settings.tol)
        rate = settings.learning_rate if settings.solver == "gd" else None
        result = descend(problem, state, stopping, listen, rate)
    if result.n_iter < total:  # report the end
        info = {"loss": result.loss / unit}
        context.report(Progress("optimize", result.n_iter, result.n_iter, info))
    return result


def _pack(state: SolverState) -> tuple[Arrays, Json]:
    arrays = {f"history_{name}": np.asarray(values) for name, values in state.history.items()}
    tuples = {"point": (state.L, state.theta), "gradient": state.gradient}
    for name, parts in {**tuples, "direction": state.direction}.items():
        for i, part in enumerate(part for part in parts if part is not None):
            arrays[f"{name}_{i}"] = np.ascontiguousarray(part)
    return arrays, {"loss": state.loss, "expected": state.expected, "iteration": state.iteration}


def _state_schema(start: Start, by_epochs: bool) -> Schema:
    """Return the schema of `_pack` for a fit with this start."""
    tangent = () if by_epochs else tuple(part for part in start if part is not None)
    like, _ = _pack(SolverState(*start, gradient=tangent, direction=tangent))
    arrays = {name: ArraySpec("f", part.shape, -_LARGE, _LARGE) for name, part in like.items()}
    arrays["point_0"] = ArraySpec("f", start[0].shape, -2, 2)  # orthonormal
    curves = _EPOCH_CURVES if by_epochs else _CURVES
    arrays |= {f"history_{name}": HISTORY for name in curves}
    expected = Number(1 / _LARGE, _LARGE)
    return Schema(arrays, {"loss": Number(), "expected": expected, "iteration": COUNT})


def _unpack(arrays: Arrays, metadata: Json) -> SolverState:
    def parts(name: str) -> tuple[Array, ...]:
        return tuple(arrays[f"{name}_{i}"] for i in range(2) if f"{name}_{i}" in arrays)

    curves = {name.removeprefix("history_"): name for name in arrays if name.startswith("history_")}
    history = {curve: arrays[name].tolist() for curve, name in curves.items()}
    return SolverState(
        L=arrays["point_0"],
        theta=arrays.get("point_1"),
        gradient=parts("gradient"),
        direction=parts("direction"),
        history=history,
        **{name: metadata[name] for name in ("loss", "expected", "iteration")},
    )
