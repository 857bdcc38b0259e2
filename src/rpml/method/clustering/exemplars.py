"""Exemplars: the most central row of each cluster, the only rows that a model keeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.rows import Array, Labels, unit_rows

MAX_EXEMPLARS = 10_000  # of the largest clusters, so that models do not grow with the data


@dataclass(frozen=True)
class Exemplars:
    """The most central row of each cluster."""

    rows: NDArray[np.intp]
    """(k,) indices of training rows."""
    labels: Labels
    """(k,) their labels; a class may have several exemplars."""
    sizes: NDArray[np.intp]
    """(k,) rows that each represents."""

    def subset(self, chosen: NDArray[np.bool_]) -> Exemplars:
        return Exemplars(self.rows[chosen], self.labels[chosen], self.sizes[chosen])


def find_exemplars(Y: Array, basins: Labels, labels: Labels) -> Exemplars:
    """Return the row nearest to the mean direction of each of the largest clusters.

    `labels` may have merged or split the `basins`: each piece has its own exemplar.
    """
    piece, sizes = _largest_pieces(basins, labels)
    inside = np.flatnonzero(piece >= 0)
    piece, units = piece[inside], unit_rows(Y[inside])
    sums = np.zeros((len(sizes), Y.shape[1]), Y.dtype)
    np.add.at(sums, piece, units)
    similarity = np.einsum("ij,ij->i", units, sums[piece])
    similarity = similarity.round(5)  # ties go to the first row, whatever the rounding
    order = np.lexsort((inside, -similarity, piece))
    rows = inside[order[np.diff(piece[order], prepend=-1) != 0]]
    return Exemplars(rows, labels[rows], sizes)


def _largest_pieces(basins: Labels, labels: Labels) -> tuple[Labels, NDArray[np.intp]]:
    """Return the piece of each row, -1 if not among the largest, and the sizes of the pieces."""
    piece = labels
    if basins is not labels:
        key = basins.astype(np.int64) * (int(labels.max(initial=-1)) + 1) + labels
        piece = np.full(len(labels), -1, np.intp)
        piece[labels >= 0] = np.unique(key[labels >= 0], return_inverse=True)[1]
    sizes = np.bincount(piece[piece >= 0])
    retained = np.sort(np.argsort(-sizes, kind="stable")[:MAX_EXEMPLARS])
    retained = retained[sizes[retained] > 0]
    number = np.full(len(sizes) + 1, -1, np.intp)  # the last one for rows without a piece
    number[retained] = np.arange(len(retained))
    return number[piece], sizes[retained]
