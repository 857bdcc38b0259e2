"""Which rows to label next: those that stand for many others and are far from all asked before.

Candidates are the modes, one for each cluster, whose positions the model knows. A mode scores the
root of the density around it (likeness^4 to all modes, each counted as the rows it stands for)
times its distance to the nearest row that has a label or was suggested before it; the best one is
taken, the distances follow, and so on. So classes are covered early, and rows of one class are
asked for where they lie far apart, which is what its scatter is learned from. Once every cluster
is asked for, the rows at the edges follow: those whose own triplets are least sure.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rpml._threads import single_blas_thread, times
from rpml.modes import Modes
from rpml.preprocess import unit_rows

Array = NDArray[np.floating]
Labels = NDArray[np.intp]
Mask = NDArray[np.bool_]
BLOCK_ROWS = 1024


class Fitted(Protocol):
    """What is asked of a model."""

    labels_: Labels
    known_: Mask
    modes_: Modes
    mode_vectors_: Array
    triplets_: NDArray[np.integer]
    triplet_probabilities_: Array

    def transform(self, X: Any) -> Array: ...


def rank_queries(n: int, model: Fitted) -> NDArray[np.intp]:
    """Up to n rows without a label, the most telling first."""
    labels, known, modes = model.labels_, model.known_, model.modes_
    asked = np.isin(modes.labels, labels[known])
    places = unit_rows(model.transform(model.mode_vectors_))
    first = modes.rows[spread_out(places, modes.sizes, asked, n)]
    doubt = row_doubt(len(labels), model.triplets_, model.triplet_probabilities_)
    rest = np.setdiff1d(np.flatnonzero(~known), first)
    rest = rest[np.argsort(-doubt[rest], kind="stable")]
    return np.asarray(np.concatenate([first, rest])[:n])


@single_blas_thread()
def spread_out(places: Array, sizes: NDArray[np.integer], asked: Mask, n: int) -> NDArray[np.intp]:
    """Up to n of the places not asked for: dense ones, far from those asked for and each other."""
    weight, likeness = np.sqrt(density(places, sizes)), np.full(len(places), -1.0)
    for place in np.flatnonzero(asked):
        likeness = np.maximum(likeness, places @ places[place])
    free = ~asked
    chosen = np.empty(min(n, int(free.sum())), np.intp)
    for i in range(len(chosen)):
        best = np.where(free, weight * np.maximum(1.0 - likeness, 0.0), -1.0).argmax()
        chosen[i], free[best] = best, False
        likeness = np.maximum(likeness, places @ places[best])
    return chosen


def density(places: Array, sizes: NDArray[np.integer]) -> Array:
    """How many rows lie around each place, near ones counting most."""
    columns, counts = np.ascontiguousarray(places.T), sizes.astype(places.dtype)
    blocks = np.array_split(places, 1 + len(places) // BLOCK_ROWS)
    return np.concatenate([np.maximum(times(block, columns), 0) ** 4 @ counts for block in blocks])


def row_doubt(n: int, triplets: NDArray[np.integer], probabilities: Array) -> Array:
    """Mean of 1 - p over the triplets a row takes part in as anchor or positive."""
    ends = triplets[:, :2].reshape(-1)
    total = np.bincount(ends, np.repeat(1.0 - probabilities, 2), n)
    return np.asarray(total / np.maximum(np.bincount(ends, minlength=n), 1))
