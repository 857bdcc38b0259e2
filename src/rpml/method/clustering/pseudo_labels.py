"""The clustering function c(.) of the paper: pseudo-labels by AAS, an estimator, or the user.

Of each cluster a model keeps the most central row, its exemplar.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.base import clone

from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.ascent import usable_labels
from rpml.method.graph.heaps import nearest_rows
from rpml.method.graph.neighbors import Neighbors
from rpml.method.knowledge.constraints import Supervision, as_labels
from rpml.runtime.rows import Array, Indices, Labels, Mask, unit_rows

MAX_EXEMPLARS = 10_000  # of the largest clusters, so that models do not grow with the data
CLUSTERINGS: dict[str, Callable[[int], Any]] = {
    # the ascent as printed, since triplets need small pure clusters
    "aas": lambda k: AuthorityAscentShift(n_neighbors=k, metric="cosine", merge=None)
}
"""Clusterings by name, built for a number of neighbors."""


def as_clusterer(clustering: object, n_neighbors: int) -> Any:
    """Return the estimator with fit_predict, or the array, that the setting `clustering` means.

    AAS stands in for a clustering that a model file names but does not hold.
    """
    if isinstance(clustering, str):
        return CLUSTERINGS.get(clustering, CLUSTERINGS["aas"])(n_neighbors)
    return clustering


def is_array(clustering: object) -> bool:
    """Whether the setting `clustering` is an array of pseudo-labels."""
    return not (isinstance(clustering, str) or hasattr(clustering, "fit_predict"))


def pseudo_labels(Z: Array, clusterer: object, neighbors: Neighbors | None = None) -> Labels:
    """Return the labels of the preprocessed rows Z.

    A clusterer without fit_predict is an array of pseudo-labels. `neighbors` is the k-NN graph of
    Z for Authority Ascent Shift; it is searched if None.
    """
    if isinstance(clusterer, AuthorityAscentShift):
        ascent = clone(clusterer).ascent(Z if neighbors is None else neighbors)
        return usable_labels(ascent, clusterer.epsilon)
    labels: Any = clusterer if is_array(clusterer) else clone(clusterer, safe=False).fit_predict(Z)
    return as_labels(labels, len(Z), "the result of clustering")


def apply_supervision(labels: Labels, supervision: Supervision, Z: Array) -> Labels:
    """Change pseudo-labels to agree with supervision; classes are numbered before clusters.

    A cluster gets the class of its labeled rows; if these have several classes it is split, and
    each row follows its nearest labeled row. So clusters of one class are merged. Clusters that
    linked rows connect are merged as well, and rows of different classes are separated.
    """
    after = int(supervision.labels.max(initial=-1)) + 1
    joined = _join_linked(labels, supervision)
    out = np.where(joined >= 0, joined + after, -1)
    classes = np.where(supervision.is_classed(), supervision.labels, -1)
    for rows in rows_by_label(out):
        if classes[rows].max() >= 0:
            out[rows] = class_of_nearest(Z[rows], classes[rows])
    out = np.where(supervision.is_classed(), supervision.labels, out)
    for rows in rows_by_label(np.where(supervision.is_classed(), -1, supervision.labels)):
        out[rows] = out[rows[0]] if out[rows[0]] >= 0 else supervision.labels[rows[0]]
    for i, j in supervision.apart:
        if out[i] == out[j] >= 0:
            i, j = (j, i) if supervision.is_classed(j) else (i, j)
            out[_side_of(j, i, np.flatnonzero(out == out[i]), supervision, Z)] = out.max() + 1
    return out


def class_of_nearest(Z: Array, classes: Labels) -> Labels:
    """Return the class of the row with one of highest cosine, for each row of a cluster."""
    seeds = np.flatnonzero(classes >= 0)
    return np.asarray(classes[seeds[nearest_rows(Z, unit_rows(Z[seeds]))[1][:, 0]]])


def rows_by_label(labels: Labels) -> list[Labels]:
    """Return the rows of each label from 0."""
    order = np.argsort(labels, kind="stable")
    order = order[np.searchsorted(labels[order], 0) :]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(order) else []


def _join_linked(labels: Labels, supervision: Supervision) -> Labels:
    """Merge clusters that are connected by must-links between rows without a class."""
    first = np.arange(len(labels))
    for rows in rows_by_label(np.where(supervision.is_classed(), -1, supervision.labels)):
        first[rows] = rows[0]
    ends = np.stack([labels, labels[first]])[:, (labels >= 0) & (labels[first] >= 0)]
    size = int(labels.max(initial=-1)) + 1
    graph = sparse.csr_matrix((np.ones(ends.shape[1]), ends), (size, size))
    part = connected_components(graph, directed=False)[1]
    return np.append(part, -1).astype(np.intp)[labels]  # the last one for rows without a cluster


def _side_of(j: int, i: int, rows: Labels, supervision: Supervision, Z: Array) -> Labels:
    """Return the rows of a cluster that follow j when it is separated from i, with linked rows."""
    one, other = unit_rows(Z[[j, i]])
    nearer = Z[rows] @ (one - other) > 0
    for side, row in ((True, j), (False, i)):
        same = (supervision.labels[rows] >= 0) & (
            supervision.labels[rows] == supervision.labels[row]
        )
        nearer[same | (rows == row)] = side
    return np.asarray(rows[nearer & ~supervision.is_classed(rows)])


@dataclass(frozen=True)
class Exemplars:
    """The most central row of each cluster."""

    rows: Indices  # (k,) indices of training rows
    labels: Labels  # (k,) their labels; a class may have several exemplars
    sizes: Indices  # (k,) rows that each represents

    def subset(self, chosen: Mask) -> Exemplars:
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


def _largest_pieces(basins: Labels, labels: Labels) -> tuple[Labels, Indices]:
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
