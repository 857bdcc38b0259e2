"""Graph -> authority modes and labels: Authority Ascent Shift (AAS)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import validate_data

from rpml.method.clustering.authority import authority
from rpml.method.clustering.saddle import join_basins
from rpml.method.graph import kernels as kernels
from rpml.method.graph.affinity import (
    Neighbors,
    affinity_graph,
    as_graph,
    check_graph,
    given_neighbors,
    nearest_neighbors,
)
from rpml.runtime.threads import run_chunks

__all__ = [
    "AASResult",
    "AuthorityAscentShift",
    "ascend",
    "authority",
    "choose_epsilon",
    "cluster_graph",
    "follow",
]

_RANK = 7  # the neighbour whose affinity stands for a node's own neighbourhood
_ABOVE = 1.2  # epsilon="auto": this much above the typical affinity of that neighbour,
_CUT_OFF = 0.3  # but cutting off no more than this share of the nodes from all others


@dataclass(frozen=True)
class AASResult:
    """What the ascent found.

    Attributes
    ----------
    labels : (n,) int array
        Cluster of each node, numbered in the order of their modes.
    modes : (n_clusters,) int array
        Node each cluster's ascent ends in.
    parents : (n,) int array
        The ascent tree: the node each node steps to; a mode is its own parent.
    authority : (n,) float array
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


def cluster_graph(
    graph: sparse.csr_matrix,
    gamma: float = 1e2,
    epsilon: float | str = "auto",
    merge: str | None = None,
    *,
    symmetric: bool | None = None,
    relief: sparse.csr_matrix | None = None,
) -> AASResult:
    """Authority Ascent Shift on an affinity graph.

    Parameters
    ----------
    graph : (n, n) csr_matrix
    gamma, epsilon, merge
        As in `AuthorityAscentShift`.
    symmetric : bool, optional
        Whether the graph is symmetric; looked up if not given.
    relief : (n, n) csr_matrix, optional
        For merge="saddle": the graph whose authority the saddles are measured on; `graph` itself
        if not given. Locally scaled affinities hardly show the density, so features use the
        same neighbours with bandwidth="balanced".
    """
    if merge not in (None, "saddle"):
        raise ValueError(f"merge={merge!r}: use None or 'saddle'")
    omega = authority(graph, symmetric)
    relevant = choose_epsilon(graph) if isinstance(epsilon, str) else float(epsilon)
    parents = ascend(graph, omega, gamma, relevant)
    ends = follow(parents)
    if merge == "saddle":
        ends = _join_modes(ends, omega, graph if relief is None else relief, gamma)
        parents = np.where(parents == np.arange(parents.size), ends, parents)
    modes, labels = np.unique(ends, return_inverse=True)
    return AASResult(labels, modes, parents, omega, relevant)


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


