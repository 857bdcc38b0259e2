"""Authority Ascent Shift on a partitioned graph; the result is that of the local ascent.

Edges stay where their row is. What crosses partitions are the edges that the other end found (so
that both ends weigh them alike) and vectors of one number a row: bandwidths, authorities, parents.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.knn import Graph
from rpml.method.clustering.aas import (
    AuthorityAscentShift,
    ascend_scaled,
    follow,
    joined_ends,
    low_threshold,
    scaled_authority,
    strongest,
    threshold,
)
from rpml.method.clustering.saddle import add_basins, basins_of, join_passes
from rpml.method.graph.affinity import bandwidths, cosine_weights, gaussian_weights, own_scale
from rpml.method.graph.neighbors import Neighbors
from rpml.runtime.context import Context

logger = logging.getLogger(__name__)
Labels = NDArray[np.intp]
_SAMPLE = 200_000  # affinities of which quantiles are taken when epsilon has to be found anew


@dataclass(frozen=True)
class Ascent:
    """What the ascent needs of the graph, on the workers, and the threshold."""

    weights: list[Task]
    omega: Task
    scaled: Task
    edges: NDArray[np.int64]
    gamma: float
    epsilon: float
    joined: Task | None = None
    """The basin of each node once shallow saddles are passed, for merge="saddle"."""


def cluster_rows(
    cluster: Cluster, graph: Graph, aas: AuthorityAscentShift, context: Context
) -> Labels:
    """Labels of all rows; the only thing that reaches the client."""
    check_supported(aas)
    ascent = _prepare(cluster, graph, aas, context)
    labels = _climb(cluster, ascent, ascent.epsilon)
    return labels if _usable(labels) else _retune(cluster, ascent, labels)


def check_supported(aas: AuthorityAscentShift) -> None:
    """Refuse the settings that need the whole graph at once."""
    if not aas.symmetric:
        raise ValueError(
            "AuthorityAscentShift(symmetric=False) is not available on Dask, where the authority "
            "is that of a symmetric graph: use symmetric=True."
        )
    if aas.metric == "precomputed":
        raise ValueError("a precomputed graph is not available on Dask: give features.")


def _prepare(cluster: Cluster, graph: Graph, aas: AuthorityAscentShift, context: Context) -> Ascent:
    submit, edges = cluster.submit, graph.edges
    scale = None
    if aas.affinity == "gaussian":
        near = submit(_joined, [submit(own_scale, part) for part in graph.parts])
        scale = submit(bandwidths, near, aas.bandwidth)
    n, starts = int(edges[-1]), edges[:-1].tolist()
    found = [submit(_found, part, scale, a, n) for part, a in zip(graph.parts, starts, strict=True)]
    weights = []
    for i, own in enumerate(found):
        low, high = int(edges[i]), int(edges[i + 1])
        others = [
            submit(_returned, other, (a, low, high)) for other, a in zip(found, starts, strict=True)
        ]
        weights.append(submit(_both_ends, own, others))
    cluster.wait(weights, context, "graph")
    omega = submit(_authority, [submit(_degrees, part) for part in weights])
    best = submit(_joined, [submit(strongest, part) for part in weights])
    epsilon = aas.epsilon
    if isinstance(epsilon, str):
        epsilon = cluster.value(submit(threshold, best))
    scaled = submit(scaled_authority, omega)
    ascent = Ascent(weights, omega, scaled, edges, float(aas.gamma), float(epsilon))
    return ascent if aas.merge is None else replace(ascent, joined=_saddles(cluster, ascent, best))


def _saddles(cluster: Cluster, ascent: Ascent, best: Task) -> Task:
    """Join basins over shallow saddles: sums over the edges where they are, the rest in one task.

    Compare `rpml.method.clustering.aas._join_modes`.
    """
    low = float(cluster.value(cluster.submit(low_threshold, best)))
    basins = cluster.submit(_numbered, _ends(cluster, ascent, low))
    passes = [
        cluster.submit(basins_of, part, ascent.omega, basins, low, int(start))
        for part, start in zip(ascent.weights, ascent.edges, strict=False)
    ]
    return cluster.submit(join_passes, cluster.total(passes, add_basins), basins)


def _ends(cluster: Cluster, ascent: Ascent, epsilon: float) -> Task:
    """Parents where the edges are, modes by pointer jumping on the vector of all parents."""
    parents = [
        cluster.submit(ascend_scaled, part, ascent.scaled, ascent.gamma, epsilon, int(start))
        for part, start in zip(ascent.weights, ascent.edges, strict=False)
    ]
    return cluster.submit(_followed, parents)


def _climb(cluster: Cluster, ascent: Ascent, epsilon: float) -> Labels:
    """Labels for a threshold."""
    ends = _ends(cluster, ascent, epsilon)
    if ascent.joined is not None:
        ends = cluster.submit(joined_ends, ends, ascent.omega, ascent.joined)
    labels: Labels = cluster.value(cluster.submit(_narrow, cluster.submit(_numbered, ends)))
    return labels.astype(np.intp)


def _retune(cluster: Cluster, ascent: Ascent, labels: Labels) -> Labels:
    """Raise epsilon when all rows fell into one cluster, lower it when every row is its own."""
    one = labels.max() == 0
    what = "one single cluster" if one else "every row in a cluster of its own"
    each = max(1, _SAMPLE // len(ascent.weights))
    some = [cluster.submit(_some_weights, part, each) for part in ascent.weights]
    quantiles = (0.5, 0.75, 0.9, 0.95, 0.98) if one else (0.75, 0.5, 0.25, 0.1, 0.02)
    known = cluster.value(cluster.submit(_joined, some))
    for epsilon in np.quantile(known, quantiles) if known.size else ():
        retuned = _climb(cluster, ascent, float(epsilon))
        if _usable(retuned):
            warnings.warn(
                f"AAS with epsilon={ascent.epsilon:.4g} put {what}; epsilon was "
                f"{'raised' if one else 'lowered'} to {epsilon:.4g}, which gives "
                f"{retuned.max() + 1} clusters.",
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
    return labels


def _usable(labels: Labels) -> bool:
    sizes = np.bincount(labels)
    return bool(len(sizes) > 1 and sizes.max() > 1)


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts)


def _found(lists: Neighbors, scale: Any, start: int, n: int) -> sparse.csr_matrix:
    """The edges from the rows of a partition to the neighbours they found."""
    size, k = lists.indices.shape
    if scale is None:
        weights = cosine_weights(lists)
    else:
        weights = gaussian_weights(lists, scale[start : start + size], scale)
    columns = lists.indices.ravel().copy()
    indptr = np.arange(0, size * k + 1, k)
    graph = sparse.csr_matrix((weights.ravel(), columns, indptr), shape=(size, n))
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph


def _returned(graph: sparse.csr_matrix, span: tuple[int, int, int]) -> sparse.csr_matrix:
    """The edges that end in the rows low..high, turned around."""
    start, low, high = span
    edges = graph.tocoo()
    mine = (edges.col >= low) & (edges.col < high)
    ends = (edges.col[mine] - low, edges.row[mine].astype(np.int64) + start)
    return sparse.coo_matrix((edges.data[mine], ends), shape=(high - low, graph.shape[1])).tocsr()


def _both_ends(own: sparse.csr_matrix, returned: list[sparse.csr_matrix]) -> sparse.csr_matrix:
    """Keep an edge when either end found the other, as `affinity_graph` does."""
    back = returned[0]
    for more in returned[1:]:
        back = back + more  # they share no edge: each comes from other rows
    back.sort_indices()
    return own.maximum(back)


def _degrees(graph: sparse.csr_matrix) -> NDArray[np.float64]:
    return np.asarray(graph.sum(axis=1, dtype=np.float64)).ravel()


def _authority(degrees: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Stationary distribution of the walk: the degrees, scaled to sum 1."""
    degree = np.concatenate(degrees)
    if not degree.any():
        return np.full(degree.size, 1.0 / degree.size)
    return np.asarray(degree / degree.sum())


def _followed(parents: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    return follow(np.concatenate(parents))


def _numbered(ends: NDArray[np.intp]) -> NDArray[np.intp]:
    """Clusters numbered in the order of their modes."""
    return np.unique(ends, return_inverse=True)[1].astype(np.intp)


def _narrow(labels: NDArray[np.intp]) -> NDArray[Any]:
    """In half the space, for the way to the client."""
    return labels.astype(np.int32) if labels.size < 2**31 else labels


def _some_weights(graph: sparse.csr_matrix, count: int) -> NDArray[np.float32]:
    return np.asarray(graph.data[:: max(1, graph.nnz // count)])
