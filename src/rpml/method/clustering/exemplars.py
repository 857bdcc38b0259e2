"""Exemplars: the row in the middle of each cluster, which is all a model keeps of its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.rows import Array, Labels, unit_rows
from rpml.runtime.threads import times

MAX_EXEMPLARS = 10_000  # the largest clusters: a model does not grow with the data beyond it
BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Exemplars:
    """The middle row of each cluster."""

    rows: NDArray[np.intp]
    """(k,) indices among the rows learned from."""
    labels: Labels
    """(k,) their labels; a class may have several modes."""
    sizes: NDArray[np.intp]
    """(k,) rows each stands for."""

    def subset(self, chosen: NDArray[np.bool_]) -> Exemplars:
        return Exemplars(self.rows[chosen], self.labels[chosen], self.sizes[chosen])


def find_exemplars(Y: Array, basins: Labels, labels: Labels) -> Exemplars:
    """The row nearest to the mean direction of each cluster, the largest clusters only.

    `labels` may have joined or cut the `basins`: each piece has a mode of its own.
    """
    piece, sizes = pieces_of(basins, labels)
    rows = middle_rows(Y, piece, piece_sums(Y, piece, len(sizes)))[1]
    return Exemplars(rows, labels[rows], sizes)


def pieces_of(basins: Labels, labels: Labels) -> tuple[Labels, NDArray[np.intp]]:
    """(piece of each row, -1 for a row in none of the largest pieces; rows of each piece)."""
    piece = labels
    if basins is not labels:
        key = basins.astype(np.int64) * (int(labels.max(initial=-1)) + 1) + labels
        piece = np.full(len(labels), -1, np.intp)
        piece[labels >= 0] = np.unique(key[labels >= 0], return_inverse=True)[1]
    sizes = np.bincount(piece[piece >= 0])
    retained = np.sort(np.argsort(-sizes, kind="stable")[:MAX_EXEMPLARS])
    retained = retained[sizes[retained] > 0]
    number = np.full(len(sizes) + 1, -1, np.intp)  # the last for rows in no piece
    number[retained] = np.arange(len(retained))
    return number[piece], sizes[retained]


def piece_sums(Y: Array, piece: Labels, count: int) -> Array:
    """(count, l): sum of the directions of (some of) the rows of each piece."""
    inside = piece >= 0
    sums = np.zeros((count, Y.shape[1]), Y.dtype)
    np.add.at(sums, piece[inside], unit_rows(Y[inside]))
    return sums


def middle_rows(Y: Array, piece: Labels, sums: Array) -> tuple[Array, NDArray[np.intp]]:
    """For each piece the similarity and the number of the row most like its sum; -1: no row."""
    inside = np.flatnonzero(piece >= 0)
    similarity = np.einsum("ij,ij->i", unit_rows(Y[inside]), sums[piece[inside]])
    similarity = similarity.round(5)  # of two equally similar rows the first, not by rounding
    order = np.lexsort((inside, -similarity, piece[inside]))
    first = order[np.diff(piece[inside][order], prepend=-1) != 0]
    best, rows = np.full(len(sums), -np.inf), np.full(len(sums), -1, np.intp)
    best[piece[inside[first]]] = similarity[first]
    rows[piece[inside[first]]] = inside[first]
    return best, rows


def nearest_exemplar(Y: Array, modes: Array) -> NDArray[np.intp]:
    """Which mode is nearest to each row by cosine."""
    modes = np.ascontiguousarray(unit_rows(modes).T)
    out = np.empty(len(Y), np.intp)
    for start in range(0, len(Y), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        out[part] = times(Y[part], modes).argmax(axis=1)
    return out
