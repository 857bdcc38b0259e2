"""Solvers for (L, theta): Riemannian conjugate gradient, and the paper's fixed steps."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import WeightRidge
from rpml.method.solver.line_search import line_search
from rpml.method.solver.manifolds import Euclidean, Grassmann, PolarCurve, Product, orthonormalize
from rpml.runtime.blas import single_blas_thread, times
from rpml.runtime.rows import Array

Point = tuple[Array, ...]
REFRESH = 10  # iterations between recomputations of X L against rounding, and checkpoints


class Evaluator(Protocol):
    """The interface of an objective; see `TripletObjective`."""

    n_triplets: int
    learn_weights: bool
    mean_weight: float
    """Mean triplet weight at the last call of `gradients`."""

    def move_to(self, L: Array, theta: Array | None) -> None: ...
    def gradients(self) -> tuple[float, Array, Array | None]: ...
    def begin_line_search(self, curve: PolarCurve, d_theta: Array | None) -> None: ...
    def line_value(self, t: float) -> float: ...
    def accept_step(self, t: float) -> None: ...


CURVES = ("loss", "gradient_norm", "mean_weight", "step", "trials")


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
    gradient: float = 1e-8
    """Norm of the Riemannian gradient per triplet."""
    decrease: float = 1e-12
    """Relative decrease of the loss, in three consecutive iterations."""


@dataclass
class CGState:
    """Everything the next iteration depends on; saved and restored by checkpoints."""

    point: Point
    loss: float
    gradient: Point
    direction: Point
    expected: float
    """First-order decrease of the last step; sets the first guess of the next line search."""
    iteration: int = 0
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in CURVES})

    def result(self, reason: str, fixed_theta: Array | None) -> OptimizeResult:
        """Return the result of the solver; `fixed_theta` is used if weights are not learned."""
        return OptimizeResult(
            L=self.point[0],
            theta=self.point[1] if len(self.point) > 1 else fixed_theta,
            loss=self.loss,
            history=self.history,
            n_iter=self.iteration,
            converged=reason.startswith("converged"),
            message=reason,
        )

    def record(self, gradient_norm: float, mean_weight: float, step: float, trials: int) -> None:
        values = (self.loss, gradient_norm, mean_weight, step, float(trials))
        for name, value in zip(self.history, values, strict=True):
            self.history[name].append(value)


Callback = Callable[[CGState], object]


@single_blas_thread()
def conjugate_gradient(
    problem: Evaluator,
    L: Array,
    theta: Array | None,
    stopping: Stopping,
    callback: Callback | None = None,
    state: CGState | None = None,
) -> OptimizeResult:
    """Run Riemannian conjugate gradient (Hestenes-Stiefel) with an exact line search.

    The solver starts at (L, theta), with theta None if weights are not learned, or continues from
    `state`; one saved at a multiple of REFRESH iterations continues exactly like the original run.
    `callback` is called with the state after every iteration; if it returns True, the solver stops.
    """
    manifold, point, fixed_theta = _search_space(problem, L, theta)
    if state is None:
        state = _start(problem, manifold, point, fixed_theta)
    else:
        _move(problem, state.point, fixed_theta)
    reason = ""
    while not (reason := reason or _reason_to_stop(problem, state, stopping)):
        reason = _iterate(problem, manifold, state, fixed_theta)
        if callback is not None and callback(state):
            reason = reason or "stopped early on request"
    return state.result(reason, fixed_theta)


def _search_space(
    problem: Evaluator, L: Array, theta: Array | None
) -> tuple[Product, Point, Array | None]:
    """Return the manifold, the start on it, and theta if it is not learned."""
    if theta is None or not problem.learn_weights:
        return Product(Grassmann()), (L,), theta
    return Product(Grassmann(), Euclidean()), (L, theta), None


def _move(problem: Evaluator, point: Point, fixed_theta: Array | None) -> None:
    problem.move_to(point[0], point[1] if len(point) > 1 else fixed_theta)


def _start(
    problem: Evaluator, manifold: Product, point: Point, fixed_theta: Array | None
) -> CGState:
    _move(problem, point, fixed_theta)
    loss, gradient = _evaluate(problem, manifold, point)
    norm = np.sqrt(manifold.inner(point, gradient, gradient))
    direction = tuple(-g for g in gradient)
    # the first guess is a step of unit length: expected decrease = norm
    state = CGState(point, loss, gradient, direction, expected=float(norm))
    state.record(float(norm), problem.mean_weight, 0.0, 0)
    return state


def _evaluate(problem: Evaluator, manifold: Product, point: Point) -> tuple[float, Point]:
    loss, *euclidean = problem.gradients()
    gradient = tuple(g for g in euclidean if g is not None)
    return loss, manifold.project(point, gradient)


def _reason_to_stop(problem: Evaluator, state: CGState, stopping: Stopping) -> str:
    norm = state.history["gradient_norm"][-1]
    if not np.isfinite(state.loss) or not np.isfinite(norm):
        return "failed: the loss is not finite"
    if norm <= stopping.gradient * max(1, problem.n_triplets):
        return "converged: gradient norm below tolerance"
    losses = state.history["loss"][-4:]
    if len(losses) == 4:
        changes = np.abs(np.diff(losses))  # fixed steps may climb
        if (changes <= stopping.decrease * np.abs(losses[:-1])).all():
            return "converged: relative decrease below tolerance"
    return "max_iter reached" if state.iteration >= stopping.max_iter else ""


def _iterate(
    problem: Evaluator, manifold: Product, state: CGState, fixed_theta: Array | None
) -> str:
    """Take one accepted step; return a reason to stop, or ""."""
    slope = manifold.inner(state.point, state.gradient, state.direction)
    if slope >= 0:  # not a descent direction: restart at steepest descent
        state.direction = tuple(-g for g in state.gradient)
        slope = -manifold.inner(state.point, state.gradient, state.gradient)
    curve = PolarCurve.through(state.point[0], state.direction[0])
    problem.begin_line_search(curve, state.direction[1] if len(state.direction) > 1 else None)
    step = line_search(problem.line_value, state.loss, slope, state.expected / -slope)
    if step.t == 0.0:
        return "converged: no step along the search direction lowers the loss"
    straight = zip(state.point[1:], state.direction[1:], strict=True)
    point = (curve.point(step.t), *(x + step.t * v for x, v in straight))
    old_gradient = (times(state.gradient[0], curve.rotation), *state.gradient[1:])
    old_direction = (curve.direction, *state.direction[1:])
    problem.accept_step(step.t)
    if (state.iteration + 1) % REFRESH == 0:
        point = (orthonormalize(point[0]), *point[1:])
        _move(problem, point, fixed_theta)
    loss, gradient = _evaluate(problem, manifold, point)
    if loss > state.loss:  # only after a refresh: the gain was below rounding
        return "converged: the decrease is below the rounding error"
    carried = manifold.transport((curve.start, *state.point[1:]), point, old_direction)
    state.direction = _next_direction(manifold, point, gradient, old_gradient, carried)
    state.point, state.loss, state.gradient = point, loss, gradient
    state.expected = step.t * -slope
    state.iteration += 1
    norm = float(np.sqrt(manifold.inner(point, gradient, gradient)))
    state.record(norm, problem.mean_weight, step.t, step.trials)
    return ""


def _next_direction(
    manifold: Product, point: Point, gradient: Point, old_gradient: Point, old_direction: Point
) -> Point:
    """Return -g + beta d with Hestenes and Stiefel's beta, cut at zero (a restart) as in Manopt.

    `old_direction` is transported to the new point. `old_gradient` need not be: it is only
    multiplied with vectors that are tangent there, and the projection is symmetric.
    """
    change = tuple(g - h for g, h in zip(gradient, old_gradient, strict=True))
    denominator = manifold.inner(point, change, old_direction)
    beta = manifold.inner(point, change, gradient) / denominator if denominator else 0.0
    beta = max(0.0, beta) if np.isfinite(beta) else 0.0
    return tuple(beta * d - g for d, g in zip(old_direction, gradient, strict=True))


@single_blas_thread()
def fixed_steps(
    problem: Evaluator,
    start: tuple[Array, Array | None],
    stopping: Stopping,
    learning_rate: float = 1.0,
    callback: Callback | None = None,
    state: CGState | None = None,
) -> OptimizeResult:
    """Run the paper's plain updates, eqs. (update_r) and (update_L), with a fixed step size.

    The step is for the mean over triplets, which has the same minimizers as the sum, so that one
    learning rate suits any number of triplets. The loss may increase. A saved `state` continues
    like the original run.
    """
    manifold, point, fixed_theta = _search_space(problem, *start)
    state = state or _start(problem, manifold, point, fixed_theta)
    rate = learning_rate / max(1, problem.n_triplets)
    while not (reason := _reason_to_stop(problem, state, stopping)):
        step = tuple(-rate * g for g in state.gradient)
        state.point = manifold.retract(state.point, step)
        _move(problem, state.point, fixed_theta)
        state.loss, state.gradient = _evaluate(problem, manifold, state.point)
        state.iteration += 1
        norm = np.sqrt(manifold.inner(state.point, state.gradient, state.gradient))
        state.record(float(norm), problem.mean_weight, rate, 0)
        if callback is not None and callback(state):
            reason = "stopped early on request"
            break
    return state.result(reason, fixed_theta)


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
    weight_ridge: WeightRidge | None = None,
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
    weight_ridge : WeightRidge, default=None
        None is the printed objective; a `WeightRidge` keeps the weights from collapsing.
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
    problem.weight.check(theta, d)
    if max_iter < 0:
        raise ValueError(f"max_iter must not be negative, got {max_iter!r}.")
    if tol is None:
        tol = 1e-12 if dtype == np.float64 else 1e-7
    stopping = Stopping(max_iter, gradient=1e-8 if dtype == np.float64 else 1e-7, decrease=tol)
    if solver == "cg":
        result = conjugate_gradient(problem, L, theta, stopping, callback)
    elif solver == "gd":
        result = fixed_steps(problem, (L, theta), stopping, learning_rate, callback)
    else:
        raise ValueError(f"solver must be 'cg' or 'gd', got {solver!r}.")
    theta = None if result.theta is None else result.theta.astype(dtype)
    return replace(result, L=result.L.astype(dtype), theta=theta)
