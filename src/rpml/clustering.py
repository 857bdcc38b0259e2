"""Graph -> authority modes and labels: Authority Ascent Shift (AAS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import validate_data

from rpml import _kernels_graph as kernels
from rpml._threads import run_chunks
from rpml.graph import as_graph, check_graph


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


def authority(graph: sparse.csr_matrix, symmetric: bool | None = None) -> NDArray[np.float64]:
    """Stationary distribution of the random walk on the graph."""
    degree = np.asarray(graph.sum(axis=1, dtype=np.float64)).ravel()
    total = degree.sum()
    return degree / total if total > 0 else np.full(degree.size, 1.0 / max(1, degree.size))


def ascend(
    graph: sparse.csr_matrix, omega: NDArray[np.float64], gamma: float, epsilon: float
) -> NDArray[np.intp]:
    """Parent of every node after one authority ascent step.

    omega is divided by its maximum first, so that gamma has a meaning: exp(-gamma D^2).
    """
    n = graph.shape[0]
    top = omega.max(initial=0.0)
    scaled = omega / top if top > 0 else omega
    parents = np.empty(n, dtype=np.intp)

    def work(_: int, start: int, stop: int) -> None:
        kernels.ascend_rows(
            graph.indptr, graph.indices, graph.data, scaled, gamma, epsilon, parents, start, stop
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
    """Median over the nodes of the affinity to their ~7th strongest neighbour."""
    return float(np.median(graph.data)) if graph.nnz else 1.0


def cluster_graph(
    graph: sparse.csr_matrix,
    gamma: float = 1e2,
    epsilon: float | str = "auto",
    merge: str | None = None,
) -> AASResult:
    """Authority Ascent Shift on an affinity graph."""
    omega = authority(graph)
    threshold = choose_epsilon(graph) if isinstance(epsilon, str) else float(epsilon)
    parents = ascend(graph, omega, gamma, threshold)
    modes, labels = np.unique(follow(parents), return_inverse=True)
    return AASResult(labels, modes, parents, omega, threshold)


class AuthorityAscentShift(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Authority Ascent Shift clustering."""

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
    ) -> None:
        self.n_neighbors = n_neighbors
        self.gamma = gamma
        self.epsilon = epsilon
        self.metric = metric
        self.affinity = affinity
        self.bandwidth = bandwidth
        self.symmetric = symmetric
        self.merge = merge

    def fit(self, X: Any, y: Any = None) -> AuthorityAscentShift:
        """Find the modes of X."""
        if self.metric == "precomputed":
            graph = check_graph(X)
            self.n_features_in_ = graph.shape[1]
        else:
            X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
            graph = as_graph(
                X,
                self.n_neighbors,
                metric=self.metric,
                affinity=self.affinity,
                bandwidth=self.bandwidth,
                symmetric=self.symmetric,
            )
        result = cluster_graph(graph, self.gamma, self.epsilon, self.merge)
        self.labels_ = result.labels
        self.modes_ = result.modes
        self.parents_ = result.parents
        self.authority_ = result.authority
        self.epsilon_ = result.epsilon
        self.n_clusters_ = len(result.modes)
        return self
