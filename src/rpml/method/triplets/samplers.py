"""Samplers of negatives, one class each, and their table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph.neighbors import Neighbors, pair_distances
from rpml.method.triplets.members import same_group
from rpml.runtime.rows import Array, slices

_CHUNK = 65536  # triplets processed together


@dataclass(frozen=True)
class Draw:
    """Anchors with uniformly drawn partners, and the labels and groups of all rows."""

    anchors: NDArray[np.intp]
    positives: NDArray[np.intp]
    negatives: NDArray[np.intp]
    """-1 where there is none."""
    labels: NDArray[np.intp]
    groups: NDArray[np.integer] | None


class Sampler(Protocol):
    """Selects the negatives of a draw; without candidates the uniform one is kept."""

    def negatives(self, draw: Draw, rng: np.random.Generator) -> NDArray[np.intp]: ...


class Uniform:
    """Any row of another label."""

    def negatives(self, draw: Draw, rng: np.random.Generator) -> NDArray[np.intp]:
        return draw.negatives


@dataclass(frozen=True)
class Hard:
    """The anchor's nearest neighbors of another label, in order."""

    neighbors: Neighbors
    """Neighbors of the labeled rows."""

    def negatives(self, draw: Draw, rng: np.random.Generator) -> NDArray[np.intp]:
        turn = np.arange(draw.anchors.size) - np.searchsorted(draw.anchors, draw.anchors)

        def choose(part: slice) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
            allowed = _near_negatives(draw.anchors[part], draw.labels, self.neighbors, draw.groups)
            return allowed, turn[part] % np.maximum(allowed.sum(axis=1), 1)

        return _pick(draw, self.neighbors, choose)


@dataclass(frozen=True)
class SemiHard:
    """A neighbor of another label that is farther than the positive by less than the margin."""

    neighbors: Neighbors
    X: Array
    """The rows of the neighbors."""
    margin: float = 0.5
    """In units of the neighbors' distances."""

    def negatives(self, draw: Draw, rng: np.random.Generator) -> NDArray[np.intp]:
        luck = rng.random(draw.anchors.size)

        def choose(part: slice) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
            anchors = draw.anchors[part]
            allowed = _near_negatives(anchors, draw.labels, self.neighbors, draw.groups)
            allowed &= _within_margin(
                anchors, draw.positives[part], self.neighbors, self.X, self.margin
            )
            return allowed, (luck[part] * allowed.sum(axis=1)).astype(np.intp)

        return _pick(draw, self.neighbors, choose)


# name -> sampler from the k-NN of the rows and the rows; only "uniform" needs no neighbors
SAMPLERS: dict[str, Callable[[Neighbors, Array], Sampler]] = {
    "uniform": lambda neighbors, X: Uniform(),
    "semi-hard": SemiHard,
    "hard": lambda neighbors, X: Hard(neighbors),
}


def _pick(
    draw: Draw,
    neighbors: Neighbors,
    choose: Callable[[slice], tuple[NDArray[np.bool_], NDArray[np.intp]]],
) -> NDArray[np.intp]:
    """Return the selected neighbor of each anchor; `choose` returns the allowed and the chosen."""
    out = draw.negatives.copy()
    for part in slices(draw.anchors.size, _CHUNK):
        allowed, nth = choose(part)
        picked = neighbors.indices[draw.anchors[part], _nth_true(allowed, nth)]
        out[part] = np.where(allowed.any(axis=1), picked, out[part])
    return out


def _near_negatives(
    anchors: NDArray[np.intp],
    labels: NDArray[np.intp],
    neighbors: Neighbors,
    groups: NDArray[np.integer] | None,
) -> NDArray[np.bool_]:
    """Return which neighbors of the anchor may be its negative, (T, k)."""
    near = neighbors.indices[anchors]
    allowed = (labels[near] >= 0) & (labels[near] != labels[anchors, None])
    if groups is not None:
        allowed &= ~same_group(groups, anchors[:, None], near)
    return np.asarray(allowed)


def _within_margin(
    anchors: NDArray[np.intp],
    positives: NDArray[np.intp],
    neighbors: Neighbors,
    X: Array,
    margin: float,
) -> NDArray[np.bool_]:
    to_positive = pair_distances(X, anchors, positives, metric=neighbors.metric)[:, None]
    to_negative = neighbors.distances[anchors]
    return np.asarray((to_negative > to_positive) & (to_negative < to_positive + margin))


def _nth_true(allowed: NDArray[np.bool_], nth: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the column of the nth True of each row (counted from 0)."""
    position = np.cumsum(allowed, axis=1, dtype=np.int32)
    return np.asarray(np.argmax(position > nth[:, None], axis=1))
