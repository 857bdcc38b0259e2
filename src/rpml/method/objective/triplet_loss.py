"""The objective, eq. (RPML): sum_i log(1 + exp(w_i m_i)) over index triplets, with its gradients.

No d x T matrix is ever built: with Y = X L, a triplet reads three rows of Y, its weighted
differences are added to three rows of G, and the gradient by L is X'G. The compiled loops release
the GIL, so that the triplets are split between threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from rpml.method.objective.weights import (
    WeightFunction,
    as_columns,
    check_theta,
    logit_derivative,
    weight_function,
    weights_from_logits,
)
from rpml.runtime.compiled import VECTORIZED, compiled
from rpml.runtime.errors import counted
from rpml.runtime.rows import Array, Integers
from rpml.runtime.threads import (
    aligned,
    aligned_rows,
    run_chunks,
    single_blas_thread,
    times,
    transposed_times,
)

if TYPE_CHECKING:
    from rpml.method.solver.conjugate_gradient import PolarCurve

# of the gradient per thread, which reads all triplets: one thread costs less unless there are many
MIN_COLUMNS, MIN_TRIPLETS = 64, 65_536
SAFE_FLOAT32 = 1e15  # norm of a row beyond which squares overflow: work in float64 then


def angular_factor(alpha: float) -> float:
    """4 tan^2(alpha), alpha in degrees: the bound on the angle at the negative, eq. (z_i)."""
    if not 0 < alpha < 90:
        raise ValueError(f"alpha must be an angle between 0 and 90 degrees, got {alpha!r}.")
    return float(4.0 * np.tan(np.radians(alpha)) ** 2)


@compiled(VECTORIZED)
def angular_margins(Y, triplets, c, z):  # type: ignore[no-untyped-def]
    """z_i = |y_a - y_p|^2 - c |y_n - (y_a + y_p)/2|^2, eq. (z_i) with Y = X L."""
    half = Y.dtype.type(0.5)
    for i in range(len(triplets)):
        ya, yp, yn = Y[triplets[i, 0]], Y[triplets[i, 1]], Y[triplets[i, 2]]
        near = Y.dtype.type(0)
        far = Y.dtype.type(0)
        for j in range(Y.shape[1]):
            ap = ya[j] - yp[j]
            nm = yn[j] - half * (ya[j] + yp[j])
            near += ap * ap
            far += nm * nm
        z[i] = near - c * far


def softplus_and_sigmoid(x: Array) -> tuple[Array, Array]:
    """log(1 + exp(x)) and its derivative, for any finite x without overflow."""
    e = np.exp(-np.abs(x))
    return np.maximum(x, 0) + np.log1p(e), np.where(x >= 0, 1, e) / (1 + e)


def triplet_terms(z: Array, w: Array) -> tuple[Array, Array, Array]:
    """log(1 + exp(w m)) with m = log(1 + exp(z)), and its derivatives by w and by z.

    exp(-loss) is the probability that a triplet satisfies the constraint, eq. (prob_triplet).
    """
    m, dm = softplus_and_sigmoid(z)
    loss, g = softplus_and_sigmoid(w * m)
    return loss, g * m, g * w * dm


@compiled(VECTORIZED)
def angular_pullback(Y, triplets, c, k, G, start, stop):  # type: ignore[no-untyped-def]
    """G += sum_i k_i/2 dz_i/dY: the weighted differences of each triplet, added to its rows.

    Only the columns start..stop, which are unsigned in the loop: a signed index may count from the
    end, and checking for that would prevent vectorization.
    """
    half = Y.dtype.type(0.5)
    first, last = np.uint64(start), np.uint64(stop)
    for i in range(len(triplets)):
        a, p, n = triplets[i, 0], triplets[i, 1], triplets[i, 2]
        ya, yp, yn = Y[a], Y[p], Y[n]
        ga, gp, gn = G[a], G[p], G[n]
        ki = k[i]
        ci = c * ki
        for j in range(first, last):
            ap = ki * (ya[j] - yp[j])
            nm = ci * (yn[j] - half * (ya[j] + yp[j]))
            ga[j] += ap + half * nm
            gp[j] += half * nm - ap
            gn[j] -= nm


@compiled(VECTORIZED)
def _move_rows(Y, Z, t, scale, out):  # type: ignore[no-untyped-def]
    """out = (Y + t Z) * scale: the rows of X L along the polar curve, with no matrix product."""
    for i in range(len(Y)):
        for j in range(Y.shape[1]):
            out[i, j] = (Y[i, j] + t * Z[i, j]) * scale[j]


class TripletObjective:
    """The objective at a moving point (L, theta), over triplets of rows of X.

    `move_to` sets the point, `gradients` evaluates there, `begin_line_search` sets a search curve,
    `line_value` is the loss at a step on it, without any matrix product, and `accept_step` moves
    there. A `weight_ridge` normalizes the weights and adds the penalty ridge/2 |theta|^2 per
    triplet; None is the printed objective. `learn_weights=False` keeps theta constant.
    """

    def __init__(
        self,
        X: ArrayLike,
        triplets: ArrayLike,
        weight: str | WeightFunction = "concat",
        alpha: float = 45.0,
        weight_ridge: float | None = None,
        learn_weights: bool = True,
    ) -> None:
        self.X = as_float_rows(X)
        self.triplets = as_triplets(triplets, len(self.X))
        self.n_triplets = len(self.triplets)
        self.weight: WeightFunction = weight_function(weight)
        self.weight_ridge, self.normalized = weight_ridge, weight_ridge is not None
        self.learn_weights = learn_weights
        self.c = self.X.dtype.type(angular_factor(alpha))
        self.mean_weight = 0.0
        self.products = 0  # of X, or its transpose, with a matrix: they dominate the time

    def move_to(self, L: Array, theta: Array | None) -> None:
        """Set the point; costs the product X L."""
        self.theta = theta
        self.Y, self.P = self._times_X(L, theta)

    def gradients(self) -> tuple[float, Array, Array | None]:
        """Return loss and Euclidean gradients at the point; costs the product X'G."""
        w, sigmoids, factor = weights_from_logits(
            self.weight.logits(self.P, self.triplets), self.normalized
        )
        self.mean_weight = float(w.mean()) if self.n_triplets else 0.0
        losses, dw, dz = self._terms(self.Y, w)
        n, l = self.Y.shape
        learned = self.P.shape[1] if self.learn_weights else 0
        padded = aligned_rows(n, l + learned, self.X.dtype)
        padded.fill(0)
        k = 2 * dz  # eqs. (P_tilde_matrix), (Q_tilde_matrix)
        # threads share the columns: shares of the triplets would each need a G of their own
        run_chunks(
            lambda _, a, b: angular_pullback(self.Y, self.triplets, self.c, k, padded, a, b),
            l,
            max(MIN_COLUMNS, l * MIN_TRIPLETS // max(1, self.n_triplets)),
        )
        G = padded[:, : l + learned]
        if learned:  # the derivative by theta shares the product with the one by L
            ds = logit_derivative(sigmoids, w, dw, factor, self.normalized)
            G[:, l:] = self.weight.pullback(self.P, self.triplets, ds)
        self.products += 1
        gradient = np.asarray(transposed_times(self.X, G), np.float64)
        loss = float(losses.sum(dtype=np.float64)) + self._penalty(self.theta)
        if not learned or self.theta is None:
            return loss, gradient[:, :l], None
        by_theta = gradient[:, l:] if self.theta.ndim == 2 else gradient[:, l:].T.ravel()
        if self.weight_ridge is not None:
            by_theta = by_theta + self.weight_ridge * self.n_triplets * self.theta
        return loss, gradient[:, :l], by_theta

    def begin_line_search(self, curve: PolarCurve, d_theta: Array | None) -> None:
        """Search along the curve in L and the straight line theta + t d_theta.

        Costs the product X xi. X L follows the curve's rotation by an l x l product.
        """
        self.curve, self.d_theta = curve, d_theta
        self.Y = times(self.Y, curve.rotation.astype(self.Y.dtype))
        self.Z, self.Q = self._times_X(curve.direction, d_theta)
        self.Y_t = aligned(self.Y.shape, self.Y.dtype)
        if d_theta is None:
            self.logit_line = [self.weight.logits(self.P, self.triplets)]
        else:
            self.logit_line = self.weight.on_line(self.P, self.Q, self.triplets)

    def line_value(self, t: float) -> float:
        """Return the loss at step t of the line, without a matrix product."""
        self._move_rows(t)
        S = np.polynomial.polynomial.polyval(self.X.dtype.type(t), self.logit_line)
        losses = self._terms(self.Y_t, weights_from_logits(S, self.normalized)[0])[0]
        return float(losses.sum(dtype=np.float64)) + self._penalty(self._theta_at(t))

    def accept_step(self, t: float) -> None:
        """Move to step t of the line; X L follows from the curve without a product."""
        self._move_rows(t)
        self.Y, self.Y_t = self.Y_t, self.Y
        if self.d_theta is not None:
            self.P = self.P + self.P.dtype.type(t) * self.Q
            self.theta = self._theta_at(t)

    def weights_and_probabilities(self) -> tuple[Array, Array]:
        """Return w and p of every triplet at the point."""
        w = weights_from_logits(self.weight.logits(self.P, self.triplets), self.normalized)[0]
        return w, np.exp(-self._terms(self.Y, w)[0])

    def _terms(self, Y: Array, w: Array) -> tuple[Array, Array, Array]:
        """Return the `triplet_terms` of every triplet, computed in parallel."""
        losses, dw, dz = (np.empty(self.n_triplets, self.X.dtype) for _ in range(3))

        def evaluate(_: int, start: int, stop: int) -> None:
            part = slice(start, stop)
            z = np.empty(stop - start, Y.dtype)
            angular_margins(Y, self.triplets[part], self.c, z)
            losses[part], dw[part], dz[part] = triplet_terms(z, w[part])

        run_chunks(evaluate, self.n_triplets)
        return losses, dw, dz

    def _times_X(self, matrix: Array, theta: Array | None) -> tuple[Array, Array]:
        """Return X times a (d, l) matrix, and the rows that the weights use, by one product."""
        self.products += 1
        if theta is None:
            rows = times(self.X, np.asarray(matrix, self.X.dtype))
            return rows, np.empty((len(rows), 0), rows.dtype)
        both = np.hstack([matrix, as_columns(theta, len(matrix))]).astype(self.X.dtype)
        rows = times(self.X, both)
        l = matrix.shape[1]
        first = aligned((len(rows), l), rows.dtype)
        np.copyto(first, rows[:, :l])
        return first, np.ascontiguousarray(rows[:, l:])

    def _move_rows(self, t: float) -> None:
        scale = self.curve.scale(t).astype(self.Y.dtype)
        step = self.Y.dtype.type(t)
        run_chunks(
            lambda _, a, b: _move_rows(self.Y[a:b], self.Z[a:b], step, scale, self.Y_t[a:b]),
            len(self.Y),
            minimum=4096,
        )

    def _theta_at(self, t: float) -> Array | None:
        if self.theta is None or self.d_theta is None:
            return self.theta
        return np.asarray(self.theta + t * self.d_theta)

    def _penalty(self, theta: Array | None) -> float:
        if self.weight_ridge is None or theta is None:
            return 0.0
        return 0.5 * self.weight_ridge * self.n_triplets * float(np.vdot(theta, theta))


@single_blas_thread()
def loss_and_gradients(
    X: ArrayLike,
    triplets: ArrayLike,
    L: ArrayLike,
    theta: ArrayLike | None,
    weight: str = "concat",
    alpha: float = 45.0,
) -> tuple[float, Array, Array | None]:
    """Compute the paper's objective and its Euclidean gradients, exactly as printed.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Data rows.
    triplets : int ndarray of shape (T, 3)
        Row indices (anchor, positive, negative); any indices, repeats included.
    L : ndarray of shape (d, l)
        The projection.
    theta : array or None
        (2d,) for "concat", (d, q) for "bilinear" (q need not equal l), None for "constant".
    weight : {"concat", "bilinear", "constant"}, default="concat"
        The weight function: RPML, RPMLv1, or w = 1.
    alpha : float, default=45.0
        Angle of the constraint in degrees.

    Returns
    -------
    loss : float
        Sum over the triplets.
    grad_L : ndarray of shape (d, l)
    grad_theta : array shaped like theta, or None for "constant"
    """
    objective = TripletObjective(X, triplets, weight, alpha)
    d = objective.X.shape[1]
    L = np.asarray(L)
    if L.ndim != 2 or L.shape[0] != d:
        raise ValueError(
            f"L must have shape ({d}, l) for X with {counted(d, 'feature')}, got {L.shape}."
        )
    theta = None if theta is None else np.asarray(theta)
    check_theta(weight, theta, d)
    objective.move_to(L, theta)
    loss, grad_L, grad_theta = objective.gradients()
    dtype = objective.X.dtype
    return loss, grad_L.astype(dtype), None if grad_theta is None else grad_theta.astype(dtype)


def as_float_rows(X: ArrayLike) -> Array:
    """Return X as a C-contiguous float32 or float64 matrix whose squares do not overflow."""
    X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(
            f"X must be a matrix (n_rows, n_features), got an array of shape {X.shape}."
        )
    X = np.ascontiguousarray(X, np.float32 if X.dtype in (np.float16, np.float32) else np.float64)
    with np.errstate(over="ignore"):  # an infinite square is large, too
        if X.dtype == np.float32 and np.vecdot(X, X).max(initial=0) > SAFE_FLOAT32**2:
            return X.astype(np.float64)
    return X


def as_triplets(triplets: ArrayLike, n: int) -> Integers:
    """Return index triplets as a C-contiguous integer matrix with entries in [0, n)."""
    triplets = np.asarray(triplets)
    if triplets.ndim != 2 or triplets.shape[1] != 3 or triplets.dtype.kind not in "iu":
        raise ValueError(
            "triplets must be an integer array of shape (n_triplets, 3), "
            f"got {triplets.dtype} of shape {triplets.shape}."
        )
    if triplets.size and (triplets.min() < 0 or triplets.max() >= n):
        row = int(np.flatnonzero(((triplets < 0) | (triplets >= n)).any(axis=1))[0])
        raise ValueError(
            f"triplets[{row}] = {triplets[row].tolist()} is outside the {counted(n, 'row')} of X."
        )
    return np.ascontiguousarray(triplets, np.int32 if n < 2**31 else np.int64)
