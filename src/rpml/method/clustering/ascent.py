"""Authority ascent on an affinity graph: thresholds, the climb to the modes, merging of modes."""

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rpml.method.clustering.authority import authority
from rpml.method.clustering.saddle import join_basins
from rpml.method.graph import kernels
from rpml.runtime.threads import run_chunks

Labels = NDArray[np.intp]
_RANK = 7  # the neighbour whose affinity stands for a node's own neighbourhood
_ABOVE = 1.2  # epsilon="auto": this much above the typical affinity of that neighbour,
_CUT_OFF = 0.3  # but cutting off no more than this share of the nodes from all others


@dataclass(frozen=True)
class AASResult:
    """What the ascent found.

    Attributes
    ----------
    labels : int ndarray of shape (n_samples,)
        Cluster of each node, numbered in the order of their modes.
    modes : int ndarray of shape (n_clusters,)
        Node each cluster's ascent ends in.
    parents : int ndarray of shape (n_samples,)
        The ascent tree: the node each node steps to; a mode is its own parent.
    authority : ndarray of shape (n_samples,)
        Stationary distribution of the random walk; sums to 1.
    epsilon : float
        The threshold used.
    """

    labels: NDArray[np.intp]
    modes: NDArray[np.intp]
    parents: NDArray[np.intp]
    authority: NDArray[np.float64]
    epsilon: float


def ascend(
    graph: sparse.csr_matrix, omega: NDArray[np.float64], gamma: float, epsilon: float
) -> NDArray[np.intp]:
    """Parent of every node: one step of authority ascent.

    psi(i, j) = d_i P_ij exp(-gamma (omega_j - omega_i)^2) with d_i P_ij = W_ij; the relevant
    neighbours are those with psi > epsilon and i itself; the parent is the one of largest
    P_ij (omega_j - omega_i). Here omega is scaled to a maximum of 1/10, so that the printed
    gamma = 100 damps a step across the whole range of authorities by 1/e: as probabilities they
    would differ by about 1/n, and gamma would do nothing at all.

    Equal gains go to the lowest index. On a plateau (equal authority, gain 0) this moves to a
    relevant neighbour of lower index, so that duplicated points share one mode.
    """
    return ascend_scaled(graph, scaled_authority(omega), gamma, epsilon)


def scaled_authority(omega: NDArray[np.float64]) -> NDArray[np.float64]:
    """The authority with a maximum of 1/10; see `ascend`."""
    top = float(omega.max(initial=0.0))
    return omega / (10.0 * top) if top > 0 else np.zeros(len(omega))


def ascend_scaled(
    graph: sparse.csr_matrix,
    scaled: NDArray[np.float64],
    gamma: float,
    epsilon: float,
    first: int = 0,
) -> NDArray[np.intp]:
    """`ascend` for the nodes from `first` on, whose rows the graph holds; `scaled` is of all."""
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
    """Mode every node ends in, by pointer jumping: the height of a tree halves each round."""
    while True:
        further = parents[parents]
        if np.array_equal(further, parents):
            return further
        parents = further


def choose_epsilon(graph: sparse.csr_matrix) -> float:
    """Choose epsilon from the affinities alone.

    20% above the median affinity of a node to its 7th strongest neighbour, but never so high
    that more than 30% of the nodes lose even their strongest edge (in high dimension all
    affinities of a node are alike). Where affinities hardly differ at all they say nothing, and
    every edge is relevant. Multiplying the graph by a constant multiplies epsilon by it.
    """
    return threshold(strongest(graph))


def threshold(best: NDArray[np.float64]) -> float:
    """The epsilon of `choose_epsilon`, from the `strongest` affinities of all nodes."""
    best = best[best[:, 0] > 0]
    if not best.size:
        return 1.0  # no edges: any threshold does
    middle, largest = float(np.median(best[:, -1])), float(best[:, 0].max())
    if middle > 0.95 * largest:
        return 0.3 * largest  # below exp(-1), the most gamma = 100 takes off
    return min(_ABOVE * middle, float(np.quantile(best[:, 0], _CUT_OFF)), 0.95 * largest)


def strongest(graph: sparse.csr_matrix) -> NDArray[np.float64]:
    """(n, 2): the largest affinity of each node and its 7th largest."""
    best = np.zeros((graph.shape[0], _RANK))

    def work(_: int, start: int, stop: int) -> None:
        kernels.strongest(graph.indptr, graph.data, best, start, stop)

    run_chunks(work, graph.shape[0], 4096)
    return best[:, [0, _RANK - 1]]


class Ascent(Protocol):
    """An affinity graph to ascend, wherever its edges are: in memory or on Dask workers."""

    def auto_epsilon(self) -> float:
        """The threshold of epsilon="auto"."""

    def climb(self, epsilon: float) -> Labels:
        """The mode of each node, as a label."""

    def affinity_quantiles(self, q: tuple[float, ...]) -> NDArray[np.float64]:
        """Quantiles of the affinities; empty if there are no edges."""


