"""The objective over triplets that are distributed over many workers.

Each part is a `TripletObjective` over some of the triplets and the rows they use. The state of a
part at a point (X L, X xi, logits) is the result of a task and stays on its worker; the next state
is a pure function of it, so that Dask can recompute a lost one from the last point. A call costs
one message per part in each direction: L, theta or a step is sent, a loss or a d x l gradient is
returned, and gradients are summed in a tree.

The ridge form divides the weights by their mean over all triplets. That mean is one sum before the
losses; its derivative is linear in one further sum, so it needs no second pass:
dJ/dtheta = A - (sum dw w / T) B.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from numpy.polynomial.polynomial import polyval
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.take import Partitions, deal
from rpml.distributed.triplets import Drawn
from rpml.method.objective.triplet_loss import TripletObjective, TripletTerms
from rpml.method.objective.weights import (
    PinnedWeights,
    WeightRidge,
    logit_derivative,
    weight_function,
    weights_from_logits,
)
from rpml.method.solver.manifolds import PolarCurve
from rpml.runtime.rows import Array


@sizeof.register(TripletObjective)  # type: ignore[untyped-decorator]
def _bytes(part: TripletObjective) -> int:
    """Return the bytes of a state, so that Dask knows what to move and to spill."""
    return sum(a.nbytes for a in vars(part).values() if isinstance(a, np.ndarray))


@dataclass(frozen=True)
class ObjectiveSettings:
    """The objective's settings."""

    weight: str = "concat"
    alpha: float = 45.0
    weight_ridge: WeightRidge | None = None


@dataclass(frozen=True)
class PartRidge(WeightRidge):
    """A ridge whose mean weight, that of all triplets, is given; see the module."""

    mean: float = 1.0
    pulls: list[float] = field(default_factory=list)

    def mean_of(self, w: Array) -> float:
        return self.mean

    def mean_pull(self, w: Array, dw: Array) -> float:
        """Store the sum, which is subtracted when all parts are known."""
        self.pulls.append(float(np.vdot(dw, w)))
        return 0.0


class DaskObjective:
    """An `Evaluator` whose triplets are on the workers.

    `rows` are the partitioned rows and their edges; `shards` are tasks with the triplets of
    `rpml.distributed.triplets`, as row numbers among all rows.
    """

    def __init__(
        self,
        cluster: Cluster,
        rows: Partitions,
        shards: Sequence[Task],
        settings: ObjectiveSettings,
    ) -> None:
        self.cluster, self.settings = cluster, settings
        self.weight = weight_function(settings.weight)
        self.learn_weights = self.weight.learnable
        self.mean_weight = 0.0
        self.weight_ridge = settings.weight_ridge
        sizes = cluster.values(cluster.each(_count, shards))
        self.n_triplets = int(sum(sizes))
        self.shards = [shard for shard, size in zip(shards, sizes, strict=True) if size]
        self._base = self._make(rows)
        self._states: list[Task] = []

    def _make(self, rows: Partitions) -> list[Task]:
        """Build one part per thread of the cluster: triplets of near anchors and their rows."""
        submit, count = self.cluster.submit, len(self.shards)
        if not count:
            return []
        parts = min(sum(self.cluster.workers().values()), count)
        cuts = [count * i // parts for i in range(parts + 1)]
        own = [submit(_read_by, self.shards[a:b]) for a, b in pairwise(cuts)]
        values = deal(self.cluster, *rows, [self.cluster.item(part, 0) for part in own])
        return [submit(_make, X, part, self.settings) for X, part in zip(values, own, strict=True)]

    @property
    def triplets(self) -> NDArray[np.intp]:
        """All triplets, in the order of `terms`."""
        shards = [self.cluster.item(shard, 0) for shard in self.shards]
        return np.concatenate([np.empty((0, 3), np.intp), *self.cluster.values(shards)])

    def move_to(self, L: Array, theta: Array | None) -> None:
        """Set the point; each part multiplies its rows with L."""
        point = self.cluster.hold((L, theta))
        self._states = self.cluster.each(_after, self._base, "move_to", point)

    def gradients(self) -> tuple[float, Array, Array | None]:
        """Loss and Euclidean gradients at the point, summed over the parts in a tree."""
        mean = self._mean()
        parts = self.cluster.each(_gradients, self._states, mean)
        loss, grad_L, by_theta, by_mean, pull, weight = self.cluster.value(
            self.cluster.total(parts)
        )
        self.mean_weight = float(weight) / max(1, self.n_triplets)
        if by_theta is not None and by_mean is not None:
            by_theta = by_theta - pull / self.n_triplets * by_mean
        return float(loss), grad_L, by_theta

    def begin_line_search(self, curve: PolarCurve, d_theta: Array | None) -> None:
        """Fix a search curve; each part multiplies its rows with its direction."""
        line = self.cluster.hold((curve, d_theta))
        self._states = self.cluster.each(_after, self._states, "begin_line_search", line)

    def line_value(self, t: float) -> float:
        """Loss at step t of the line, from one number per part."""
        mean = self._mean(t)
        return self.cluster.sum_each(_line_value, self._states, t, mean)

    def accept_step(self, t: float) -> None:
        """Move to step t of the line."""
        self._states = self.cluster.each(_after, self._states, "accept_step", (t,))

    def terms(self) -> TripletTerms:
        """z, m, w and p of every triplet at the point, in the order of the triplets."""
        if not self._states:
            return TripletTerms(*np.empty((4, 0)))
        terms = self.cluster.each(_terms, self._states, self._mean())
        return TripletTerms(*np.concatenate(self.cluster.values(terms), axis=1))

    def _mean(self, t: float | None = None) -> float | None:
        """Mean weight over all triplets before the ridge, from one sum per part; None if unused."""
        if self.weight_ridge is None or not self.weight.learnable:
            return None
        return self.cluster.sum_each(_weight_sum, self._states, t) / self.n_triplets


Reading = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]
"""(rows that triplets use, triplets as positions in these, which triplets are certain)"""


