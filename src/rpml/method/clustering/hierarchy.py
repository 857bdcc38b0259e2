"""From basins to clusters: join small basins, build the merge tree, cut and refine it.

An addition to the paper, whose ascent stops at every local maximum of the authority. The tree is
average linkage on a sparse affinity graph, by rounds of mutual nearest neighbors. Its time and
memory grow with the number of edges.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import rel_entr

from rpml.runtime.compiled import compiled
from rpml.runtime.errors import counted
from rpml.runtime.rows import Indices, Labels

MERGE_NEIGHBORS = 15  # nearest neighbors over which affinities between basins are averaged
UNCONNECTED = 6.0  # log-distance between unconnected parts, beyond the weakest merge
_PASSES = 3  # over the rows on the borders of clusters


def merge_basins(
    graph: sparse.csr_matrix,
    basins: Labels,
    n_clusters: int | None = None,
    min_cluster_size: int = 5,
) -> tuple[Labels, Labels, MergeTree]:
    """Return the cluster of each row, its leaf of the tree over the basins, and the tree.

    Basins (numbered from 0) of fewer than `min_cluster_size` rows join the neighbor with the
    largest affinity in the symmetric graph. Average linkage merges the others into a tree, which is
    cut into `n_clusters`, or by `persistent_cut`. Finally, rows on a border move to the cluster
    with the largest affinity.
    """
    leaves = join_small(graph, basins, min_cluster_size)
    shrunk = shrink(graph, leaves)
    tree = average_linkage(shrunk, np.bincount(leaves))
    n_clusters = n_clusters or persistent_cut(tree, shrunk)
    if n_clusters > tree.n_leaves:
        warnings.warn(
            f"n_clusters={n_clusters}, but the ascent finds only "
            f"{counted(tree.n_leaves, 'basin')} of {counted(min_cluster_size, 'row')} or "
            "more, which are the clusters: lower min_cluster_size for more.",
            stacklevel=4,
        )
    labels = tree.cut(min(n_clusters, tree.n_leaves))[leaves]
    return refine(graph, labels, min_cluster_size), leaves, tree


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
    p, q = np.clip(stay, 1e-9, 1 - 1e-9), np.clip(chance, 1e-9, 1 - 1e-9)
    score = (rel_entr(p, q) + rel_entr(1 - p, 1 - q)) * persistence**1.5
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


@dataclass(frozen=True)
class MergeTree:
    """The merges in order of distance; merge t creates the node n_leaves + t."""

    children: Indices
    """(n_leaves - 1, 2) the two nodes of each merge."""
    affinities: NDArray[np.float64]
    """(n_leaves - 1,) mean affinity between the rows of the two nodes; 0 without an edge."""
    counts: NDArray[np.int64]
    """(2 n_leaves - 1,) rows of each node."""

    @property
    def n_leaves(self) -> int:
        return len(self.children) + 1

    @property
    def distances(self) -> NDArray[np.float64]:
        """(n_leaves - 1,) log of the mean affinity of the first merge over that of each."""
        linked = self.affinities[self.affinities > 0]
        out = np.full(len(self.children), UNCONNECTED)
        out[: len(linked)] = np.log(linked[:1] / linked)
        out[len(linked) :] += out[: len(linked)].max(initial=0.0)
        return out

    def cut(self, n_clusters: int) -> Indices:
        """Return the cluster of each leaf after all but the last n_clusters - 1 merges."""
        node = np.arange(2 * self.n_leaves - 1)
        done = self.n_leaves - n_clusters
        for t in range(done - 1, -1, -1):
            node[self.children[t]] = node[self.n_leaves + t]
        return np.unique(node[: self.n_leaves], return_inverse=True)[1].astype(np.intp)

    def totals(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum a value per leaf over the leaves of each node."""
        out = np.concatenate([values, np.zeros(len(self.children), values.dtype)])
        for t, (a, b) in enumerate(self.children):
            out[self.n_leaves + t] = out[a] + out[b]
        return out


def average_linkage(graph: sparse.csr_matrix, sizes: NDArray[np.int64]) -> MergeTree:
    """Merge the two nodes with the largest mean affinity between their rows until one is left.

    Mean affinity is reducible (merging two nodes brings neither closer to a third), so all pairs of
    nodes that are nearest to each other can be merged in one round: the merges are those of the
    greedy order, and distances never decrease. Unconnected parts of the graph are merged last, the
    smallest first, so that a cut separates large parts first. `graph` has the summed affinities
    between the rows of two leaves, `sizes` the rows of each leaf.
    """
    n = len(sizes)
    left, size, lowest = np.arange(n), sizes.astype(float), np.full(n, np.inf)
    merges, affinities = [np.empty((0, 2), np.intp)], [np.empty(0)]
    made, upper = n, sparse.triu(graph, 1, "csr")
    upper.eliminate_zeros()
    while upper.nnz:
        a, b, mean = _mutual_nearest(upper.tocoo(), size)
        lowest[a] = np.minimum(mean, np.minimum(lowest[a], lowest[b]))  # whatever the rounding
        merges.append(np.stack([left[a], left[b]], axis=1))
        affinities.append(lowest[a])
        left[a], size[a] = made + np.arange(len(a)), size[a] + size[b]
        made += len(a)
        into = np.arange(len(left))
        into[b] = a
        remaining, into = np.unique(into, return_inverse=True)
        left, size, lowest = left[remaining], size[remaining], lowest[remaining]
        both = shrink(upper, into)
        upper = sparse.triu(both + both.T, 1, "csr")
    affinity = np.concatenate(affinities)
    order = np.argsort(-affinity, kind="stable")
    number = np.arange(made)
    number[n + order] = np.arange(n, made)
    parts = number[left[np.argsort(size, kind="stable")]]
    joined = np.concatenate([parts[:1], made + np.arange(len(parts))])[: len(parts) - 1]
    children = [number[np.concatenate(merges)[order]], np.stack([joined, parts[1:]], axis=1)]
    unlinked = np.zeros(len(joined))
    tree = MergeTree(np.concatenate(children), np.append(affinity[order], unlinked), sizes)
    return replace(tree, counts=tree.totals(sizes))


def _mutual_nearest(
    edges: sparse.coo_matrix, size: NDArray[np.float64]
) -> tuple[Indices, Indices, NDArray[np.float64]]:
    """Return disjoint pairs of nodes of largest mean affinity to each other, and that affinity."""
    ends = edges.row, edges.col
    mean = edges.data / (size[edges.row] * size[edges.col])
    best, first = np.zeros(len(size)), np.full(len(size), len(mean))
    for end in ends:
        np.maximum.at(best, end, mean)
    mutual = np.flatnonzero((mean == best[edges.row]) & (mean == best[edges.col]))
    for end in ends:  # of equal ones the first
        np.minimum.at(first, end[mutual], mutual)
    mutual = mutual[(first[edges.row[mutual]] == mutual) & (first[edges.col[mutual]] == mutual)]
    return edges.row[mutual], edges.col[mutual], mean[mutual]
