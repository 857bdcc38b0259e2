"""The weight functions w of the paper: `concat` (RPML), `bilinear` (RPMLv1) and `constant`.

All have the same form: w_i is the mean of sigmoid(s) over the function's logits s of triplet i. A
function only defines the logits for theta, the derivative by theta from that by the logits, and
the polynomials in t that its logits are along a line theta + t eta.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from rpml.method.objective import kernels as _kernels
from rpml.runtime.rows import Array
from rpml.runtime.threads import run_chunks, sum_chunks

Triplets = NDArray[np.integer]


class WeightFunction(Protocol):
    """The interface of a weight function."""

    @property
    def name(self) -> str: ...

    @property
    def learnable(self) -> bool: ...

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        """Return an initial theta."""

    def check(self, theta: Array | None, d: int) -> None:
        """Raise ValueError if theta does not fit d features."""

    def as_matrix(self, theta: Array) -> Array:
        """Return theta as the (d, q) matrix M; the logits depend on a row only by P = X M."""

    def from_matrix(self, M: Array) -> Array:
        """The inverse of `as_matrix`."""

    def logits(self, P: Array, Q: Array, triplets: Triplets) -> Array:
        """Return (m, T) logits, bilinear and symmetric in P and Q if quadratic; P = Q gives s."""

    def on_line(self, P: Array, Q: Array, triplets: Triplets) -> list[Array]:
        """Return the coefficients [s0, s1, ...] of the logits at theta + t eta."""

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        """Return the derivative (n, q) by P, given the derivative ds (m, T) by the logits."""


class Concat:
    """w = sigmoid(r'[x_avg; x_neg]), eq. (wt); theta is r in R^{2d}."""

    name = "concat"
    learnable = True

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        return np.zeros(2 * d)  # every weight starts at one half

    def check(self, theta: Array | None, d: int) -> None:
        shape = None if theta is None else theta.shape
        if shape != (2 * d,):
            raise ValueError(f"theta for weight='concat' must have shape ({2 * d},), got {shape}.")

    def as_matrix(self, theta: Array) -> Array:
        return theta.reshape(2, -1).T

    def from_matrix(self, M: Array) -> Array:
        return M.T.reshape(-1)

    def logits(self, P: Array, Q: Array, triplets: Triplets) -> Array:
        out = np.empty((1, len(triplets)), P.dtype)
        run_chunks(
            lambda _, a, b: _kernels.concat_logits(P, triplets[a:b], out[:, a:b]), len(triplets)
        )
        return out

    def on_line(self, P: Array, Q: Array, triplets: Triplets) -> list[Array]:
        return [self.logits(P, P, triplets), self.logits(Q, Q, triplets)]

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return _pull_back(_kernels.concat_pullback, P, triplets, ds)


class Bilinear:
    """w = (w+ + w-)/2, eqs. (wt1) to (w_-); theta is R in R^{d x q}.

    w- = 1 - sigmoid(s) = sigmoid(-s), so the second logit has a minus sign.
    """

    name = "bilinear"
    learnable = True

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        # R = 0 is a stationary point, so the start is random, with columns of about unit norm
        return np.asarray(rng.standard_normal((d, l)) / np.sqrt(d))

    def check(self, theta: Array | None, d: int) -> None:
        shape = None if theta is None else theta.shape
        if shape is None or len(shape) != 2 or shape[0] != d or shape[1] == 0:
            raise ValueError(f"theta for weight='bilinear' must have shape ({d}, q), got {shape}.")

    def as_matrix(self, theta: Array) -> Array:
        return theta

    def from_matrix(self, M: Array) -> Array:
        return M

    def logits(self, P: Array, Q: Array, triplets: Triplets) -> Array:
        out = np.empty((2, len(triplets)), P.dtype)
        run_chunks(
            lambda _, a, b: _kernels.bilinear_logits(P, Q, triplets[a:b], out[:, a:b]),
            len(triplets),
        )
        return out

    def on_line(self, P: Array, Q: Array, triplets: Triplets) -> list[Array]:
        logits = self.logits
        return [logits(P, P, triplets), 2 * logits(P, Q, triplets), logits(Q, Q, triplets)]

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return _pull_back(_kernels.bilinear_pullback, P, triplets, ds)


class Constant:
    """w = 1 for every triplet; no theta."""

    name = "constant"
    learnable = False

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        return None

    def check(self, theta: Array | None, d: int) -> None:
        if theta is not None:
            raise ValueError("weight='constant' has no parameters: pass theta=None.")

    def as_matrix(self, theta: Array) -> Array:
        return theta

    def from_matrix(self, M: Array) -> Array:
        return M

    def logits(self, P: Array, Q: Array, triplets: Triplets) -> Array:
        return np.empty((0, len(triplets)), P.dtype)

    def on_line(self, P: Array, Q: Array, triplets: Triplets) -> list[Array]:
        return [self.logits(P, Q, triplets)]

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return np.empty((len(P), 0), P.dtype)


def _pull_back(kernel: Callable[..., None], P: Array, triplets: Triplets, ds: Array) -> Array:
    ds = np.ascontiguousarray(ds, P.dtype)

    def pull_back(start: int, stop: int, G: Array) -> None:
        G.fill(0)
        kernel(P, triplets[start:stop], ds[:, start:stop], G)

    return sum_chunks(pull_back, len(triplets), P.shape, P.dtype)


WEIGHTS: dict[str, WeightFunction] = {w.name: w for w in (Concat(), Bilinear(), Constant())}


class PinnedWeights:
    """A weight function whose pinned triplets always have weight 1, the maximum.

    Not in the paper: training must not ignore triplets of known classes.
    """

    def __init__(self, weight: WeightFunction, pinned: NDArray[np.bool_]) -> None:
        self.inner, self.pinned = weight, pinned
        self.name, self.learnable = weight.name, weight.learnable
        self.initial, self.check = weight.initial, weight.check
        self.as_matrix, self.from_matrix = weight.as_matrix, weight.from_matrix

    def logits(self, P: Array, Q: Array, triplets: Triplets) -> Array:
        return self._fixed(self.inner.logits(P, Q, triplets), PINNED_LOGIT)

    def on_line(self, P: Array, Q: Array, triplets: Triplets) -> list[Array]:
        first, *others = self.inner.on_line(P, Q, triplets)
        return [self._fixed(first, PINNED_LOGIT), *(self._fixed(other, 0.0) for other in others)]

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return self.inner.pullback(P, triplets, self._fixed(ds, 0.0))

    def _fixed(self, values: Array, value: float) -> Array:
        values[:, self.pinned] = value
        return values


PINNED_LOGIT = 30.0  # a logit whose sigmoid is 1 in either precision


def weight_function(name: str | WeightFunction) -> WeightFunction:
    if not isinstance(name, str):
        return name
    if name not in WEIGHTS:
        raise ValueError(f"weight must be one of {sorted(WEIGHTS)}, got {name!r}.")
    return WEIGHTS[name]


@dataclass(frozen=True)
class WeightRidge:
    """Keeps learned weights from collapsing to zero; not in the paper.

    The printed objective decreases whenever every weight shrinks, whatever L is. Here weights are
    divided by their mean over the triplets: their mean is 1, as with constant weights, and only
    their *differences* can lower the loss; a ridge on theta bounds those.
    """

    ridge: float = 0.01
    """Penalty ridge/2 |theta|^2 per triplet."""

    def mean_of(self, w: Array) -> float:
        """Return the divisor of the weights."""
        return float(w.mean(dtype=np.float64))

    def mean_pull(self, w: Array, dw: Array) -> float:
        """Return what the derivative of the mean subtracts from every derivative dw."""
        return float(np.vdot(dw, w)) / len(w)


def weights_from_logits(S: Array, weight_ridge: WeightRidge | None) -> tuple[Array, Array, float]:
    """Return weights w (T,), their sigmoids (m, T), and the factor that normalizes them."""
    if S.shape[0] == 0:
        return np.ones(S.shape[1], S.dtype), S, 1.0
    sigmoids = expit(S)
    w = sigmoids.mean(axis=0)
    if weight_ridge is None or w.size == 0:
        return w, sigmoids, 1.0
    factor = 1.0 / max(weight_ridge.mean_of(w), float(np.finfo(np.float32).tiny))
    return np.asarray(w * S.dtype.type(factor)), sigmoids, factor


def logit_derivative(
    sigmoids: Array, w: Array, dw: Array, factor: float, weight_ridge: WeightRidge | None
) -> Array:
    """Return the derivative by the logits (m, T), given the derivative dw by the weights."""
    if weight_ridge is not None:  # the mean changes with every weight
        dw = dw - weight_ridge.mean_pull(w, dw)
    return np.asarray(sigmoids * (1 - sigmoids) * (dw * (factor / len(sigmoids))))
