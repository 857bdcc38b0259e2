"""The clustering function c(.) of the paper: rows -> pseudo-labels, by AAS or as given."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.base import clone

from rpml.method.clustering.aas import AASResult, AuthorityAscentShift, cluster_graph
from rpml.method.graph.affinity import Neighbors, affinity_graph, nearest_neighbors
from rpml.method.supervision.constraints import Supervision
from rpml.runtime.context import Arrays, Context, Progress

logger = logging.getLogger(__name__)
Labels = NDArray[np.intp]


def pseudo_labels(Z: NDArray[Any], clustering: Any, n_neighbors: int, context: Context) -> Labels:
    """Labels of the rows of Z.

    Parameters
    ----------
    Z : (n, p) array
        Preprocessed rows.
    clustering : "aas", estimator with fit_predict, or (n,) array
        An array is taken as the pseudo-labels themselves.
    n_neighbors : int
        Size of the k-NN graph for "aas".
    context : Context
    """
    if isinstance(clustering, str):
        clustering = AuthorityAscentShift(n_neighbors=n_neighbors, metric="cosine")
    if isinstance(clustering, AuthorityAscentShift) and clustering.metric != "precomputed":
        labels = context.stage("labels", lambda: {"labels": _aas(Z, clustering, context)})
        return labels["labels"]
    if hasattr(clustering, "fit_predict"):
        fitted = clone(clustering)
        return context.stage(
            "labels", lambda: {"labels": as_labels(fitted.fit_predict(Z), len(Z))}
        )["labels"]
    return as_labels(clustering, len(Z))


def as_labels(values: Any, n: int, name: str = "labels") -> Labels:
    """Any labels as integers from 0; negative numbers, None and NaN as -1 (no label)."""
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{name} must be one for each of the {n} rows, got shape {values.shape}.")
    if values.dtype.kind in "iu":
        missing = values < 0
    elif values.dtype.kind == "f":
        missing = ~np.isfinite(values) | (values < 0)
    else:
        missing = np.array([v is None or v != v or v in (-1, "-1") for v in values.tolist()], bool)
    labels = np.full(n, -1, np.intp)
    if not missing.all():
        present = values[~missing]
        present = present if values.dtype.kind in "iuf" else present.astype(str)
        labels[~missing] = np.unique(present, return_inverse=True)[1]
    return labels


def apply_supervision(labels: Labels, known: Supervision, Z: NDArray[Any]) -> Labels:
    """Pseudo-labels made to agree with what is known; classes come first, clusters after them.

    A cluster takes the class of its labelled rows; if these are of several classes it is cut,
    each row going with its nearest labelled row. So clusters of one class become one. Clusters
    that linked rows connect become one as well, and rows known to be apart are parted.
    """
    after = int(known.labels.max(initial=-1)) + 1
    joined = _join_linked(labels, known)
    out = np.where(joined >= 0, joined + after, -1)
    classes = np.where(known.is_classed(), known.labels, -1)
    for rows in rows_by_label(out):
        if classes[rows].max() >= 0:
            out[rows] = class_of_nearest(Z[rows], classes[rows])
    out = np.where(known.is_classed(), known.labels, out)
    for rows in rows_by_label(np.where(known.is_classed(), -1, known.labels)):
        out[rows] = out[rows[0]] if out[rows[0]] >= 0 else known.labels[rows[0]]
    for i, j in known.apart:
        if out[i] == out[j] >= 0:
            i, j = (j, i) if known.is_classed(j) else (i, j)
            out[_side_of(j, i, np.flatnonzero(out == out[i]), known, Z)] = out.max() + 1
    return out


def class_of_nearest(Z: NDArray[Any], classes: Labels) -> Labels:
    """The class of the nearest row that has one, for each row of a cluster."""
    seeds = np.flatnonzero(classes >= 0)
    return np.asarray(classes[seeds[(Z @ Z[seeds].T).argmax(axis=1)]])


def rows_by_label(labels: Labels) -> list[Labels]:
    """The rows of each label from 0."""
    order = np.argsort(labels, kind="stable")
    order = order[np.searchsorted(labels[order], 0) :]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(order) else []


def _join_linked(labels: Labels, known: Supervision) -> Labels:
    """One label for clusters that must-links between rows without a class connect."""
    first = np.arange(len(labels))
    for rows in rows_by_label(np.where(known.is_classed(), -1, known.labels)):
        first[rows] = rows[0]
    ends = np.stack([labels, labels[first]])[:, (labels >= 0) & (labels[first] >= 0)]
    size = int(labels.max(initial=-1)) + 1
    graph = sparse.csr_matrix((np.ones(ends.shape[1]), ends), (size, size))
    part: Labels = connected_components(graph, directed=False)[1].astype(np.intp)
    return np.where(labels >= 0, part[labels], -1)


def _side_of(j: int, i: int, rows: Labels, known: Supervision, Z: NDArray[Any]) -> Labels:
    """Rows of a cluster that go with j when it is parted from i; linked rows stay together."""
    nearer = Z[rows] @ (Z[j] - Z[i]) > 0
    for side, row in ((True, j), (False, i)):
        same = (known.labels[rows] >= 0) & (known.labels[rows] == known.labels[row])
        nearer[same | (rows == row)] = side
    return np.asarray(rows[nearer & ~known.is_classed(rows)])


def _aas(Z: NDArray[Any], aas: AuthorityAscentShift, context: Context) -> Labels:
    neighbors = find_neighbors(Z, aas.n_neighbors, aas.metric, context)
    graph = affinity_graph(
        neighbors, affinity=aas.affinity, bandwidth=aas.bandwidth, symmetric=aas.symmetric
    )
    result = cluster_graph(graph, aas.gamma, aas.epsilon, aas.merge)
    if not _usable(result.labels):
        result = _retune(graph, result, aas)
    return result.labels


def find_neighbors(Z: NDArray[Any], k: int, metric: str, context: Context) -> Neighbors:
    """The k nearest neighbours of every row, searched once in a fit."""

    def advance(share: float) -> None:
        context.report(Progress("neighbors", round(share * len(Z)), len(Z)))

    def compute() -> Arrays:
        found = nearest_neighbors(
            Z, k, metric=metric, memory_limit=context.blocks, progress=advance
        )
        logger.info("%d neighbours by %s, recall %.3f", k, found.method, found.recall)
        return {"indices": found.indices, "distances": found.distances}

    arrays = context.stage("neighbors" if metric == "cosine" else f"neighbors-{metric}", compute)
    return Neighbors(arrays["indices"], arrays["distances"], metric=metric)


def _usable(labels: Labels) -> bool:
    """Triplets need two labels, one of them with two rows."""
    sizes = np.bincount(labels[labels >= 0]) if (labels >= 0).any() else np.zeros(1, np.intp)
    return bool((sizes > 0).sum() > 1 and sizes.max() > 1)


def _retune(graph: sparse.csr_matrix, result: AASResult, aas: AuthorityAscentShift) -> AASResult:
    """Raise epsilon when all rows fell into one cluster, lower it when every row is its own."""
    one = len(result.modes) == 1
    what = "one single cluster" if one else "every row in a cluster of its own"
    for epsilon in _other_thresholds(graph, one):
        retuned = cluster_graph(graph, aas.gamma, epsilon, aas.merge)
        if _usable(retuned.labels):
            warnings.warn(
                f"AAS with epsilon={result.epsilon:.4g} put {what}; epsilon was "
                f"{'raised' if one else 'lowered'} to {epsilon:.4g}, which gives "
                f"{len(retuned.modes)} clusters.",
                UserWarning,
                stacklevel=2,
            )
            return retuned
    warnings.warn(
        f"AAS put {what} and no other epsilon changes that; the rows have no cluster structure "
        "to learn from.",
        UserWarning,
        stacklevel=2,
    )
    return result


def _other_thresholds(graph: sparse.csr_matrix, raise_it: bool) -> Iterator[float]:
    """Quantiles of the affinities, from the median outwards."""
    if graph.nnz == 0:
        return
    quantiles = (0.5, 0.75, 0.9, 0.95, 0.98) if raise_it else (0.75, 0.5, 0.25, 0.1, 0.02)
    yield from (float(q) for q in np.quantile(graph.data, quantiles))
