"""From basins to clusters: join small basins, build the merge tree, cut and refine it.

An addition to the paper, whose ascent stops at every local maximum of the authority. The tree is
average linkage on a sparse affinity graph, by a nearest-neighbor chain over linked edge lists. Its
time and memory grow with the number of edges: merging two nodes concatenates their edge lists, and
parallel edges are summed when a list is next read.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import rel_entr

from rpml.runtime.compiled import compiled
from rpml.runtime.rows import Labels
from rpml.runtime.wording import counted

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
            UserWarning,
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

    children: NDArray[np.intp]
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

    def cut(self, n_clusters: int) -> NDArray[np.intp]:
        """Return the cluster of each leaf after all but the last n_clusters - 1 merges."""
        node = np.arange(2 * self.n_leaves - 1)
        done = self.n_leaves - n_clusters
        for t in range(done - 1, -1, -1):
            node[self.children[t]] = node[self.n_leaves + t]
        return np.unique(node[: self.n_leaves], return_inverse=True)[1].astype(np.intp)

    def totals(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum a value per leaf over the leaves of each node."""
        out = np.concatenate([values, np.zeros(len(self.children))])
        for t, (a, b) in enumerate(self.children):
            out[self.n_leaves + t] = out[a] + out[b]
        return out


def average_linkage(graph: sparse.csr_matrix, sizes: NDArray[np.int64]) -> MergeTree:
    """Merge the two nodes with the largest mean affinity between their rows until one is left.

    Mean affinity is reducible (merging two nodes brings neither closer to a third), so chains of
    nearest neighbors find the merges of the greedy order, and distances never decrease.
    Unconnected parts of the graph are merged last, the smallest first. `graph` has the summed
    affinities between the rows of two leaves, `sizes` the rows of each leaf.
    """
    graph = graph.copy()
    graph.setdiag(0)
    graph.eliminate_zeros()
    first, second, affinity = _chain(graph.indptr, graph.indices, graph.data, sizes.astype(float))
    order = np.argsort(-affinity, kind="stable")
    pairs = np.stack([first, second], axis=1)[order]
    children, counts = _number_merges(pairs, np.asarray(sizes, np.int64))
    unlinked = np.zeros(len(children) - len(order))
    return MergeTree(children, np.concatenate([affinity[order], unlinked]), counts)


@compiled()
def _root(parents, i):  # type: ignore[no-untyped-def]
    while parents[i] != i:
        parents[i] = parents[parents[i]]
        i = parents[i]
    return i


@compiled()
def _chain(indptr, indices, data, sizes):  # type: ignore[no-untyped-def]
    """Return the merges as found: a row of each of the two nodes, and their mean affinity."""
    n = len(sizes)
    edges = np.empty((len(indices), 2), np.int64)  # end node, and the next edge in the list
    edges[:, 0], edges[:, 1] = indices, np.arange(1, len(indices) + 1)
    first, last = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    for i in range(n):
        if indptr[i] < indptr[i + 1]:
            first[i], last[i] = indptr[i], indptr[i + 1] - 1
            edges[last[i], 1] = -1
    weights = data.astype(np.float64)
    parents, seen, chain = np.arange(n), np.full(n, -1, np.int64), np.empty(n + 1, np.int64)
    size = sizes.copy()
    left, right = np.empty(max(n - 1, 0), np.int64), np.empty(max(n - 1, 0), np.int64)
    affinity = np.empty(max(n - 1, 0))
    merged = 0
    for start in range(n):
        if parents[start] != start:
            continue
        top = 0
        chain[0] = start
        while top >= 0:
            i = chain[top]
            before = chain[top - 1] if top else -1
            last[i] = _sum_parallel(i, parents, first, edges, weights, seen)
            best, most = -1, 0.0
            e = first[i]
            while e >= 0:
                j = edges[e, 0]
                seen[j] = -1
                mean = weights[e] / (size[i] * size[j])
                tie = mean == most and (j == before or (best != before and j < best))
                if mean > most or tie:
                    best, most = j, mean
                e = edges[e, 1]
            if best < 0:  # the last node of a connected part has no neighbor
                top -= 1
            elif best != before:
                top += 1
                chain[top] = best
            else:
                left[merged], right[merged], affinity[merged] = i, best, most
                merged += 1
                parents[best] = i
                size[i] += size[best]
                edges[last[i], 1] = first[best]
                last[i] = last[best]
                top -= 2
                if top < 0:
                    top = 0
                    chain[0] = i
    return left[:merged], right[:merged], affinity[:merged]


@compiled()
def _sum_parallel(i, parents, first, edges, weights, seen):  # type: ignore[no-untyped-def]
    """Update the ends of the edges of i, sum parallel ones, drop loops; return the last edge."""
    retained = -1
    e = first[i]
    while e >= 0:
        after = edges[e, 1]
        j = _root(parents, edges[e, 0])
        if j != i and seen[j] < 0:
            edges[e, 0] = j
            seen[j] = e
            retained = e
        else:
            if j != i:
                weights[seen[j]] += weights[e]
            if retained < 0:
                first[i] = after
            else:
                edges[retained, 1] = after
        e = after
    return retained


@compiled()
def _number_merges(pairs, sizes):  # type: ignore[no-untyped-def]
    """Return children as node numbers and the rows of each node; unconnected parts come last.

    The smallest parts are merged first, so that a cut separates large parts first.
    """
    n = len(sizes)
    parents, node = np.arange(n), np.arange(n)
    children = np.empty((max(n - 1, 0), 2), np.intp)
    counts = np.zeros(max(2 * n - 1, 0), np.int64)
    counts[:n] = sizes
    for t in range(len(pairs)):
        a, b = _root(parents, pairs[t, 0]), _root(parents, pairs[t, 1])
        children[t] = node[a], node[b]
        counts[n + t] = counts[node[a]] + counts[node[b]]
        parents[b] = a
        node[a] = n + t
    parts = node[parents == np.arange(n)]
    parts = parts[np.argsort(counts[parts], kind="mergesort")]
    joined = parts[0] if n else 0
    for t in range(1, len(parts)):
        new = n + len(pairs) + t - 1
        children[new - n] = joined, parts[t]
        counts[new] = counts[joined] + counts[parts[t]]
        joined = new
    return children, counts
