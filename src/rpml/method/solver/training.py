"""Initialize, run and resume the solvers on the triplets of a fit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from rpml.method.solver.conjugate_gradient import (
    REFRESH,
    CGState,
    Evaluator,
    OptimizeResult,
    Stopping,
    conjugate_gradient,
    fixed_steps,
)
from rpml.method.solver.manifolds import Grassmann, orthonormalize
from rpml.method.solver.stochastic import Epoch, EpochState, run_epochs
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.context import Arrays, Context, Json, Progress
from rpml.runtime.rows import Array
from rpml.runtime.schema import COUNT, HISTORY, ArraySpec, Number, Schema

if TYPE_CHECKING:
    from rpml.method.settings import FitSettings

_LARGE = 1e30  # beyond any gradient of a loss on rows of unit scale
Start = tuple[Array, Array | None]
"""L and theta."""


def initial_subspace(Z: Array, l: int, init: object, rng: np.random.Generator) -> Array:
    """Return L0: the leading principal axes of Z, a random subspace, or the user's matrix."""
    p = Z.shape[1]
    if isinstance(init, str) and init == "random":
        return Grassmann().random_point(p, l, rng)
    if isinstance(init, str):
        return complete_axes(principal_axes(Z, unit_input=False, center=True).axes, l)
    return given_subspace(init, (p, l))


def given_subspace(init: object, shape: tuple[int, int]) -> Array:
    """Return the user's matrix with orthonormal columns."""
    L = np.asarray(init)
    if L.shape != shape:
        raise ValueError(
            f"init must have shape {shape}, features after preprocessing by n_components, "
            f"got {L.shape}."
        )
    if L.dtype.kind not in "iuf" or not np.isfinite(L).all():
        raise ValueError("init must hold finite numbers.")
    if np.linalg.matrix_rank(L) < shape[1]:
        raise ValueError("init must have linearly independent columns.")
    return orthonormalize(np.linalg.qr(L.astype(np.float64))[0])


def complete_axes(axes: Array, l: int) -> Array:
    """Return the first l axes, completed by unit vectors if there are fewer."""
    axes = axes[:, :l]
    if axes.shape[1] == l:
        return axes
    completed, _ = np.linalg.qr(np.hstack([axes, np.eye(len(axes))]))
    return np.hstack([axes, completed[:, axes.shape[1] : l]])


def order_by_variance(Z: Array, L: Array) -> Array:
    """Sort the axes of the subspace by explained variance."""
    Y = Z @ L.astype(Z.dtype)
    Y = Y - Y.mean(axis=0)
    return order_by_spread(L, np.asarray(Y.T @ Y, np.float64))


def order_by_spread(L: Array, spread: Array) -> Array:
    """`order_by_variance` from the (l, l) covariance of the projected rows, up to a factor."""
    _, rotation = np.linalg.eigh(spread)
    return settle_signs(L @ rotation[:, ::-1])


def settle_signs(L: Array) -> Array:
    """Flip axes so that the largest entry of each is positive."""
    signs = np.where(L[np.abs(L).argmax(axis=0), np.arange(L.shape[1])] < 0, -1.0, 1.0)
    return np.asarray(L * signs)


def solve(
    problem: Evaluator,
    epochs: Callable[[], Epoch],
    start: Start,
    settings: FitSettings,
    context: Context,
    key: str = "",
) -> OptimizeResult:
    """Run the chosen solver on the objective, or on epochs.

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
    if settings.solver == "stochastic":
        return _run_epochs(epochs(), start, settings.n_epochs, context, key)
    stopping = Stopping(settings.max_iter, gradient=1e-7, decrease=settings.tol)

    def listen(state: CGState) -> object:
        if state.iteration % REFRESH == 0:
            context.save("optimizer", *_pack(state), key)
        info = {"loss": state.loss / problem.n_triplets}
        return context.report(Progress("optimize", state.iteration, stopping.max_iter, info))

    saved = context.load("optimizer", _state_schema(start, problem), key)
    state = _unpack(*saved) if saved else None
    if settings.solver == "gd":
        result = fixed_steps(problem, start, stopping, settings.learning_rate, listen, state)
    else:
        result = conjugate_gradient(problem, *start, stopping, listen, state)
    if result.n_iter < stopping.max_iter:  # report the end
        info = {"loss": result.loss / problem.n_triplets}
        context.report(Progress("optimize", result.n_iter, result.n_iter, info))
    return result


def _pack(state: CGState) -> tuple[Arrays, Json]:
    arrays = {f"history_{name}": np.asarray(values) for name, values in state.history.items()}
    for name in ("point", "gradient", "direction"):
        for i, part in enumerate(getattr(state, name)):
            arrays[f"{name}_{i}"] = np.ascontiguousarray(part)
    return arrays, {"loss": state.loss, "expected": state.expected, "iteration": state.iteration}


def _state_schema(start: Start, problem: Evaluator) -> Schema:
    """Return the schema of `_pack` for a problem with this start."""
    moved = [part for part in (start if problem.learn_weights else start[:1]) if part is not None]
    arrays = {
        f"{name}_{i}": ArraySpec("f", part.shape, -_LARGE, _LARGE)
        for name in ("point", "gradient", "direction")
        for i, part in enumerate(moved)
    }
    arrays["point_0"] = _orthonormal(moved[0])
    empty = CGState((), 0.0, (), (), 0.0)
    arrays |= {f"history_{name}": HISTORY for name in empty.history}
    expected = Number(1 / _LARGE, _LARGE)
    return Schema(arrays, {"loss": Number(), "expected": expected, "iteration": COUNT})


def _orthonormal(L: Array) -> ArraySpec:
    return ArraySpec("f", L.shape, -2, 2)


def _unpack(arrays: Arrays, metadata: Json) -> CGState:
    parts = {
        name: tuple(arrays[f"{name}_{i}"] for i in range(2) if f"{name}_{i}" in arrays)
        for name in ("point", "gradient", "direction")
    }
    state = CGState(
        point=parts["point"],
        loss=metadata["loss"],
        gradient=parts["gradient"],
        direction=parts["direction"],
        expected=metadata["expected"],
        iteration=metadata["iteration"],
    )
    for name in state.history:
        state.history[name] = arrays[f"history_{name}"].tolist()
    return state


def _run_epochs(
    epoch: Epoch, start: Start, n_epochs: int, context: Context, key: str
) -> OptimizeResult:
    """Run the stochastic solver with a checkpoint after every epoch."""

    def listen(state: EpochState) -> object:
        arrays = {f"history_{name}": np.asarray(values) for name, values in state.history.items()}
        arrays["L"] = state.L
        if state.theta is not None:
            arrays["theta"] = state.theta
        context.save("epoch", arrays, {"epoch": state.epoch}, key)
        info = {"loss": state.history["loss"][-1]}
        return context.report(Progress("optimize", state.epoch, n_epochs, info))

    state = EpochState(*start)
    specs = {f"history_{name}": HISTORY for name in state.history}
    specs["L"] = _orthonormal(state.L)
    if state.theta is not None:
        specs["theta"] = ArraySpec("f", state.theta.shape)
    if saved := context.load("epoch", Schema(specs, {"epoch": COUNT}), key):
        arrays, metadata = saved
        state = EpochState(arrays["L"], arrays.get("theta"), metadata["epoch"])
        state.history = {name: arrays[f"history_{name}"].tolist() for name in state.history}
    return run_epochs(epoch, state, n_epochs, context.seed, listen)
