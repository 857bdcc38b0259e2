"""Authority Ascent Shift on a partitioned graph, with the result of the local ascent.

Edges stay in the partition of their row. Only edges that the other end found (so that both ends
give them the same weight) and vectors of one number per row cross partitions: bandwidths,
authorities and parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.knn import Graph
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.ascent import (
    ascend_scaled,
    follow,
    scaled_authority,
    strongest,
    threshold,
)
from rpml.method.graph.affinity import bandwidths, cosine_weights, gaussian_weights, own_scale
from rpml.method.graph.neighbors import Neighbors
from rpml.runtime.context import Context
from rpml.runtime.rows import Labels

_SAMPLE = 200_000  # affinities whose quantiles are taken if epsilon has to be chosen again


@dataclass(frozen=True)
class DaskAscent:
    """`rpml.method.clustering.ascent.Ascent` on a partitioned graph."""

    cluster: Cluster
    weights: list[Task]
    scaled: Task
    strongest: Task
    edges: NDArray[np.int64]
    gamma: float

    @classmethod
    def prepare(
        cls, cluster: Cluster, graph: Graph, aas: AuthorityAscentShift, context: Context
    ) -> DaskAscent:
        """Compute edge weights in place, and the authority of all nodes."""
        check_supported(aas)
        weights = _weights(cluster, graph, aas.bandwidth if aas.affinity == "gaussian" else None)
        scaled = cluster.submit(_scaled_authority, cluster.each(_degrees, weights))
        best = cluster.submit(_joined, cluster.each(strongest, weights))
        cluster.wait(weights, context, "graph")
        return cls(cluster, weights, scaled, best, graph.edges, float(aas.gamma))

    def auto_epsilon(self) -> float:
        return float(self.cluster.value(self.cluster.submit(threshold, self.strongest)))

    def affinity_quantiles(self, q: tuple[float, ...]) -> NDArray[np.float64]:
        """Return quantiles of a sample of the affinities."""
        each = max(1, _SAMPLE // len(self.weights))
        sampled = self.cluster.each(_sampled_weights, self.weights, each)
        affinities = self.cluster.value(self.cluster.submit(_joined, sampled))
        return np.asarray(np.quantile(affinities, q)) if affinities.size else np.empty(0)

    def climb(self, epsilon: float) -> Labels:
        """Find parents in each partition, then modes by pointer jumping on all parents."""
        parents = [
            self.cluster.submit(ascend_scaled, part, self.scaled, self.gamma, epsilon, int(start))
            for part, start in zip(self.weights, self.edges, strict=False)
        ]
        return np.asarray(self.cluster.value(self.cluster.submit(_labels, parents)), np.intp)


def check_supported(aas: AuthorityAscentShift) -> None:
    """Raise ValueError for settings that need the whole graph at once."""
    aas.check_parameters()
    if not aas.symmetric:
        raise ValueError(
            "AuthorityAscentShift(symmetric=False) is not available on Dask, where the authority "
            "is that of a symmetric graph: use symmetric=True."
        )
    if aas.merge is not None:
        raise ValueError(
            f"AuthorityAscentShift(merge={aas.merge!r}) is not available on Dask, where edges stay "
            "on their workers: use merge=None."
        )
    if aas.metric == "precomputed":
        raise ValueError("a precomputed graph is not available on Dask: give features.")


def _weights(cluster: Cluster, graph: Graph, bandwidth: str | float | None) -> list[Task]:
    """Return the symmetric affinities of every partition; cosine ones if bandwidth is None."""
    submit, edges = cluster.submit, graph.edges
    scale = None
    if bandwidth is not None:
        near = submit(_joined, cluster.each(own_scale, graph.parts))
        scale = submit(bandwidths, near, bandwidth)
    n, starts = int(edges[-1]), edges[:-1].tolist()
    forward = [
        submit(_forward_weights, part, scale, a, n)
        for part, a in zip(graph.parts, starts, strict=True)
    ]
    weights = []
    for i, own in enumerate(forward):
        low, high = int(edges[i]), int(edges[i + 1])
        others = [
            submit(_returned, other, a, low, high) for other, a in zip(forward, starts, strict=True)
        ]
        weights.append(submit(_both_ends, own, others))
    return weights


def _joined(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
    return np.concatenate(parts)


def _forward_weights(
    lists: Neighbors, scale: NDArray[np.float64] | None, start: int, n: int
) -> sparse.csr_matrix:
    """Return the edges from the rows of a partition to their neighbors."""
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


def _returned(graph: sparse.csr_matrix, start: int, low: int, high: int) -> sparse.csr_matrix:
    """Return the reversed edges that end in the rows low..high."""
    edges = graph.tocoo()
    mine = (edges.col >= low) & (edges.col < high)
    ends = (edges.col[mine] - low, edges.row[mine].astype(np.int64) + start)
    return sparse.coo_matrix((edges.data[mine], ends), shape=(high - low, graph.shape[1])).tocsr()


def _both_ends(own: sparse.csr_matrix, returned: list[sparse.csr_matrix]) -> sparse.csr_matrix:
    """Keep an edge if either end found the other, like `affinity_graph`."""
    back = returned[0]
    for more in returned[1:]:
        back = back + more  # they share no edge, since they come from different rows
    back.sort_indices()
    return own.maximum(back)


def _degrees(graph: sparse.csr_matrix) -> NDArray[np.float64]:
    return np.asarray(graph.sum(axis=1, dtype=np.float64)).ravel()


def _scaled_authority(degrees: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Scale the stationary distribution of the walk: degrees divided by their sum."""
    degree = np.concatenate(degrees)
    if not degree.any():
        return scaled_authority(np.full(degree.size, 1.0 / degree.size))
    return scaled_authority(np.asarray(degree / degree.sum()))


def _labels(parents: Sequence[NDArray[np.intp]]) -> NDArray[np.generic]:
    """Number the clusters in the order of their modes; int32 halves what is sent to the client."""
    labels = np.unique(follow(np.concatenate(parents)), return_inverse=True)[1]
    return labels.astype(np.int32) if labels.size < 2**31 else labels


def _sampled_weights(graph: sparse.csr_matrix, count: int) -> NDArray[np.float32]:
    return np.asarray(graph.data[:: max(1, graph.nnz // count)])
