"""From basins to clusters: join small basins, build the merge tree, cut and refine it.

An addition to the paper, whose ascent stops at every local maximum of the authority.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from rpml.method.clustering.linkage import UNCONNECTED, MergeTree, average_linkage
from rpml.runtime.compiled import compiled
from rpml.runtime.rows import Labels
from rpml.runtime.wording import counted

MERGE_NEIGHBORS = 15  # nearest neighbors over which affinities between basins are averaged
_PASSES = 3  # over the rows on the borders of clusters


@dataclass(frozen=True)
class Hierarchy:
    """Clusters and the tree that they were cut from."""

    labels: Labels
    """(n,) cluster of each row."""
    leaves: Labels
    """(n,) leaf of the tree of each row."""
    tree: MergeTree


@dataclass(frozen=True)
class BasinMerging:
    """Clusters as the cut of a tree over the basins of a symmetric affinity graph.

    Basins of fewer than `min_cluster_size` rows join the neighbor with the largest affinity.
    Average linkage merges the others into a tree, which is cut into `n_clusters`, or by
    `persistent_cut`. Finally, rows on a border move to the cluster with the largest affinity.
    """

    graph: sparse.csr_matrix
    n_clusters: int | None = None
    min_cluster_size: int = 5

    def merge(self, basins: Labels) -> Hierarchy:
        """Merge the basins, numbered from 0."""
        leaves = join_small(self.graph, basins, self.min_cluster_size)
        shrunk = shrink(self.graph, leaves)
        tree = average_linkage(shrunk, np.bincount(leaves))
        n_clusters = self.n_clusters or persistent_cut(tree, shrunk)
        if n_clusters > tree.n_leaves:
            warnings.warn(
                f"n_clusters={n_clusters}, but the ascent finds only "
                f"{counted(tree.n_leaves, 'basin')} of {counted(self.min_cluster_size, 'row')} or "
                "more, which are the clusters: lower min_cluster_size for more.",
                UserWarning,
                stacklevel=5,
            )
        labels = tree.cut(min(n_clusters, tree.n_leaves))[leaves]
        return Hierarchy(refine(self.graph, labels, self.min_cluster_size), leaves, tree)


def shrink(graph: sparse.csr_matrix, labels: Labels) -> sparse.csr_matrix:
    """Merge the nodes of each label; affinities are summed."""
    ends = np.repeat(labels, np.diff(graph.indptr)), labels[graph.indices]
    size = int(labels.max(initial=-1)) + 1
    data = graph.data.astype(np.float64)
    return sparse.coo_matrix((data, ends), shape=(size, size)).tocsr()


def join_small(graph: sparse.csr_matrix, labels: Labels, least: int) -> Labels:
    """Join nodes of fewer than `least` rows with the neighbor of largest affinity.

    A node without neighbors is kept.
    """
    while True:
        sizes = np.bincount(labels)
        shrunk = shrink(graph, labels).tocoo()
        small = (shrunk.row != shrunk.col) & (sizes[shrunk.row] < least)
        if not small.any():
            return labels
        node, other, weight = shrunk.row[small], shrunk.col[small], shrunk.data[small]
        order = np.lexsort((other, -weight, node))
        first = order[np.diff(node[order], prepend=-1) > 0]
        hooks = sparse.coo_matrix((np.ones(len(first)), (node[first], other[first])), shrunk.shape)
        labels = connected_components(hooks, directed=False)[1].astype(np.intp)[labels]


def persistent_cut(tree: MergeTree, shrunk: sparse.csr_matrix) -> int:
    """Return the number of clusters, at least 2, that are informative and persist longest.

    For each cut, I is the information in nats that its clusters give about a step of the random
    walk (does it stay in its cluster?), relative to a jump to any row by authority; L is the mean
    over the rows of how long their cluster persists, from its last merge to its next in the
    log-distance of the tree. The cut maximizes I L^(3/2). I alone splits low-dimensional data into
    ever finer pieces, L alone prefers few clusters.
    """
    n = tree.n_leaves
    if n < 3:
        return n
    a, b = tree.children.T
    degree = np.asarray(shrunk.sum(axis=1)).ravel()
    total = max(float(degree.sum()), np.finfo(float).tiny)
    share = tree.totals(degree / total)
    pairs = tree.counts[a].astype(float) * tree.counts[b]
    stay = _after_merges(shrunk.diagonal() / total, 2 * tree.affinities * pairs / total)
    chance = _after_merges(share[:n] ** 2, 2 * share[a] * share[b])
    lifetime = tree.counts * _lifetimes(tree)
    lifetime = _after_merges(lifetime[:n], lifetime[n:] - lifetime[a] - lifetime[b])
    persistence = np.maximum(lifetime / tree.counts[-1], 0.0)
    score = _divergence(stay, chance) * persistence**1.5
    return n - int(score[: n - 1].argmax())


def _after_merges(leaves: NDArray[np.float64], change: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a sum over the clusters after 0, 1, ... merges, given the change by each merge."""
    return np.cumsum(np.concatenate([[leaves.sum()], change]))


def _lifetimes(tree: MergeTree) -> NDArray[np.float64]:
    """Return the log-distance from the last merge of each node to its next; 0 if it has none."""
    n, distances = tree.n_leaves, tree.distances
    death = np.zeros(2 * n - 1)
    death[tree.children] = distances[:, None]
    lifetime = np.zeros(2 * n - 1)
    lifetime[n:-1] = death[n:-1] - distances[:-1]
    return np.minimum(lifetime, UNCONNECTED)


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the Kullback-Leibler divergence of two Bernoulli distributions, in nats."""
    p, q = np.clip(p, 1e-9, 1 - 1e-9), np.clip(q, 1e-9, 1 - 1e-9)
    return np.asarray(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))


def refine(graph: sparse.csr_matrix, labels: Labels, least: int) -> Labels:
    """Move rows to the cluster with the largest affinity over the square root of its size.

    No cluster becomes smaller than `least` rows (or its current size, if that is less), or empty.
    """
    labels = labels.copy()
    sizes = np.bincount(labels)
    for _ in range(_PASSES):
        if not _move_rows(graph.indptr, graph.indices, graph.data, labels, sizes, least):
            break
    return labels


@compiled()
def _move_rows(indptr, indices, weights, labels, sizes, least):  # type: ignore[no-untyped-def]
    """Run one pass over the rows in order; return the number of rows moved."""
    affinity = np.zeros(len(sizes))
    moved = 0
    for i in range(len(labels)):
        own = labels[i]
        if sizes[own] <= max(least, 1):
            continue
        for e in range(indptr[i], indptr[i + 1]):
            affinity[labels[indices[e]]] += weights[e]
        best, most = own, affinity[own] / np.sqrt(sizes[own])
        for e in range(indptr[i], indptr[i + 1]):
            other = labels[indices[e]]
            value = affinity[other] / np.sqrt(sizes[other])
            if value > most:
                best, most = other, value
        for e in range(indptr[i], indptr[i + 1]):
            affinity[labels[indices[e]]] = 0.0
        if best != own:
            labels[i] = best
            sizes[own] -= 1
            sizes[best] += 1
            moved += 1
    return moved
