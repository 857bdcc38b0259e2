"""Average linkage on a sparse affinity graph: a nearest-neighbor chain over linked edge lists.

Time and memory grow with the number of edges: merging two nodes concatenates their edge lists, and
parallel edges are summed when a list is next read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rpml.runtime.compiled import compiled

UNCONNECTED = 6.0  # log-distance between unconnected parts, beyond the weakest merge


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
def _link_edges(indptr, indices):  # type: ignore[no-untyped-def]
    """Return linked lists of the edges of each node, without loops: (first, last, edges).

    An edge is its end node and the next edge in the list.
    """
    n = len(indptr) - 1
    first, last = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
    edges = np.full((len(indices), 2), -1, np.int64)
    edges[:, 0] = indices
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] == i:
                continue
            if first[i] < 0:
                first[i] = e
            else:
                edges[last[i], 1] = e
            last[i] = e
    return first, last, edges


@compiled()
def _chain(indptr, indices, data, sizes):  # type: ignore[no-untyped-def]
    """Return the merges as found: a row of each of the two nodes, and their mean affinity."""
    n = len(sizes)
    first, last, edges = _link_edges(indptr, indices)
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
