"""Solvers for (L, theta): Riemannian conjugate gradient, and the paper's fixed steps.

The manifold of eq. (prod_manifold) is Grassmann(d, l) for L, times a Euclidean space for theta. A
point of Grassmann(d, l) is a subspace of R^d, given by a d x l matrix L with orthonormal columns.
Its tangent vectors are horizontal: L'xi = 0. Everything here commutes with a rotation L -> L B.
Tangent vectors of the product are tuples: (xi,), or (xi, d_theta) if theta is learned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import check_theta
from rpml.method.solver.line_search import line_search
from rpml.runtime.rows import Array
from rpml.runtime.threads import single_blas_thread, times, transposed_times

Tangent = tuple[Array, ...]
REFRESH = 10  # iterations between recomputations of X L against rounding, and checkpoints


def project(L: Array, vector: Array) -> Array:
    """Return the Riemannian gradient of a Euclidean one: G - L L'G."""
    return vector - times(L, transposed_times(L, vector))


def inner(u: Tangent, v: Tangent) -> float:
    """Return the inner product of two tangent vectors, the sum over their parts."""
    return sum(float(np.vdot(a, b)) for a, b in zip(u, v, strict=True))


def retract(L: Array, vector: Array) -> Array:
    """Return U V' of the SVD of L + xi, eq. (update_L), by an l x l eigenproblem."""
    curve = PolarCurve.through(L, vector)
    return curve.point(1.0) @ curve.rotation.T


def random_subspace(d: int, l: int, rng: np.random.Generator) -> Array:
    """Draw uniformly from the Grassmannian; fixed signs make it independent of LAPACK."""
    q, r = np.linalg.qr(rng.standard_normal((d, l)))
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


@dataclass(frozen=True)
class PolarCurve:
    """t -> the polar retraction of L + t xi, in the basis where xi'xi is diagonal.

    L'xi = 0 makes (L + t xi)'(L + t xi) = I + t^2 xi'xi, so in the eigenbasis of xi'xi the polar
    factor only rescales columns: one l x l eigenproblem serves every t. `start` and `direction`
    are L and xi rotated into that basis by `rotation`, which on the Grassmannian changes nothing.
    """

    start: Array
    direction: Array
    eigenvalues: Array
    rotation: Array

    @classmethod
    def through(cls, point: Array, vector: Array) -> PolarCurve:
        eigenvalues, rotation = np.linalg.eigh(transposed_times(vector, vector))
        start, direction = times(point, rotation), times(vector, rotation)
        return cls(start, direction, np.maximum(eigenvalues, 0.0), rotation)

    def scale(self, t: float) -> Array:
        return np.asarray(1.0 / np.sqrt(1.0 + t * t * self.eigenvalues))

    def point(self, t: float) -> Array:
        return np.asarray((self.start + t * self.direction) * self.scale(t))


def orthonormalize(L: Array) -> Array:
    """Return the orthonormal matrix nearest to a nearly orthonormal L (removes rounding drift)."""
    eigenvalues, rotation = np.linalg.eigh(L.T @ L)
    return np.asarray(L @ (rotation / np.sqrt(eigenvalues)) @ rotation.T)


@dataclass(frozen=True)
class OptimizeResult:
    """The result of a solver and why it stopped."""

    L: Array
    theta: Array | None
    loss: float
    history: dict[str, list[float]]
    """Per accepted point, including the start: loss, gradient_norm, mean_weight, step, trials."""
    n_iter: int
    converged: bool
    message: str


@dataclass(frozen=True)
class Stopping:
    """Stopping criteria, of which one suffices."""

    max_iter: int = 100
    gradient: float = 1e-8  # norm of the Riemannian gradient per triplet
    decrease: float = 1e-12  # relative decrease of the loss, in three consecutive iterations


@dataclass
class SolverState:
    """Everything the next iteration depends on; at first only the start."""

    L: Array
    theta: Array | None
    loss: float = float("nan")
    gradient: Tangent = ()
    direction: Tangent = ()
    expected: float = 1.0
    """First-order decrease of the last step; sets the first guess of the next line search."""
    iteration: int = 0
    history: dict[str, list[float]] = field(default_factory=dict)

    def record(self, **values: float) -> None:
        for name, value in values.items():
            self.history.setdefault(name, []).append(float(value))


Callback = Callable[[SolverState], object]