@dataclass(frozen=True)
class GraphAscent:
    """Authority Ascent Shift on a graph in memory.

    Parameters
    ----------
    graph : csr_matrix of shape (n_samples, n_samples)
        Affinities.
    gamma, merge
        As in `AuthorityAscentShift`.
    symmetric : bool, default=None
        Whether the graph is symmetric; looked up if None.
    relief : csr_matrix, default=None
        For merge="saddle": the graph whose authority the saddles are measured on; None is `graph`
        itself. Locally scaled affinities hardly show the density, so features use the same
        neighbours with bandwidth="balanced".
    """

    graph: sparse.csr_matrix
    gamma: float = 1e2
    merge: str | None = None
    symmetric: bool | None = None
    relief: sparse.csr_matrix | None = None

    def auto_epsilon(self) -> float:
        return choose_epsilon(self.graph)

    def affinity_quantiles(self, q: tuple[float, ...]) -> NDArray[np.float64]:
        if self.graph.nnz == 0:
            return np.empty(0)
        return np.asarray(np.quantile(self.graph.data, q))

    def climb(self, epsilon: float) -> Labels:
        return self.run(epsilon).labels

    def run(self, epsilon: float | str = "auto") -> AASResult:
        """The ascent with all that it finds."""
        omega = authority(self.graph, self.symmetric)
        relevant = self.auto_epsilon() if isinstance(epsilon, str) else float(epsilon)
        parents = ascend(self.graph, omega, self.gamma, relevant)
        ends = follow(parents)
        if self.merge == "saddle":
            relief = self.graph if self.relief is None else self.relief
            ends = _join_modes(ends, omega, relief, self.gamma)
            parents = np.where(parents == np.arange(parents.size), ends, parents)
        modes, labels = np.unique(ends, return_inverse=True)
        return AASResult(labels, modes, parents, omega, relevant)


def usable_labels(ascent: Ascent, epsilon: float | str) -> Labels:
    """Labels that triplets can be drawn from.

    Where the threshold puts all nodes into one cluster or each into its own, it is raised or
    lowered through quantiles of the affinities, with a warning.
    """
    used = ascent.auto_epsilon() if isinstance(epsilon, str) else float(epsilon)
    labels = ascent.climb(used)
    if _has_triplets(labels):
        return labels
    one = int(labels.max(initial=0)) == 0
    what = "one single cluster" if one else "every row in a cluster of its own"
    quantiles = (0.5, 0.75, 0.9, 0.95, 0.98) if one else (0.75, 0.5, 0.25, 0.1, 0.02)
    for other in ascent.affinity_quantiles(quantiles).tolist():
        retuned = ascent.climb(other)
        if _has_triplets(retuned):
            change = "raised" if one else "lowered"
            warnings.warn(
                f"AAS with epsilon={used:.4g} put {what}; epsilon was {change} to {other:.4g}, "
                f"which gives {retuned.max() + 1} clusters.",
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
    """Triplets need two labels, one of them with two rows."""
    sizes = np.bincount(labels)
    return bool(len(sizes) > 1 and sizes.max() > 1)


def _join_modes(
    ends: NDArray[np.intp], omega: NDArray[np.float64], relief: sparse.csr_matrix, gamma: float
) -> NDArray[np.intp]:
    """Mode every node ends in once modes in the same joined basin of the relief are one.

    The basins come from an ascent with a low threshold, half the affinity of the typical 7th
    neighbour: wide basins have wide passes, whose heights are known well.
    """
    height = authority(relief)
    low = low_threshold(strongest(relief))
    basins = np.unique(follow(ascend(relief, height, gamma, low)), return_inverse=True)[1]
    return joined_ends(ends, omega, join_basins(relief, height, basins.astype(np.intp), low))


def low_threshold(best: NDArray[np.float64]) -> float:
    """Half the affinity of the typical 7th neighbour, from the `strongest` of all nodes."""
    seventh = best[:, 1]
    return 0.5 * float(np.median(seventh[seventh > 0])) if (seventh > 0).any() else 1.0


def joined_ends(
    ends: NDArray[np.intp], omega: NDArray[np.float64], joined: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Mode every node ends in once the modes within a joined basin are its highest one."""
    modes = np.unique(ends)
    order = modes[np.lexsort((modes, -omega[modes], joined[modes]))]  # highest of each first
    first = np.diff(joined[order], prepend=-1) != 0
    highest = np.zeros(int(joined.max()) + 1, dtype=np.intp)
    highest[joined[order[first]]] = order[first]
    return highest[joined[ends]]