class AuthorityAscentShift(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Authority Ascent Shift: clusters are the trees of an ascent on a random walk's authority.

    Nobody says how many clusters there are. Every point steps to the relevant neighbour that
    promises the largest gain of authority, until it cannot gain any more: at a mode.

    Parameters
    ----------
    n_neighbors : int
        Neighbours in the graph; reduced with a warning when there are fewer other rows.
    gamma : float
        How much a large step of authority counts against a neighbour; see `ascend` for the scale.
    epsilon : float or "auto"
        Relevance a neighbour must exceed: a threshold on affinities, as printed in the paper.
        "auto" follows the affinities; see `choose_epsilon`.
    metric : "euclidean", "cosine" or "precomputed"
        "precomputed": fit takes the affinity graph, a square (sparse) non-negative matrix.
    affinity : "gaussian" or "cosine"
    bandwidth : "local", "balanced", "global" or float
    symmetric : bool
        See `rpml.method.graph.affinity.affinity_graph`. "cosine" needs metric="cosine".
    merge : None or "saddle"
        None is the ascent as printed: it stops at every local maximum and so cuts elongated
        shapes into several pure pieces. "saddle" joins pieces divided by shallow saddles only.
    method : "auto", "exact" or "ann"
        Neighbour search; see `rpml.method.graph.affinity.nearest_neighbors`.

    Attributes
    ----------
    labels_ : (n,) int array
    modes_ : (n_clusters_,) int array
        Row each cluster's ascent ends in, ascending.
    parents_ : (n,) int array
        The ascent tree; a mode is its own parent. With merge="saddle" a joined mode points to
        the mode of highest authority it was joined with.
    authority_ : (n,) float array
        Stationary distribution of the random walk.
    epsilon_ : float
        The threshold used.
    n_clusters_ : int
    n_features_in_ : int

    Notes
    -----
    A row without relevant neighbour (isolated, or an outlier) is its own cluster. Duplicated
    rows share a cluster when nothing better is near. Zero rows are ordinary points under
    metric="euclidean" and isolated under affinity="cosine". Rows in other order give the same
    clusters, but for exactly equal gains.
    """

    def __init__(
        self,
        n_neighbors: int = 50,
        gamma: float = 1e2,
        epsilon: float | str = "auto",
        *,
        metric: str = "euclidean",
        affinity: str = "gaussian",
        bandwidth: str | float = "local",
        symmetric: bool = True,
        merge: str | None = None,
        method: str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.gamma = gamma
        self.epsilon = epsilon
        self.metric = metric
        self.affinity = affinity
        self.bandwidth = bandwidth
        self.symmetric = symmetric
        self.merge = merge
        self.method = method

    def fit(self, X: Any, y: Any = None) -> AuthorityAscentShift:
        """Find the modes of X.

        Parameters
        ----------
        X : (n, d) array; Neighbors or a pair (indices, distances); or the graph
            Features; neighbours found before; or, with metric="precomputed", affinities.
        y : ignored
        """
        self._check_parameters()
        graph, relief = self._graphs(X)
        result = cluster_graph(
            graph,
            float(self.gamma),
            self.epsilon,
            self.merge,
            symmetric=None if self.metric == "precomputed" else self.symmetric,
            relief=relief,
        )
        self.labels_ = result.labels
        self.modes_ = result.modes
        self.parents_ = result.parents
        self.authority_ = result.authority
        self.epsilon_ = result.epsilon
        self.n_clusters_ = len(result.modes)
        self._warn(graph)
        return self

    def _graphs(self, X: Any) -> tuple[sparse.csr_matrix, sparse.csr_matrix | None]:
        """The affinity graph, and the one the saddles are measured on if that is another."""
        if self.metric == "precomputed":
            X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
            return check_graph(X), None
        if isinstance(X, tuple):
            X = given_neighbors(*X, metric=self.metric)
        if isinstance(X, Neighbors):
            self.n_features_in_ = X.n_neighbors
        else:
            X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
            X = nearest_neighbors(X, self.n_neighbors, metric=self.metric, method=self.method)
        graph = as_graph(
            X, affinity=self.affinity, bandwidth=self.bandwidth, symmetric=self.symmetric
        )
        if self.merge is None or self.affinity != "gaussian" or self.bandwidth != "local":
            return graph, None
        return graph, affinity_graph(X, affinity="gaussian", bandwidth="balanced")

    def _check_parameters(self) -> None:
        for name, least in (("n_neighbors", 1), ("gamma", 0)):
            value = getattr(self, name)
            kind = Integral if name == "n_neighbors" else Real
            if not isinstance(value, kind) or isinstance(value, bool) or not float(value) >= least:
                word = "an integer" if kind is Integral else "a number"
                raise ValueError(f"{name}={value!r}: must be {word} of at least {least}")
        epsilon = self.epsilon
        if isinstance(epsilon, bool) or not (
            epsilon == "auto" or (isinstance(epsilon, Real) and 0 < float(epsilon) < np.inf)
        ):
            raise ValueError(f"epsilon={epsilon!r}: must be 'auto' or a positive number")
        if self.metric not in ("euclidean", "cosine", "precomputed"):
            raise ValueError(f"metric={self.metric!r}: use 'euclidean', 'cosine' or 'precomputed'")
        if self.merge not in (None, "saddle"):
            raise ValueError(f"merge={self.merge!r}: use None or 'saddle'")

    def _warn(self, graph: sparse.csr_matrix) -> None:
        """A threshold given by hand may suit other affinities; "auto" follows them."""
        n = graph.shape[0]
        if self.epsilon == "auto" or n < 3 or 1 < self.n_clusters_ < n:
            return
        found = "one single cluster" if self.n_clusters_ == 1 else "every row its own cluster"
        largest = float(graph.data.max(initial=0.0))
        warnings.warn(
            f"epsilon={self.epsilon} gives {found} (the largest affinity is {largest:.3g}); "
            "use another value or epsilon='auto'",
            UserWarning,
            stacklevel=3,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.metric == "precomputed"
        tags.input_tags.sparse = self.metric == "precomputed"
        return tags
