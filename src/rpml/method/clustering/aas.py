"""Authority Ascent Shift (AAS) as a scikit-learn clusterer."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from numbers import Integral, Real
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import validate_data

from rpml.method.clustering.ascent import GraphAscent, affinity_graph
from rpml.method.clustering.hierarchy import MERGE_NEIGHBORS, merge_basins
from rpml.method.graph.neighbors import Neighbors, nearest_neighbors
from rpml.runtime.rows import as_matrix

_COUNT = Interval(Integral, 1, None, closed="left")
_POSITIVE = Interval(Real, 0, None, closed="neither")


@dataclass(repr=False, eq=False)
class AuthorityAscentShift(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Authority Ascent Shift: clusters from an ascent on a random walk's authority.

    Every row steps to the relevant neighbor with the largest gain of authority until no gain is
    possible, at a mode. The rows that end in one mode are a basin, which is what the paper calls a
    cluster (``merge=None``). Basins are small and pure. By default they are the leaves of a tree:
    average linkage of the affinities between their rows. The tree is cut into `n_clusters`, or
    where the clusters are most informative about the graph and persist longest.

    Parameters
    ----------
    n_neighbors : int, default=50
        Neighbors in the graph; reduced with a warning when there are fewer other rows.
    gamma : float, default=100.0
        How strongly large steps of authority count against a neighbor. Authorities are scaled to a
        maximum of 1/10.
    epsilon : float or "auto", default="auto"
        Relevance that a neighbor must exceed: a threshold on affinities, as printed in the paper.
        "auto" adapts to the affinities; see `choose_epsilon`.
    metric : "euclidean" or "cosine", default="euclidean"
    affinity : "gaussian" or "cosine", default="gaussian"
        Weight of an edge of the graph; "cosine" needs metric="cosine".
    merge : "average" or None, default="average"
        "average" merges the basins (not in the paper). None is the ascent as printed.
    n_clusters : int, default=None
        Number of clusters, fewer with a warning if there are fewer leaves; None cuts the tree by
        persistence, into at least 2 clusters if there are 2 leaves.
    min_cluster_size : int, default=5
        Smaller basins join the neighbor with the largest affinity. Only an unconnected part of the
        graph may be smaller. `n_clusters` and `min_cluster_size` are for merge="average".
    method : "auto", "exact" or "ann", default="auto"
        Neighbor search; see `rpml.method.graph.neighbors.nearest_neighbors`.

    Attributes
    ----------
    labels_ : int ndarray of shape (n_samples,)
        Cluster of each row, numbered in the order of their modes.
    modes_ : int ndarray of shape (n_clusters_,)
        Row of highest authority in each cluster, in which its ascent ends; ascending.
    parents_ : int ndarray of shape (n_samples,)
        The ascent tree; a mode is its own parent. In a merged cluster the other modes, and rows
        whose step leaves the cluster, point to its mode.
    leaves_ : int ndarray of shape (n_samples,)
        Leaf of the merge tree each row belongs to: its basin, once small ones were joined. Like
        the three attributes of the tree that follow, only with merge="average".
    children_ : int ndarray of shape (n_leaves - 1, 2)
        The merges, as in `sklearn.cluster.AgglomerativeClustering`: values below n_leaves are
        leaves, a value i above is the node that merge ``i - n_leaves`` made.
    distances_ : ndarray of shape (n_leaves - 1,)
        Log of the mean affinity at the first merge over that at each; ascending. A cluster
        persists from its own merge to the next one up.
    counts_ : int ndarray of shape (n_leaves - 1,)
        Leaves under each merge: with them the tree is a linkage matrix of scipy.
    authority_ : ndarray of shape (n_samples,)
        Stationary distribution of the random walk.
    epsilon_ : float
        The threshold used.
    n_clusters_ : int
        Number of clusters.
    n_features_in_ : int
        Number of features of X, or of given neighbors per row.

    Notes
    -----
    A row without relevant neighbors (isolated, or an outlier) is its own cluster. Duplicated rows
    share a cluster if nothing better is near. Zero rows are ordinary points under
    metric="euclidean" and isolated under affinity="cosine". The order of the rows only matters for
    exactly equal gains. Finally, with merge="average", rows on a border move to the cluster with
    the largest affinity, so that a few leaves are split between clusters.

    Examples
    --------
    >>> from scipy.cluster.hierarchy import dendrogram
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(800, centers=8, n_features=10, random_state=0)
    >>> aas = AuthorityAscentShift().fit(X)
    >>> aas.n_clusters_
    8
    >>> linkage = np.column_stack([aas.children_, aas.distances_, aas.counts_])
    >>> tree = dendrogram(linkage, no_plot=True)
    >>> AuthorityAscentShift(n_clusters=3).fit(X).n_clusters_
    3
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "n_neighbors": [_COUNT],
        "gamma": [Interval(Real, 0, None, closed="left")],
        "epsilon": [StrOptions({"auto"}), _POSITIVE],
        "metric": [StrOptions({"euclidean", "cosine"})],
        "affinity": [StrOptions({"gaussian", "cosine"})],
        "merge": [StrOptions({"average"}), None],
        "n_clusters": [_COUNT, None],
        "min_cluster_size": [_COUNT],
        "method": [StrOptions({"auto", "exact", "ann"})],
    }

    n_neighbors: int = 50
    gamma: float = 1e2
    epsilon: float | str = "auto"
    _: KW_ONLY
    metric: str = "euclidean"
    affinity: str = "gaussian"
    merge: str | None = "average"
    n_clusters: int | None = None
    min_cluster_size: int = 5
    method: str = "auto"

    def fit(self, X: ArrayLike | Neighbors, y: object = None) -> AuthorityAscentShift:
        """Cluster the rows of X.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features) or Neighbors
            Features, or neighbors that `nearest_neighbors` found.
        y : ignored, default=None
        """
        ascent = self.ascent(X)
        result = ascent.run(self.epsilon)
        self.labels_, self.modes_, self.parents_ = result.labels, result.modes, result.parents
        self.authority_, self.epsilon_ = result.authority, result.epsilon
        self.n_clusters_ = len(result.modes)
        for name in ("leaves_", "children_", "distances_", "counts_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if (tree := result.tree) is not None:
            self.leaves_ = result.leaves
            self.children_ = tree.children
            self.distances_ = tree.distances
            self.counts_ = tree.totals(np.ones(tree.n_leaves))[tree.n_leaves :].astype(np.intp)
        self._warn(ascent.graph)
        return self

    def ascent(self, X: ArrayLike | Neighbors) -> GraphAscent:
        """Return the graph of X, ready to ascend; takes the same input as `fit`."""
        self.check_parameters()
        if isinstance(X, Neighbors):
            self.n_features_in_, neighbors = X.n_neighbors, X
        else:
            rows = validate_data(
                self, as_matrix(X), dtype=[np.float64, np.float32], ensure_min_samples=2
            )
            neighbors = nearest_neighbors(
                rows, self.n_neighbors, metric=self.metric, method=self.method
            )
        merge = None
        if self.merge:
            merge = partial(
                merge_basins,
                affinity_graph(neighbors.first(MERGE_NEIGHBORS), self.affinity),
                n_clusters=self.n_clusters,
                min_cluster_size=self.min_cluster_size,
            )
        return GraphAscent(affinity_graph(neighbors, self.affinity), float(self.gamma), merge)

    def check_parameters(self) -> None:
        self._validate_params()
        if isinstance(self.epsilon, bool):  # a number to scikit-learn
            raise ValueError(f"epsilon={self.epsilon}: use 'auto' or a positive number")
        if self.merge is None and self.n_clusters is not None:
            raise ValueError(
                f"n_clusters={self.n_clusters} with merge=None: the ascent as printed finds its "
                "own number of clusters; use merge='average'"
            )
        if self.affinity == "cosine" and self.metric == "euclidean":
            raise ValueError(
                "affinity='cosine' needs neighbors of metric='cosine', got 'euclidean'"
            )

    def _warn(self, graph: sparse.csr_matrix) -> None:
        """Warn if a user's threshold may not suit the affinities."""
        n = graph.shape[0]
        if self.epsilon == "auto" or n < 3 or 1 < self.n_clusters_ < n:
            return
        outcome = "a single cluster" if self.n_clusters_ == 1 else "every row its own cluster"
        largest = float(graph.data.max(initial=0.0))
        warnings.warn(
            f"epsilon={self.epsilon} gives {outcome} (the largest affinity is {largest:.3g}); "
            "use another value or epsilon='auto'",
            stacklevel=3,
        )
