"""Authority Ascent Shift (AAS) as a scikit-learn clusterer."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import validate_data

from rpml.method.clustering.ascent import GraphAscent
from rpml.method.graph.affinity import affinity_graph, bandwidths, check_graph, given_neighbors
from rpml.method.graph.neighbors import Neighbors, nearest_neighbors

_CHOICES: dict[str, tuple[Any, ...]] = {
    "metric": ("euclidean", "cosine", "precomputed"),
    "affinity": ("gaussian", "cosine"),
    "merge": (None, "saddle"),
    "method": ("auto", "exact", "ann", "hnsw"),
}


class AuthorityAscentShift(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Authority Ascent Shift: clusters are the trees of an ascent on a random walk's authority.

    Nobody says how many clusters there are. Every point steps to the relevant neighbour that
    promises the largest gain of authority, until it cannot gain any more: at a mode.

    Parameters
    ----------
    n_neighbors : int, default=50
        Neighbours in the graph; reduced with a warning when there are fewer other rows.
    gamma : float, default=100.0
        How much a large step of authority counts against a neighbour.
        Authorities are scaled to a maximum of 1/10.
    epsilon : float or "auto", default="auto"
        Relevance a neighbour must exceed: a threshold on affinities, as printed in the paper.
        "auto" follows the affinities; see `choose_epsilon`.
    metric : "euclidean", "cosine" or "precomputed", default="euclidean"
        "precomputed": fit takes the affinity graph, a square (sparse) non-negative matrix.
    affinity : "gaussian" or "cosine", default="gaussian"
    bandwidth : "local", "balanced", "global" or float, default="local"
    symmetric : bool, default=True
        See `rpml.method.graph.affinity.affinity_graph`. "cosine" needs metric="cosine".
    merge : None or "saddle", default=None
        None is the ascent as printed: it stops at every local maximum and so cuts elongated
        shapes into several pure pieces. "saddle" joins pieces divided by shallow saddles only.
    method : "auto", "exact" or "ann", default="auto"
        Neighbour search; see `rpml.method.graph.affinity.nearest_neighbors`.

    Attributes
    ----------
    labels_ : int ndarray of shape (n_samples,)
    modes_ : int ndarray of shape (n_clusters_,)
        Row each cluster's ascent ends in, ascending.
    parents_ : int ndarray of shape (n_samples,)
        The ascent tree; a mode is its own parent. With merge="saddle" a joined mode points to
        the mode of highest authority it was joined with.
    authority_ : ndarray of shape (n_samples,)
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

    def fit(
        self, X: ArrayLike | Neighbors | sparse.spmatrix, y: object = None
    ) -> AuthorityAscentShift:
        """Find the modes of X.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features), Neighbors, (indices, distances) or graph
            Features; neighbours found before; or, with metric="precomputed", affinities.
        y : ignored, default=None
        """
        ascent = self.ascent(X)
        result = ascent.run(self.epsilon)
        self.labels_ = result.labels
        self.modes_ = result.modes
        self.parents_ = result.parents
        self.authority_ = result.authority
        self.epsilon_ = result.epsilon
        self.n_clusters_ = len(result.modes)
        self._warn(ascent.graph)
        return self

    def ascent(self, X: ArrayLike | Neighbors | sparse.spmatrix) -> GraphAscent:
        """The graph of X, ready to ascend; takes what `fit` takes.

        The one way in which this package runs Authority Ascent Shift in memory.
        """
        self.check_parameters()
        graph, relief = self._graphs(X)
        symmetric = None if self.metric == "precomputed" else self.symmetric
        return GraphAscent(graph, float(self.gamma), self.merge, symmetric, relief)

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
        graph = affinity_graph(
            X, affinity=self.affinity, bandwidth=self.bandwidth, symmetric=self.symmetric
        )
        if self.merge is None or self.affinity != "gaussian" or self.bandwidth != "local":
            return graph, None
        return graph, affinity_graph(X, affinity="gaussian", bandwidth="balanced")

    def check_parameters(self) -> None:
        """Raise a ValueError for a setting that no fit could use."""
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
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if not any(value is choice or value == choice for choice in choices):
                *others, last = (repr(choice) for choice in choices)
                raise ValueError(f"{name}={value!r}: use {', '.join(others)} or {last}")
        if self.affinity == "cosine" and self.metric == "euclidean":
            raise ValueError(
                "affinity='cosine' needs neighbours of metric='cosine', got 'euclidean'"
            )
        bandwidths(np.ones(1), self.bandwidth)

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
