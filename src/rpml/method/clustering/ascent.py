"""Authority ascent: affinity graph, authority, thresholds and the climb to the modes."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rpml.method.clustering.hierarchy import MergeTree
from rpml.method.graph.neighbors import Neighbors
from rpml.runtime.compiled import compiled
from rpml.runtime.errors import counted
from rpml.runtime.rows import Floats, Indices, Labels, slices
from rpml.runtime.threads import run_chunks

_RANK = 7  # the neighbor whose affinity represents a node's neighborhood
_ABOVE = 1.2  # epsilon="auto": this factor above the typical affinity of that neighbor,
_CUT_OFF = 0.3  # but disconnecting at most this share of the nodes from all others
_LOCAL_NEIGHBOR = 7  # its distance is a point's bandwidth (Zelnik-Manor and Perona, 2004)


def affinity_graph(neighbors: Neighbors, affinity: str = "cosine") -> sparse.csr_matrix:
    """Return the symmetric (n, n) float32 graph of affinities between rows and their neighbors.

    The affinity "cosine" is max(0, cos) and needs neighbors of metric="cosine"; "gaussian" is
    exp(-|x_i - x_j|^2 / (2 s_i s_j)), where s_i is the distance to the 7th neighbor of i, so that
    dense and sparse regions compare. There is an edge if either end found the other (the union,
    max(W, W')); both ends give it the same weight, so nothing is averaged.
    """
    n, k = neighbors.indices.shape
    weights = _cosine_weights(neighbors) if affinity == "cosine" else _gaussian_weights(neighbors)
    indptr = np.arange(0, n * k + 1, k)
    # copy the indices: sorting the matrix must not reorder the caller's neighbors
    edges = weights.ravel(), neighbors.indices.ravel().copy(), indptr
    graph = sparse.csr_matrix(edges, shape=(n, n), copy=False)
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph.maximum(graph.T.tocsr())


def _cosine_weights(neighbors: Neighbors) -> Floats:
    if neighbors.metric != "cosine":
        raise ValueError(
            f"affinity='cosine' needs neighbors of metric='cosine', got {neighbors.metric!r}"
        )
    half = np.square(neighbors.distances, dtype=np.float32) * np.float32(0.5)
    return np.asarray(np.maximum(np.float32(1.0) - half, np.float32(0.0)))


def _gaussian_weights(neighbors: Neighbors) -> Floats:
    near = neighbors.distances[:, min(_LOCAL_NEIGHBOR, neighbors.n_neighbors) - 1].astype(float)
    # a point among duplicates gets the typical scale, or its other edges would vanish
    scale = np.where(near > 0, near, np.median(near[near > 0]) if near.any() else 1.0)
    out = np.empty(neighbors.indices.shape, dtype=np.float32)
    for part in slices(len(out), 65536):
        square = np.square(neighbors.distances[part], dtype=np.float64)
        square /= 2.0 * scale[part, None] * scale[neighbors.indices[part]]
        out[part] = np.exp(-square)
    return out


def authority(graph: sparse.csr_matrix) -> NDArray[np.float64]:
    """Return the stationary distribution omega of the random walk P = D^-1 W, (n_samples,).

    On a symmetric graph, connected or not, omega_i = d_i / sum d; uniform without any edge.
    """
    degree = np.asarray(graph.sum(axis=1, dtype=np.float64)).ravel()
    return np.asarray(
        degree / degree.sum() if degree.any() else np.full(degree.size, 1 / len(degree))
    )


def ascend(
    graph: sparse.csr_matrix, omega: NDArray[np.float64], gamma: float, epsilon: float
) -> Indices:
    """Return the parent of every node: one step of authority ascent.

    psi(i, j) = d_i P_ij exp(-gamma (omega_j - omega_i)^2) with d_i P_ij = W_ij; the relevant
    neighbors are those with psi > epsilon and i itself; the parent is the one with the largest
    P_ij (omega_j - omega_i). Here omega is scaled to a maximum of 1/10, so that the printed
    gamma = 100 damps a step across the whole range of authorities by 1/e: probabilities would
    differ by about 1/n, and gamma would have no effect.

    Ties go to the lowest index. On a plateau (equal authority, gain 0) this moves to a relevant
    neighbor of lower index, so that duplicated points share one mode.
    """
    n, top = graph.shape[0], float(omega.max(initial=0.0))
    scaled = omega / (10.0 * top) if top > 0 else np.zeros(n)
    parents = np.empty(n, dtype=np.intp)

    def work(_: int, start: int, stop: int) -> None:
        edges = graph.indptr, graph.indices, graph.data
        _ascend_rows(*edges, scaled, gamma, epsilon, parents, start, stop)

    run_chunks(work, n, 4096)
    return parents


@compiled()
def _ascend_rows(indptr, indices, weights, omega, gamma, epsilon, parents, start, stop):  # type: ignore[no-untyped-def]
    """Set the parents of the nodes start..stop.

    All P_ij of a node are divided by d_i, so W_ij is enough to compare them.
    """
    for i in range(start, stop):
        best, gain = i, 0.0
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            step = omega[j] - omega[i]
            if step < 0.0 or weights[e] <= epsilon:
                continue
            value = weights[e] * step
            if value > gain or (value == gain and j < best):  # noqa: SIM102
                if weights[e] * np.exp(-gamma * step * step) > epsilon:
                    best, gain = j, value
        parents[i] = best


def follow(parents: Indices) -> Indices:
    """Return the mode of every node by pointer jumping, which halves the height of a tree."""
    while True:
        further = parents[parents]
        if np.array_equal(further, parents):
            return further
        parents = further


def choose_epsilon(graph: sparse.csr_matrix) -> float:
    """Choose epsilon from the affinities alone.

    20% above the median affinity of a node to its 7th strongest neighbor, but low enough that at
    most 30% of the nodes lose their strongest edge (in high dimensions all affinities of a node
    are similar). If affinities hardly differ, every edge is relevant. Multiplying the graph by a
    constant multiplies epsilon by it.
    """
    best = np.zeros((graph.shape[0], _RANK))

    def work(_: int, start: int, stop: int) -> None:
        _strongest(graph.indptr, graph.data, best, start, stop)

    run_chunks(work, graph.shape[0], 4096)
    best = best[best[:, 0] > 0]
    if not best.size:
        return 1.0  # without edges any threshold will do
    middle, largest = float(np.median(best[:, -1])), float(best[:, 0].max())
    if middle > 0.95 * largest:
        return 0.3 * largest  # below exp(-1), the strongest damping with gamma = 100
    return min(_ABOVE * middle, float(np.quantile(best[:, 0], _CUT_OFF)), 0.95 * largest)


@compiled()
def _strongest(indptr, weights, best, start, stop):  # type: ignore[no-untyped-def]
    """Set best[i] to the largest weights of row i, descending; short rows repeat the last one."""
    ranks = best.shape[1]
    for i in range(start, stop):
        row = best[i]
        held = 0
        for e in range(indptr[i], indptr[i + 1]):
            w = weights[e]
            if held < ranks:
                held += 1
            elif w <= row[ranks - 1]:
                continue
            at = held - 1
            while at > 0 and row[at - 1] < w:
                row[at] = row[at - 1]
                at -= 1
            row[at] = w
        for at in range(max(held, 1), ranks):
            row[at] = row[at - 1]


@dataclass(frozen=True)
class AASResult:
    """The result of an ascent; `authority` is the stationary distribution of the random walk."""

    labels: Labels
    """(n,) clusters, numbered in the order of their modes."""
    modes: Labels
    parents: Labels
    """(n,) the ascent tree; a mode is its own parent."""
    authority: NDArray[np.float64]
    epsilon: float
    leaves: Labels | None = None
    """(n,) leaf of the merge tree of each node; None without merging, like the tree."""
    tree: MergeTree | None = None


@dataclass(frozen=True)
class GraphAscent:
    """Authority Ascent Shift on a symmetric graph.

    `merge` turns basins into clusters, see `merge_basins`; without it they are the clusters.
    """

    graph: sparse.csr_matrix
    gamma: float = 1e2
    merge: Callable[[Labels], tuple[Labels, Labels, MergeTree]] | None = None

    def run(self, epsilon: float | str = "auto") -> AASResult:
        """Run the ascent and return everything it finds."""
        omega = authority(self.graph)
        used = choose_epsilon(self.graph) if isinstance(epsilon, str) else float(epsilon)
        parents = ascend(self.graph, omega, self.gamma, used)
        modes, labels = np.unique(follow(parents), return_inverse=True)
        if self.merge is None:
            return AASResult(labels, modes, parents, omega, used)
        labels, leaves, tree = self.merge(labels.astype(np.intp))
        rows = np.arange(len(labels))
        order = np.lexsort((rows, -omega, labels))
        highest = order[np.diff(labels[order], prepend=-1) != 0]  # authority of each cluster
        modes, labels = np.sort(highest), np.argsort(np.argsort(highest))[labels]
        # roots, and nodes whose parent is in another cluster, point to the mode of their own
        inside = (labels[parents] == labels) & (parents != rows) & (modes[labels] != rows)
        parents = np.where(inside, parents, modes[labels])
        return AASResult(labels, modes, parents, omega, used, leaves, tree)


def usable_labels(ascent: GraphAscent, epsilon: float | str) -> Labels:
    """Return labels from which triplets can be drawn.

    If the threshold puts all nodes into one cluster, or each into its own, it is raised or lowered
    through quantiles of the affinities, with a warning.
    """
    found = ascent.run(epsilon)
    if _has_triplets(found.labels):
        return found.labels
    one = len(found.modes) == 1
    what = "all rows into one cluster" if one else "each row into a cluster of its own"
    quantiles = (0.5, 0.75, 0.9, 0.95, 0.98) if one else (0.75, 0.5, 0.25, 0.1, 0.02)
    for q in quantiles if ascent.graph.nnz else ():
        other = ascent.run(float(np.quantile(ascent.graph.data, q)))
        if _has_triplets(other.labels):
            change = "raised" if one else "lowered"
            warnings.warn(
                f"AAS with epsilon={found.epsilon:.4g} put {what}; epsilon was {change} to "
                f"{other.epsilon:.4g}, which gives {counted(len(other.modes), 'cluster')}.",
                stacklevel=2,
            )
            return other.labels
    warnings.warn(
        f"AAS put {what} and no other epsilon changes that; the rows have no cluster structure "
        "to learn from.",
        stacklevel=2,
    )
    return found.labels


def _has_triplets(labels: Labels) -> bool:
    """Whether there are two labels, one of them with two rows."""
    sizes = np.bincount(labels)
    return bool(len(sizes) > 1 and sizes.max() > 1)
