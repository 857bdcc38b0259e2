"""The weight functions w of the paper: `concat` (RPML), `bilinear` (RPMLv1) and `constant`.

All have the same form: w_i is the mean of sigmoid(s) over the function's logits s of triplet i. A
function only defines a first theta, the logits, and the derivative by theta given that by the
logits.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from scipy.special import expit

from rpml.runtime.compiled import VECTORIZED, compiled
from rpml.runtime.rows import Array, Integers, Mask
from rpml.runtime.threads import run_chunks, sum_chunks

Triplets = Integers
PINNED_LOGIT = 30.0  # a logit whose sigmoid is 1 in either precision


class WeightFunction(ABC):
    """Base of the weight functions; a new one defines `initial`, `logits` and `pullback`.

    Logits depend on a row x only by x'M, where M is theta as a matrix of d rows: theta itself, or
    the parts of d entries that a vector consists of. As polynomials in M the logits are
    homogeneous, of the given degree.
    """

    degree = 1

    @abstractmethod
    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        """Return an initial theta for d features and l components."""

    @abstractmethod
    def logits(self, P: Array, triplets: Triplets) -> Array:
        """Return (m, T) logits from P = X M."""

    @abstractmethod
    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        """Return the derivative (n, q) by P, given the derivative ds (m, T) by the logits."""

    def on_line(self, P: Array, Q: Array, triplets: Triplets) -> list[Array]:
        """Return the coefficients [s0, s1, ...] of the logits at theta + t eta, with Q = X eta."""
        first, last = self.logits(P, triplets), self.logits(Q, triplets)
        if self.degree == 1:
            return [first, last]
        return [first, self.logits(P + Q, triplets) - first - last, last]


class Concat(WeightFunction):
    """w = sigmoid(r'[x_avg; x_neg]), eq. (wt); theta is r in R^{2d}."""

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        return np.zeros(2 * d)  # every weight starts at one half

    def logits(self, P: Array, triplets: Triplets) -> Array:
        return _each_chunk(concat_logits, P, triplets, 1)

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return _pull_back(concat_pullback, P, triplets, ds)


@compiled(VECTORIZED)
def concat_logits(P, triplets, out):  # type: ignore[no-untyped-def]
    """s_i = r'[x_avg; x_neg], eq. (wt), with P = X [r_1, r_2]."""
    half = P.dtype.type(0.5)
    for i in range(len(triplets)):
        a, p, n = triplets[i, 0], triplets[i, 1], triplets[i, 2]
        out[0, i] = half * (P[a, 0] + P[p, 0]) + P[n, 1]


@compiled(VECTORIZED)
def concat_pullback(P, triplets, k, G):  # type: ignore[no-untyped-def]
    """G += sum_i k[0, i] ds_i, derivatives by the rows of P."""
    half = P.dtype.type(0.5)
    for i in range(len(triplets)):
        ki = half * k[0, i]
        G[triplets[i, 0], 0] += ki
        G[triplets[i, 1], 0] += ki
        G[triplets[i, 2], 1] += k[0, i]


class Bilinear(WeightFunction):
    """w = (w+ + w-)/2, eqs. (wt1) to (w_-); theta is R in R^{d x q}.

    w- = 1 - sigmoid(s) = sigmoid(-s), so the second logit has a minus sign.
    """

    degree = 2

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        # R = 0 is a stationary point, so the start is random, with columns of about unit norm
        return np.asarray(rng.standard_normal((d, l)) / np.sqrt(d))

    def logits(self, P: Array, triplets: Triplets) -> Array:
        return _each_chunk(bilinear_logits, P, triplets, 2)

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return _pull_back(bilinear_pullback, P, triplets, ds)


@compiled(VECTORIZED)
def bilinear_logits(P, triplets, out):  # type: ignore[no-untyped-def]
    """RPMLv1's two similarities, eqs. (w_+) and (w_-), with P = X R.

    out[0] = p_a.p_p and out[1] = -p_avg.p_n.
    """
    half = P.dtype.type(0.5)
    for i in range(len(triplets)):
        pa, pp, pn = P[triplets[i, 0]], P[triplets[i, 1]], P[triplets[i, 2]]
        near = P.dtype.type(0)
        far = P.dtype.type(0)
        for j in range(P.shape[1]):
            near += pa[j] * pp[j]
            far += (pa[j] + pp[j]) * pn[j]
        out[0, i] = near
        out[1, i] = -half * far


@compiled(VECTORIZED)
def bilinear_pullback(P, triplets, k, G):  # type: ignore[no-untyped-def]
    """G += sum_i k[0, i] d(p_a.p_p) - k[1, i] d(p_avg.p_n), derivatives by the rows of P."""
    half = P.dtype.type(0.5)
    for i in range(len(triplets)):
        a, p, n = triplets[i, 0], triplets[i, 1], triplets[i, 2]
        pa, pp, pn = P[a], P[p], P[n]
        ga, gp, gn = G[a], G[p], G[n]
        near = k[0, i]
        far = half * k[1, i]
        for j in range(P.shape[1]):
            avg = pa[j] + pp[j]
            to_a = near * pp[j] - far * pn[j]
            to_p = near * pa[j] - far * pn[j]
            ga[j] += to_a
            gp[j] += to_p
            gn[j] -= far * avg


class Constant(WeightFunction):
    """w = 1 for every triplet; no theta."""

    def initial(self, d: int, l: int, rng: np.random.Generator) -> Array | None:
        return None

    def logits(self, P: Array, triplets: Triplets) -> Array:
        return np.empty((0, len(triplets)), P.dtype)

    def pullback(self, P: Array, triplets: Triplets, ds: Array) -> Array:
        return np.empty((len(P), 0), P.dtype)


WEIGHTS: dict[str, WeightFunction] = {
    "concat": Concat(),
    "bilinear": Bilinear(),
    "constant": Constant(),
}


class PinnedWeights(WeightFunction):
    """A weight function whose pinned triplets always have weight 1, the maximum.

    Not in the paper: training must not ignore triplets of known classes.
    """

    def __init__(self, weight: WeightFunction, pinned: Mask) -> None:
        self.inner, self.pinned = weight, pinned

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


def weight_function(name: str | WeightFunction) -> WeightFunction:
    if not isinstance(name, str):
        return name
    if name not in WEIGHTS:
        raise ValueError(f"weight must be one of {sorted(WEIGHTS)}, got {name!r}.")
    return WEIGHTS[name]


def check_theta(weight: str, theta: Array | None, d: int) -> None:
    """Raise ValueError if theta does not fit the weight function and d features."""
    like = weight_function(weight).initial(d, 1, np.random.default_rng(0))
    shape = None if theta is None else theta.shape
    if like is None and theta is not None:
        raise ValueError(f"weight={weight!r} has no parameters: pass theta=None.")
    if like is not None and like.ndim == 1 and shape != like.shape:
        raise ValueError(f"theta for weight={weight!r} must have shape {like.shape}, got {shape}.")
    fits = shape is not None and len(shape) == 2 and shape[0] == d and shape[1] > 0
    if like is not None and like.ndim == 2 and not fits:
        raise ValueError(f"theta for weight={weight!r} must have shape ({d}, q), got {shape}.")


def as_columns(theta: Array, d: int) -> Array:
    """Return theta as the (d, q) matrix M."""
    return theta if theta.ndim == 2 else theta.reshape(-1, d).T


def weights_from_logits(S: Array, normalized: bool) -> tuple[Array, Array, float]:
    """Return weights w (T,), their sigmoids (m, T), and the factor that normalizes them.

    Normalized weights (not in the paper) are divided by their mean over the triplets, or they could
    collapse: the printed objective decreases whenever every weight shrinks, whatever L is. With a
    mean of 1, as of constant weights, only their *differences* can lower the loss, and a ridge on
    theta bounds those.
    """
    if S.shape[0] == 0:
        return np.ones(S.shape[1], S.dtype), S, 1.0
    sigmoids = expit(S)
    w = sigmoids.mean(axis=0)
    if not normalized or w.size == 0:
        return w, sigmoids, 1.0
    factor = 1.0 / max(float(w.mean(dtype=np.float64)), float(np.finfo(np.float32).tiny))
    return np.asarray(w * S.dtype.type(factor)), sigmoids, factor


def logit_derivative(
    sigmoids: Array, w: Array, dw: Array, factor: float, normalized: bool
) -> Array:
    """Return the derivative by the logits (m, T), given the derivative dw by the weights."""
    if normalized:  # the mean changes with every weight
        dw = dw - float(np.vdot(dw, w)) / max(1, len(w))
    return np.asarray(sigmoids * (1 - sigmoids) * (dw * (factor / len(sigmoids))))


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
