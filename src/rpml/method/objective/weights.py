"""The weight functions w of the paper: `concat` (RPML), `bilinear` (RPMLv1) and `constant`.

All have the same form: w_i is the mean of sigmoid(s) over the function's logits s of triplet i. A
function only defines a first theta, the logits, and the derivative by theta given that by the
logits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from rpml.method.objective import kernels as _kernels
from rpml.runtime.rows import Array
from rpml.runtime.threads import run_chunks, sum_chunks

Triplets = NDArray[np.integer]


class WeightFunction:
    """Base of the weight functions; a new one defines `initial`, `logits` and `pullback`.

    Its name is that of the class in lower case. Logits depend on a row x only by x'M, where M is
    theta as a matrix of d rows: theta itself, or the parts of d entries that a vector consists of.
    As polynomials in M the logits are homogeneous, of the given degree.
    """

    learnable = True
    degree = 1

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        """Return an initial theta for d features and l components."""
        raise NotImplementedError

    def logits(self, P: Array, triplets: Triplets) -> Array:
        """Return (m, T) logits from P = X M."""
        raise NotImplementedError

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        """Return the derivative (n, q) by P, given the derivative ds (m, T) by the logits."""
        raise NotImplementedError

    def on_line(self, P: Array, Q: Array, triplets: Triplets) -> list[Array]:
        """Return the coefficients [s0, s1, ...] of the logits at theta + t eta, with Q = X eta."""
        first, last = self.logits(P, triplets), self.logits(Q, triplets)
        if self.degree == 1:
            return [first, last]
        return [first, self.logits(P + Q, triplets) - first - last, last]

    def check(self, theta: Array | None, d: int) -> None:
        """Raise ValueError if theta does not fit d features."""
        like = self.initial(d, 1, np.random.default_rng(0))
        shape = None if theta is None else theta.shape
        if like is None:
            if theta is not None:
                raise ValueError(f"weight={self.name!r} has no parameters: pass theta=None.")
        elif like.ndim == 1 and shape != like.shape:
            raise ValueError(
                f"theta for weight={self.name!r} must have shape {like.shape}, got {shape}."
            )
        elif like.ndim == 2 and (shape is None or len(shape) != 2 or shape[0] != d or not shape[1]):
            raise ValueError(
                f"theta for weight={self.name!r} must have shape ({d}, q), got {shape}."
            )


def as_columns(theta: Array, d: int) -> Array:
    """Return theta as the (d, q) matrix M."""
    return theta if theta.ndim == 2 else theta.reshape(-1, d).T


def like_theta(M: Array, theta: Array) -> Array:
    """Return a matrix such as M in the shape of theta."""
    return M if theta.ndim == 2 else M.T.reshape(-1)


class Concat(WeightFunction):
    """w = sigmoid(r'[x_avg; x_neg]), eq. (wt); theta is r in R^{2d}."""

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        return np.zeros(2 * d)  # every weight starts at one half

    def logits(self, P: Array, triplets: Triplets) -> Array:
        return _each_chunk(_kernels.concat_logits, P, triplets, 1)

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return _pull_back(_kernels.concat_pullback, P, triplets, ds)


class Bilinear(WeightFunction):
    """w = (w+ + w-)/2, eqs. (wt1) to (w_-); theta is R in R^{d x q}.

    w- = 1 - sigmoid(s) = sigmoid(-s), so the second logit has a minus sign.
    """

    degree = 2

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        # R = 0 is a stationary point, so the start is random, with columns of about unit norm
        return np.asarray(rng.standard_normal((d, l)) / np.sqrt(d))

    def logits(self, P: Array, triplets: Triplets) -> Array:
        return _each_chunk(_kernels.bilinear_logits, P, triplets, 2)

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return _pull_back(_kernels.bilinear_pullback, P, triplets, ds)


class Constant(WeightFunction):
    """w = 1 for every triplet; no theta."""

    learnable = False

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        return None

    def logits(self, P: Array, triplets: Triplets) -> Array:
        return np.empty((0, len(triplets)), P.dtype)

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return np.empty((len(P), 0), P.dtype)


def _each_chunk(kernel: Callable[..., None], P: Array, triplets: Triplets, m: int) -> Array:
    out = np.empty((m, len(triplets)), P.dtype)
    run_chunks(lambda _, a, b: kernel(P, triplets[a:b], out[:, a:b]), len(triplets))
    return out


def _pull_back(kernel: Callable[..., None], P: Array, triplets: Triplets, ds: Array) -> Array:
    ds = np.ascontiguousarray(ds, P.dtype)

    def pull_back(start: int, stop: int, G: Array) -> None:
        G.fill(0)
        kernel(P, triplets[start:stop], ds[:, start:stop], G)

    return sum_chunks(pull_back, len(triplets), P.shape, P.dtype)


WEIGHTS: dict[str, WeightFunction] = {w.name: w for w in (Concat(), Bilinear(), Constant())}


class PinnedWeights(WeightFunction):
    """A weight function whose pinned triplets always have weight 1, the maximum.

    Not in the paper: training must not ignore triplets of known classes.
    """

    def __init__(self, weight: WeightFunction, pinned: NDArray[np.bool_]) -> None:
        self.inner, self.pinned, self.learnable = weight, pinned, weight.learnable

    @property
    def name(self) -> str:
        return self.inner.name

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        return self.inner.initial(d, l, rng)

    def logits(self, P: Array, triplets: Triplets) -> Array:
        return self._fixed(self.inner.logits(P, triplets), PINNED_LOGIT)

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
