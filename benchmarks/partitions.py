"""Alternatives to AAS as a source of pseudo-labels.

So that only the partition differs, k-means and Leiden get the number of clusters of two or more
rows that AAS finds on the same rows. HDBSCAN finds its own number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state

from rpml.evaluation.metrics import kmeans
from rpml.method.clustering.ascent import affinity_graph
from rpml.method.clustering.pseudo_labels import as_clusterer
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.errors import require
from rpml.runtime.rows import Labels, RandomState

if TYPE_CHECKING:
    import igraph


Rows = NDArray[np.float32]
N_NEIGHBORS = 50


def count_clusters(labels: Labels) -> int:
    """Return the number of clusters of two or more rows, but at least 2."""
    return max(2, int((np.bincount(labels[labels >= 0]) > 1).sum()))


class _SizedPartition(ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A clustering with `n_clusters`, by default as many as AAS finds."""

    def __init__(self, random_state: RandomState = None, n_clusters: int | None = None) -> None:
        self.random_state = random_state
        self.n_clusters = n_clusters

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Cluster the rows of X; y is ignored."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = np.asarray(X, np.float32)
        n_clusters = min(self.n_clusters or self._aas_count(rows), len(rows))
        self.labels_ = self._partition(rows, n_clusters, seed)
        return self

    @abstractmethod
    def _partition(self, X: Rows, n_clusters: int, seed: int) -> Labels:
        """Cluster the rows into about this many clusters."""

    @staticmethod
    def _aas_count(X: Rows) -> int:
        aas = as_clusterer("aas", min(N_NEIGHBORS, len(X) - 1))
        return count_clusters(np.asarray(aas.fit_predict(X)))


class KMeansPartition(_SizedPartition):
    """k-means."""

    def _partition(self, X: Rows, n_clusters: int, seed: int) -> Labels:
        return kmeans(X, n_clusters, np.random.default_rng(seed), n_init=1).labels_


class LeidenPartition(_SizedPartition):
    """Leiden communities of the k-NN graph, as close to the number as the resolution allows."""

    def _partition(self, X: Rows, n_clusters: int, seed: int) -> Labels:
        igraph = require("igraph", "compare", "Leiden clustering")
        near = nearest_neighbors(X, min(N_NEIGHBORS, len(X) - 1))
        graph = sparse.triu(affinity_graph(near), format="coo")
        edges = np.stack([graph.row, graph.col], axis=1).tolist()
        network = igraph.Graph(n=len(X), edges=edges, edge_attrs={"weight": graph.data.tolist()})
        return _leiden_of_size(network, n_clusters, seed)


def _leiden_of_size(network: igraph.Graph, n_clusters: int, seed: int) -> Labels:
    """Bisect the resolution on a log scale for the closest number of clusters."""
    import random

    low, high = 1e-2, 1e3
    best: tuple[float, Labels] | None = None
    for _ in range(10):
        resolution = float(np.sqrt(low * high))
        # igraph draws from Python's generator: use a new one instead of the global one
        require("igraph", "compare", "Leiden").set_random_number_generator(random.Random(seed))
        communities = network.community_leiden(
            "modularity", weights="weight", resolution=resolution
        )
        labels = np.asarray(communities.membership, np.intp)
        count = count_clusters(labels)
        miss = abs(np.log(count / n_clusters))
        if best is None or miss < best[0]:
            best = (miss, labels)
        low, high = (resolution, high) if count < n_clusters else (low, resolution)
        if miss < 0.05:
            break
    assert best is not None
    return best[1]
