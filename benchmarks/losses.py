"""Reference losses for the ablation, each without one ingredient of the paper's loss.

All use the triplets, rows and initialization of an RPML fit, so that only the loss differs:

- hinge-triplet: [|y_a - y_p|^2 - |y_a - y_n|^2 + margin]_+, the classic loss;
- hinge-angular: [z]_+ with z of eq. (z_i), the angular constraint without smoothing;
- smooth: log(1 + exp(z)), without weights or probabilities;
- free: the smooth loss over any matrix L, without the orthogonality constraint.
"""

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from rpml.estimator import RPML
from rpml.evaluation.registry import LinearBaseline
from rpml.method.objective.triplet_loss import angular_factor, softplus_and_sigmoid
from rpml.method.solver.conjugate_gradient import PolarCurve, SolverState, Stopping, descend
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.rows import Array, RandomState

LOSSES = ("hinge-triplet", "hinge-angular", "smooth", "free")
ALPHA = 45.0  # degrees, as in RPML


class ReferenceObjective:
    """One of the `LOSSES` at a moving L, with the interface of `TripletObjective`."""

    learn_weights = False
    mean_weight = 1.0

    def __init__(
        self, X: Array, triplets: NDArray[np.integer], loss: str, margin: float = 0.2
    ) -> None:
        self.X, self.triplets, self.loss, self.margin = X, triplets, loss, margin
        self.n_triplets = len(triplets)

    def move_to(self, L: Array, theta: Array | None) -> None:
        self.Y = self.X @ L.astype(self.X.dtype)

    def gradients(self) -> tuple[float, Array, None]:
        """Return the loss and its Euclidean gradient by L."""
        value, G = self.value_and_rows(self.Y)
        return value, np.asarray(self.X.T @ G, np.float64), None

    def begin_line_search(self, curve: PolarCurve, d_theta: Array | None) -> None:
        """Set the curve that `line_value` and `accept_step` move on."""
        self.curve = curve
        self.Y = self.Y @ curve.rotation.astype(self.Y.dtype)
        self.direction = self.X @ curve.direction.astype(self.X.dtype)

    def line_value(self, t: float) -> float:
        return float(self._shape(self._margins(self._at(t))[0])[0].sum(dtype=np.float64))

    def accept_step(self, t: float) -> None:
        self.Y = self._at(t)

    def value_and_rows(self, Y: Array) -> tuple[float, Array]:
        """Return the loss at the projected rows Y, and its derivative by them."""
        z, (near, far) = self._margins(Y)
        values, slope = self._shape(z)
        near, far = 2 * slope[:, None] * near, 2 * slope[:, None] * far
        G = np.zeros_like(Y)
        a, p, n = self.triplets.T
        if self.loss == "hinge-triplet":  # far = y_a - y_n
            parts = (near - far, -near, far)
        else:  # far = c (y_n - (y_a + y_p) / 2)
            parts = (near + far / 2, far / 2 - near, -far)
        for rows, part in zip((a, p, n), parts, strict=True):
            np.add.at(G, rows, part)
        return float(values.sum(dtype=np.float64)), G

    def _margins(self, Y: Array) -> tuple[Array, tuple[Array, Array]]:
        """Return z of each triplet, and its two differences (the far one times its factor)."""
        a, p, n = (Y[rows] for rows in self.triplets.T)
        near = a - p
        if self.loss == "hinge-triplet":
            far = a - n
            z = _squares(near) - _squares(far) + Y.dtype.type(self.margin)
            return z, (near, far)
        far = n - (a + p) / 2
        c = Y.dtype.type(angular_factor(ALPHA))
        return _squares(near) - c * _squares(far), (near, c * far)

    def _shape(self, z: Array) -> tuple[Array, Array]:
        """Return the loss of z and its derivative."""
        if self.loss.startswith("hinge"):
            return np.maximum(z, 0), (z > 0).astype(z.dtype)
        return softplus_and_sigmoid(z)

    def _at(self, t: float) -> Array:
        scale = self.curve.scale(t).astype(self.Y.dtype)
        return np.asarray((self.Y + self.Y.dtype.type(t) * self.direction) * scale)


def _squares(rows: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


class ReferenceLoss(LinearBaseline):
    """RPML with one of the `LOSSES`; preprocessing, labels, triplets and start are RPML's."""

    def __init__(
        self,
        n_components: int = 2,
        *,
        loss: str = "smooth",
        max_iter: int = 100,
        random_state: RandomState = None,
    ) -> None:
        self.n_components, self.loss = n_components, loss
        self.max_iter, self.random_state = max_iter, random_state

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        if self.loss not in LOSSES:
            raise ValueError(f"loss={self.loss!r}: choose from {', '.join(LOSSES)}.")
        start = RPML(self.n_components, training="always", max_iter=0, tol=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # no iterations are intended
            start.set_params(weight="constant", random_state=self.random_state).fit(X)
        first = start.preprocessing_
        problem = ReferenceObjective(first.apply(X), start.triplets_, self.loss)
        solve = _without_constraint if self.loss == "free" else _on_grassmann
        L = solve(problem, start.components_.T, self.max_iter)
        self.components_ = L.T
        return replace(first, matrix=first.matrix @ L)


def _on_grassmann(problem: ReferenceObjective, L: Array, max_iter: int) -> Array:
    stopping = Stopping(max_iter, gradient=1e-7, decrease=1e-5)
    return descend(problem, SolverState(np.asarray(L, np.float64), None), stopping).L


def _without_constraint(problem: ReferenceObjective, L: Array, max_iter: int) -> Array:
    """Minimize over all matrices by L-BFGS; L may shrink, grow or lose rank."""
    shape = L.shape

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        problem.move_to(flat.reshape(shape), None)
        value, gradient, _ = problem.gradients()
        return value / problem.n_triplets, gradient.ravel() / problem.n_triplets

    optimum = minimize(
        value_and_gradient,
        np.asarray(L, np.float64).ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter},
    )
    return np.asarray(optimum.x).reshape(shape)
