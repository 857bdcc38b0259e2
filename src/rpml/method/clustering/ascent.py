"""Authority ascent on an affinity graph: authority, thresholds and the climb to the modes."""

import logging
import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from rpml.method.clustering.hierarchy import BasinMerging, Hierarchy
from rpml.method.graph import kernels
from rpml.runtime.rows import Labels
from rpml.runtime.threads import run_chunks
from rpml.runtime.wording import counted

logger = logging.getLogger(__name__)

_TELEPORT = 0.05  # probability of a jump, on a graph that is not strongly connected
_MAX_STEPS = 1000  # of the power iteration
_RANK = 7  # the neighbor whose affinity represents a node's neighborhood
_ABOVE = 1.2  # epsilon="auto": this factor above the typical affinity of that neighbor,
_CUT_OFF = 0.3  # but disconnecting at most this share of the nodes from all others


@dataclass(frozen=True)
class AASResult:
    """The result of an ascent; `authority` is the stationary distribution of the random walk."""

    labels: NDArray[np.intp]
    """(n,) clusters, numbered in the order of their modes."""
    modes: NDArray[np.intp]
    parents: NDArray[np.intp]
    """(n,) the ascent tree; a mode is its own parent."""
    authority: NDArray[np.float64]
    epsilon: float
    hierarchy: Hierarchy | None = None


def authority(graph: sparse.csr_matrix, symmetric: bool | None = None) -> NDArray[np.float64]:
    """Return the stationary distribution omega of the random walk P = D^-1 W, (n_samples,).

    On a symmetric graph, connected or not, omega_i = d_i / sum d. On a directed one it is
    iterated: a strongly connected graph has one stationary distribution, to which the lazy walk
    (I + P) / 2 converges even if P is periodic; on any other graph the walker also jumps to a
    random node with probability 0.05, and always from a node without edges, which makes the
    distribution unique and the iteration converge. It is uniform if there are no edges.
    `symmetric` is tested if None.
    """
    degree = np.asarray(graph.sum(axis=1, dtype=np.float64)).ravel()
    if not degree.any():
        return np.full(degree.size, 1.0 / degree.size)
    if is_symmetric(graph) if symmetric is None else symmetric:
        return np.asarray(degree / degree.sum())
    return _power_iteration(graph, degree)


def is_symmetric(graph: sparse.csr_matrix) -> bool:
    """Whether W equals its transpose exactly."""
    other = graph.T.tocsr()
    graph = graph if graph.has_sorted_indices else graph.sorted_indices()
    return (
        np.array_equal(graph.indptr, other.indptr)
        and np.array_equal(graph.indices, other.indices)
        and np.array_equal(graph.data, other.data)
    )


def _power_iteration(graph: sparse.csr_matrix, degree: NDArray[np.float64]) -> NDArray[np.float64]:
    n = degree.size
    arrive = graph.T.tocsr().astype(np.float64)  # rows collect the incoming probability
    share = np.where(degree > 0, 1.0 / np.where(degree > 0, degree, 1.0), 0.0)
    strong = connected_components(graph, connection="strong", return_labels=False) == 1
    jump = 0.0 if strong else _TELEPORT
    omega = np.full(n, 1.0 / n)
    for _ in range(_MAX_STEPS):
        flow = arrive @ (omega * share)
        flow += (1.0 - flow.sum()) / n  # from nodes without edges
        step = 0.5 * (omega + flow) if strong else (1.0 - jump) * flow + jump / n
        step /= step.sum()
        change = float(np.abs(step - omega).sum())
        omega = step
        if change < 1e-10:
            return np.asarray(omega)
    logger.info("authority: %d steps, last change %.1e", _MAX_STEPS, change)
    return np.asarray(omega)


def ascend(
    graph: sparse.csr_matrix, omega: NDArray[np.float64], gamma: float, epsilon: float
) -> NDArray[np.intp]:
    """Return the parent of every node: one step of authority ascent.

    psi(i, j) = d_i P_ij exp(-gamma (omega_j - omega_i)^2) with d_i P_ij = W_ij; the relevant
    neighbors are those with psi > epsilon and i itself; the parent is the one with the largest
    P_ij (omega_j - omega_i). Here omega is scaled to a maximum of 1/10, so that the printed
    gamma = 100 damps a step across the whole range of authorities by 1/e: probabilities would
    differ by about 1/n, and gamma would have no effect.

    Ties go to the lowest index. On a plateau (equal authority, gain 0) this moves to a relevant
    neighbor of lower index, so that duplicated points share one mode.
    """
    return ascend_scaled(graph, scaled_authority(omega), gamma, epsilon)