def iterate(
    state: SolverState,
    step: Callable[[SolverState], str],
    reason_to_stop: Callable[[SolverState], str],
    callback: Callback | None = None,
) -> OptimizeResult:
    """Run the loop of every solver: call `step` until it, `reason_to_stop` or the callback stops.

    `step` changes the state. `callback` is called after every step and stops by a true result.
    """
    reason = ""
    while not (reason := reason or reason_to_stop(state)):
        reason = step(state)
        if callback is not None and callback(state):
            reason = reason or "stopped early on request"
    return OptimizeResult(
        L=state.L,
        theta=state.theta,
        loss=state.loss,
        history=state.history,
        n_iter=state.iteration,
        converged=reason.startswith(("converged", "all epochs")),
        message=reason,
    )


@single_blas_thread()
def descend(
    problem: TripletObjective,
    state: SolverState,
    stopping: Stopping,
    callback: Callback | None = None,
    learning_rate: float | None = None,
) -> OptimizeResult:
    """Run Riemannian conjugate gradient (Hestenes-Stiefel) with an exact line search.

    With a `learning_rate`, run the paper's plain updates instead, eqs. (update_r) and (update_L):
    fixed steps on the mean over triplets, which has the same minimizers as the sum, so that one
    rate suits any number of triplets. The loss may then increase. A state saved at a multiple of
    REFRESH iterations continues exactly like the original run.
    """
    problem.move_to(state.L, state.theta)
    state.loss, state.gradient = _evaluate(problem, state.L)
    if not state.direction:
        state.direction = tuple(-g for g in state.gradient)
        # the first guess is a step of unit length
        state.expected = float(np.sqrt(inner(state.gradient, state.gradient)))
        _record(problem, state, 0.0, 0)
    step = partial(_cg_step, problem)
    if learning_rate is not None:
        step = partial(_fixed_step, problem, learning_rate / max(1, problem.n_triplets))
    return iterate(state, step, partial(_reason_to_stop, problem, stopping), callback)


def _evaluate(problem: TripletObjective, L: Array) -> tuple[float, Tangent]:
    """Return the loss and its Riemannian gradient at the point of the problem."""
    loss, by_L, by_theta = problem.gradients()
    gradient = (project(L, by_L),)
    return loss, gradient if by_theta is None else (*gradient, by_theta)


def _record(problem: TripletObjective, state: SolverState, step: float, trials: int) -> None:
    state.record(
        loss=state.loss,
        gradient_norm=np.sqrt(inner(state.gradient, state.gradient)),
        mean_weight=problem.mean_weight,
        step=step,
        trials=trials,
    )


def _reason_to_stop(problem: TripletObjective, stopping: Stopping, state: SolverState) -> str:
    norm = state.history["gradient_norm"][-1]
    if not np.isfinite(state.loss) or not np.isfinite(norm):
        return "failed: the loss is not finite"
    if norm <= stopping.gradient * problem.n_triplets:
        return "converged: gradient norm below tolerance"
    losses = state.history["loss"][-4:]
    if len(losses) == 4:
        changes = np.abs(np.diff(losses))  # fixed steps may climb
        if (changes <= stopping.decrease * np.abs(losses[:-1])).all():
            return "converged: relative decrease below tolerance"
    return "max_iter reached" if state.iteration >= stopping.max_iter else ""


def _cg_step(problem: TripletObjective, state: SolverState) -> str:
    """Take one accepted step; return a reason to stop, or ""."""
    slope = inner(state.gradient, state.direction)
    if slope >= 0:  # not a descent direction: restart at steepest descent
        state.direction = tuple(-g for g in state.gradient)
        slope = -inner(state.gradient, state.gradient)
    xi, *straight = state.direction
    curve = PolarCurve.through(state.L, xi)
    problem.begin_line_search(curve, straight[0] if straight else None)
    t, trials = line_search(problem.line_value, state.loss, slope, state.expected / -slope)
    if t == 0.0:
        return "converged: no step along the search direction lowers the loss"
    L = curve.point(t)
    theta = _moved(state.theta, t, straight)
    problem.accept_step(t)
    if (state.iteration + 1) % REFRESH == 0:
        L = orthonormalize(L)
        problem.move_to(L, theta)
    loss, gradient = _evaluate(problem, L)
    if loss > state.loss:  # only after a refresh: the gain was below rounding
        return "converged: the decrease is below the rounding error"
    old_gradient = (times(state.gradient[0], curve.rotation), *state.gradient[1:])
    carried = (project(L, curve.direction), *straight)
    state.direction = _next_direction(gradient, old_gradient, carried)
    state.L, state.theta, state.loss, state.gradient = L, theta, loss, gradient
    state.expected = t * -slope
    state.iteration += 1
    _record(problem, state, t, trials)
    return ""


