"""Modes: the row in the middle of each cluster, which is all a model keeps of its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml._threads import times
from rpml.preprocess import unit_rows

Array = NDArray[np.floating]
Labels = NDArray[np.intp]

MAX_MODES = 10_000  # the largest clusters: a model does not grow with the data beyond it
BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Modes:
    """The middle row of each cluster."""

    rows: NDArray[np.intp]
    """(k,) indices among the rows learned from."""
    labels: Labels
    """(k,) their labels; a class may have several modes."""
    sizes: NDArray[np.intp]
    """(k,) rows each stands for."""

    def some(self, chosen: NDArray[np.bool_]) -> Modes:
        return Modes(self.rows[chosen], self.labels[chosen], self.sizes[chosen])


def find_modes(Y: Array, basins: Labels, labels: Labels) -> Modes:
    """The row nearest to the mean direction of each cluster, the largest clusters only.

    `labels` may have joined or cut the `basins`: each piece has a mode of its own.
    """
    used = np.flatnonzero(labels >= 0)
    pieces = np.stack([basins[used], labels[used]])
    piece = np.unique(pieces, axis=1, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(piece)
    rows = unit_rows(Y[used])
    means = np.zeros((len(sizes), Y.shape[1]), rows.dtype)
    np.add.at(means, piece, rows)
    middle = np.einsum("ij,ij->i", rows, means[piece])
    order = np.lexsort((used, -middle, piece))
    first = order[np.diff(piece[order], prepend=-1) != 0]
    kept = np.sort(np.argsort(-sizes, kind="stable")[:MAX_MODES])
    chosen = used[first[kept]]
    return Modes(chosen, labels[chosen], sizes[kept])


def nearest_mode(Y: Array, modes: Array) -> NDArray[np.intp]:
    """Which mode is nearest to each row by cosine."""
    modes = np.ascontiguousarray(unit_rows(modes).T)
    out = np.empty(len(Y), np.intp)
    for start in range(0, len(Y), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        out[part] = times(Y[part], modes).argmax(axis=1)
    return out