def scaled_authority(omega: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale the authority to a maximum of 1/10; see `ascend`."""
    top = float(omega.max(initial=0.0))
    return omega / (10.0 * top) if top > 0 else np.zeros(len(omega))


def ascend_scaled(
    graph: sparse.csr_matrix,
    scaled: NDArray[np.float64],
    gamma: float,
    epsilon: float,
    first: int = 0,
) -> NDArray[np.intp]:
    """`ascend` for the nodes from `first` on, which are the rows of the graph."""
    n = graph.shape[0]
    parents = np.empty(n, dtype=np.intp)

    def work(_: int, start: int, stop: int) -> None:
        kernels.ascend_rows(
            *(graph.indptr, graph.indices, graph.data),
            *(scaled, first, gamma, epsilon, parents, start, stop),
        )

    run_chunks(work, n, 4096)
    return parents


def follow(parents: NDArray[np.intp]) -> NDArray[np.intp]:
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
    return threshold(strongest(graph))


def threshold(best: NDArray[np.float64]) -> float:
    """Return the epsilon of `choose_epsilon`, from the `strongest` affinities of all nodes."""
    best = best[best[:, 0] > 0]
    if not best.size:
        return 1.0  # without edges any threshold will do
    middle, largest = float(np.median(best[:, -1])), float(best[:, 0].max())
    if middle > 0.95 * largest:
        return 0.3 * largest  # below exp(-1), the strongest damping with gamma = 100
    return min(_ABOVE * middle, float(np.quantile(best[:, 0], _CUT_OFF)), 0.95 * largest)


def strongest(graph: sparse.csr_matrix) -> NDArray[np.float64]:
    """Return the largest affinity of each node and its 7th largest, (n, 2)."""
    best = np.zeros((graph.shape[0], _RANK))

    def work(_: int, start: int, stop: int) -> None:
        kernels.strongest(graph.indptr, graph.data, best, start, stop)

    run_chunks(work, graph.shape[0], 4096)
    return best[:, [0, _RANK - 1]]


class Ascent(Protocol):
    """An affinity graph to ascend, in memory or on Dask workers."""

    def auto_epsilon(self) -> float:
        """Return the threshold of epsilon="auto"."""

    def climb(self, epsilon: float) -> Labels:
        """Return the mode of each node, as a label."""

    def affinity_quantiles(self, q: tuple[float, ...]) -> NDArray[np.float64]:
        """Return quantiles of the affinities; empty if there are no edges."""


@dataclass(frozen=True)
class GraphAscent:
    """Authority Ascent Shift on a graph in memory.

    `symmetric` is tested if None. Without `merging` the clusters are the basins of the ascent.
    """

    graph: sparse.csr_matrix
    gamma: float = 1e2
    symmetric: bool | None = None
    merging: BasinMerging | None = None

    def auto_epsilon(self) -> float:
        return choose_epsilon(self.graph)

    def affinity_quantiles(self, q: tuple[float, ...]) -> NDArray[np.float64]:
        if self.graph.nnz == 0:
            return np.empty(0)
        return np.asarray(np.quantile(self.graph.data, q))

    def climb(self, epsilon: float) -> Labels:
        return self.run(epsilon).labels

    def run(self, epsilon: float | str = "auto") -> AASResult:
        """Run the ascent and return everything it finds."""
        omega = authority(self.graph, self.symmetric)
        relevant = self.auto_epsilon() if isinstance(epsilon, str) else float(epsilon)
        parents = ascend(self.graph, omega, self.gamma, relevant)
        modes, labels = np.unique(follow(parents), return_inverse=True)
        if self.merging is None:
            return AASResult(labels, modes, parents, omega, relevant)
        hierarchy = self.merging.merge(labels.astype(np.intp))
        modes, labels = number_by_mode(hierarchy.labels, omega)
        parents = point_to_modes(parents, modes, labels)
        return AASResult(labels, modes, parents, omega, relevant, hierarchy)


def number_by_mode(labels: Labels, omega: NDArray[np.float64]) -> tuple[Labels, Labels]:
    """Return the row of highest authority of each cluster, ascending, and labels in that order."""
    order = np.lexsort((np.arange(len(labels)), -omega, labels))
    highest = order[np.diff(labels[order], prepend=-1) != 0]
    modes, number = np.sort(highest), np.empty(len(highest), np.intp)
    number[np.argsort(highest)] = np.arange(len(highest))
    return modes, number[labels]


def point_to_modes(parents: Labels, modes: Labels, labels: Labels) -> Labels:
    """Return the ascent tree within clusters: roots, and nodes whose parent is in another cluster,
    point to the mode of their cluster."""
    rows = np.arange(len(parents))
    inside = (labels[parents] == labels) & (parents != rows) & (modes[labels] != rows)
    return np.where(inside, parents, modes[labels])


def usable_labels(ascent: Ascent, epsilon: float | str) -> Labels:
    """Return labels from which triplets can be drawn.

    If the threshold puts all nodes into one cluster, or each into its own, it is raised or lowered
    through quantiles of the affinities, with a warning.
    """
    used = ascent.auto_epsilon() if isinstance(epsilon, str) else float(epsilon)
    labels = ascent.climb(used)
    if _has_triplets(labels):
        return labels
    one = int(labels.max(initial=0)) == 0
    what = "all rows into one cluster" if one else "each row into a cluster of its own"
    quantiles = (0.5, 0.75, 0.9, 0.95, 0.98) if one else (0.75, 0.5, 0.25, 0.1, 0.02)
    for other in ascent.affinity_quantiles(quantiles).tolist():
        retuned = ascent.climb(other)
        if _has_triplets(retuned):
            change = "raised" if one else "lowered"
            warnings.warn(
                f"AAS with epsilon={used:.4g} put {what}; epsilon was {change} to {other:.4g}, "
                f"which gives {counted(retuned.max() + 1, 'cluster')}.",
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


def _has_triplets(labels: Labels) -> bool:
    """Whether there are two labels, one of them with two rows."""
    sizes = np.bincount(labels)
    return bool(len(sizes) > 1 and sizes.max() > 1)