def _count(shard: Drawn) -> int:
    return len(shard[0])


def _read_by(shards: list[Drawn]) -> Reading:
    triplets, pinned = (np.concatenate(column) for column in zip(*shards, strict=True))
    rows, places = np.unique(triplets, return_inverse=True)
    return rows, places.reshape(-1, 3), pinned


def _make(X: Array, part: Reading, settings: ObjectiveSettings) -> TripletObjective:
    _, triplets, pinned = part
    weight = weight_function(settings.weight)
    if pinned.any() and weight.learnable:
        weight = PinnedWeights(weight, pinned)
    return TripletObjective(X, triplets, weight, settings.alpha, settings.weight_ridge)


def _with_mean(state: TripletObjective, mean: float | None) -> TripletObjective:
    """Return the part with the mean weight of all parts in its ridge; arrays are shared."""
    out = copy.copy(state)
    if out.weight_ridge is not None and mean is not None:
        out.weight_ridge = PartRidge(out.weight_ridge.ridge, mean)
    return out


def _after(state: TripletObjective, method: str, arguments: tuple[Any, ...]) -> TripletObjective:
    """Return the state after a call of one of its methods; the old state does not change."""
    out = copy.copy(state)
    if method == "accept_step":
        out.Y_t = np.empty_like(out.Y)  # written in place
    getattr(out, method)(*arguments)
    return out


def _weight_sum(state: TripletObjective, t: float | None) -> float:
    """Sum the weights before the ridge, at the point or at step t of the line."""
    if t is None:
        S = state.weight.logits(state.P, state.P, state.triplets)
    else:
        S = polyval(state.X.dtype.type(t), state.logit_line)
    return float(weights_from_logits(np.asarray(S), None)[0].sum(dtype=np.float64))


def _line_value(state: TripletObjective, t: float, mean: float | None) -> float:
    return _with_mean(state, mean).line_value(t)


def _gradients(state: TripletObjective, mean: float | None) -> tuple[Array | float | None, ...]:
    """Return (loss, grad L, grad theta at a fixed mean, grad mean, sum of dw w, sum of w)."""
    part = _with_mean(state, mean)
    loss, grad_L, grad_theta = part.gradients()
    weight = part.mean_weight * part.n_triplets
    if not isinstance(part.weight_ridge, PartRidge):
        return loss, grad_L, grad_theta, None, 0.0, weight
    return loss, grad_L, grad_theta, _by_mean(part), part.weight_ridge.pulls[-1], weight


def _by_mean(part: TripletObjective) -> Array:
    """Return the derivative by theta if dw were 1 for every triplet."""
    S = part.weight.logits(part.P, part.P, part.triplets)
    w, sigmoids, factor = weights_from_logits(S, part.weight_ridge)
    ds = logit_derivative(sigmoids, w, np.ones_like(w), factor, None)
    pulled = part.weight.pullback(part.P, part.triplets, ds)
    product = np.asarray(part.X.T @ pulled.astype(part.X.dtype), np.float64)
    return part.weight.from_matrix(product)


def _terms(state: TripletObjective, mean: float | None) -> Array:
    terms = _with_mean(state, mean).terms()
    return np.stack([terms.z, terms.m, terms.w, terms.p])