def _moved(theta: Array | None, t: float, straight: list[Array]) -> Array | None:
    return theta if theta is None or not straight else np.asarray(theta + t * straight[0])


def _next_direction(gradient: Tangent, old_gradient: Tangent, old_direction: Tangent) -> Tangent:
    """Return -g + beta d with Hestenes and Stiefel's beta, cut at zero (a restart) as in Manopt.

    `old_direction` is transported to the new point. `old_gradient` need not be: it is only
    multiplied with vectors that are tangent there, and the projection is symmetric.
    """
    change = tuple(g - h for g, h in zip(gradient, old_gradient, strict=True))
    denominator = inner(change, old_direction)
    beta = inner(change, gradient) / denominator if denominator else 0.0
    beta = max(0.0, beta) if np.isfinite(beta) else 0.0
    return tuple(beta * d - g for d, g in zip(old_direction, gradient, strict=True))


def _fixed_step(problem: TripletObjective, rate: float, state: SolverState) -> str:
    xi, *straight = state.gradient
    state.L = retract(state.L, -rate * xi)
    state.theta = _moved(state.theta, -rate, straight)
    problem.move_to(state.L, state.theta)
    state.loss, state.gradient = _evaluate(problem, state.L)
    state.iteration += 1
    _record(problem, state, rate, 0)
    return ""


def fit_triplets(
    X: ArrayLike,
    triplets: ArrayLike,
    L0: ArrayLike,
    theta0: ArrayLike | None = None,
    weight: str = "concat",
    alpha: float = 45.0,
    max_iter: int = 100,
    learn_weights: bool = True,
    *,
    weight_ridge: float | None = None,
    solver: str = "cg",
    tol: float | None = None,
    learning_rate: float = 1.0,
    callback: Callback | None = None,
) -> OptimizeResult:
    """Minimize the objective over given triplets; by default exactly the one the paper prints.

    Parameters
    ----------
    X, triplets
        As in `rpml.method.objective.triplet_loss.loss_and_gradients`.
    L0 : ndarray of shape (d, l)
        Start; orthonormalized if it is not orthonormal.
    theta0 : ndarray, default=None
        Start of the weight parameters; None for "constant".
    weight : {"concat", "bilinear", "constant"}, default="concat"
    alpha : float, default=45.0
        Angle in degrees.
    max_iter : int, default=100
        Maximum number of iterations.
    learn_weights : bool, default=True
        False keeps theta at theta0.
    weight_ridge : float, default=None
        None is the printed objective; a ridge, such as 0.01, keeps the weights from collapsing.
    solver : {"cg", "gd"}, default="cg"
        Riemannian conjugate gradient, or the paper's fixed-step updates.
    tol : float, default=None
        Relative decrease of the loss below which to stop; None: 1e-12 (float64), 1e-7 (float32).
    learning_rate : float, default=1.0
        Step size of "gd", on the mean over triplets.
    callback : callable, default=None
        Called with the solver's state after each iteration; a true result stops it.

    Returns
    -------
    OptimizeResult
        `.loss` is the sum over the triplets.
    """
    problem = TripletObjective(X, triplets, weight, alpha, weight_ridge, learn_weights)
    dtype, d = problem.X.dtype, problem.X.shape[1]
    L: Array = np.array(L0, np.float64)
    if L.ndim != 2 or L.shape[0] != d or L.shape[1] > d:
        raise ValueError(f"L0 must have shape ({d}, l) with l <= {d}, got {L.shape}.")
    if np.abs(L.T @ L - np.eye(L.shape[1])).max() > 1e-12:
        L = np.linalg.qr(L)[0] if np.linalg.matrix_rank(L.T @ L) < L.shape[1] else orthonormalize(L)
    theta = None if theta0 is None else np.array(theta0, np.float64)
    check_theta(weight, theta, d)
    if max_iter < 0:
        raise ValueError(f"max_iter must not be negative, got {max_iter!r}.")
    if tol is None:
        tol = 1e-12 if dtype == np.float64 else 1e-7
    stopping = Stopping(max_iter, gradient=1e-8 if dtype == np.float64 else 1e-7, decrease=tol)
    if solver not in ("cg", "gd"):
        raise ValueError(f"solver must be 'cg' or 'gd', got {solver!r}.")
    rate = learning_rate if solver == "gd" else None
    result = descend(problem, SolverState(L, theta), stopping, callback, rate)
    theta = None if result.theta is None else result.theta.astype(dtype)
    return replace(result, L=result.L.astype(dtype), theta=theta)
