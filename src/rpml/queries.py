"""Which rows to label next: those whose label would say most about the others.

A label spreads over the cluster of its row, so the middle of a large cluster without a label comes
first, the more so the less sure its triplets are. Once every cluster is asked for, the rows at the
edges follow: those whose own triplets are least sure.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rpml.modes import Modes

Array = NDArray[np.floating]
Labels = NDArray[np.intp]


class Fitted(Protocol):
    """What is asked of a model."""

    labels_: Labels
    known_: NDArray[np.bool_]
    modes_: Modes
    triplets_: NDArray[np.integer]
    triplet_probabilities_: Array


def rank_queries(n: int, model: Fitted) -> NDArray[np.intp]:
    """Up to n rows without a label, the most telling first."""
    labels, known, modes = model.labels_, model.known_, model.modes_
    doubt = row_doubt(len(labels), model.triplets_, model.triplet_probabilities_)
    open_ = modes.some(~np.isin(modes.labels, labels[known]))
    worth = open_.sizes * (0.5 + _mean_by_label(doubt, labels)[open_.labels])
    first = open_.rows[np.argsort(-worth, kind="stable")]
    rest = np.setdiff1d(np.flatnonzero(~known), first)
    rest = rest[np.argsort(-doubt[rest], kind="stable")]
    return np.asarray(np.concatenate([first, rest])[:n])


def _mean_by_label(values: Array, labels: Labels) -> Array:
    used = labels >= 0
    total = np.bincount(labels[used], values[used])
    return np.asarray(total / np.maximum(np.bincount(labels[used]), 1))


def row_doubt(n: int, triplets: NDArray[np.integer], probabilities: Array) -> Array:
    """Mean of 1 - p over the triplets a row takes part in as anchor or positive."""
    ends = triplets[:, :2].reshape(-1)
    total = np.bincount(ends, np.repeat(1.0 - probabilities, 2), n)
    return np.asarray(total / np.maximum(np.bincount(ends, minlength=n), 1))
