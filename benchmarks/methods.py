"""Methods that only the pages compare: other clusterings, other losses, rare baselines."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from adaptor import MatryoshkaAdaptor
from deep_baselines import ALL as DEEP_METHODS
from heads import head
from losses import LOSSES, ReferenceLoss
from numpy.typing import NDArray
from partitions import KMeansPartition, LeidenPartition
from scipy import sparse
from scipy.linalg import eigh
from sklearn.cluster import HDBSCAN
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.exceptions import ConvergenceWarning

from rpml.estimator import RPML
from rpml.evaluation.registry import (
    LDA,
    METHODS,
    Build,
    LinearBaseline,
    Method,
    checked_axes,
    checked_size,
    seeded,
    trained,
    unseeded,
)
from rpml.method.clustering.ascent import affinity_graph
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.whitening.linear_map import Preprocessing, principal_axes, whitening
from rpml.runtime.rows import Array, RandomState, unit_rows

N_NEIGHBORS = 10  # of LPP
VARIANCE = 0.9  # share that its PCA keeps: axes with little variance look local and are noise
RIDGE = 1e-3  # share of the mean spread added to its diagonal
LOSS_TITLES = dict(
    zip(
        LOSSES,
        (
            "hinge triplet loss",
            "hinge angular loss",
            "smooth angular loss, unweighted",
            "smooth angular loss, unconstrained",
        ),
        strict=True,
    )
)


class ShrunkWhitening(LinearBaseline):
    """PCA whitening by the estimate (1 - s) S + s tr(S)/d I of the covariance; `shrinkage_` is s.

    O. Ledoit, M. Wolf, "A well-conditioned estimator for large-dimensional covariance matrices"
    (Journal of Multivariate Analysis, 2004).
    """

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum, size = checked_axes(X, self.n_components, "shrunk whitening")
        self.shrinkage_ = float(ledoit_wolf_shrinkage(unit_rows(np.asarray(X, np.float64))))
        ridge = self.shrinkage_ * spectrum.variances.sum() / X.shape[1]
        variances = (1 - self.shrinkage_) * spectrum.variances[:size] + ridge
        axes = spectrum.axes[:, :size] * np.sqrt(variances[0] / variances)
        return Preprocessing(True, spectrum.mean, axes, True)


class AllButTheTop(LinearBaseline):
    """Subtract the mean, remove the leading principal axes, retain the next ones.

    J. Mu, P. Viswanath, "All-but-the-top: simple and effective postprocessing for word
    representations" (ICLR 2018), followed by PCA. `n_removed` is by default a hundredth of the
    features, the authors' rule.
    """

    def __init__(self, n_components: int = 2, *, n_removed: int | None = None) -> None:
        self.n_components = n_components
        self.n_removed = n_removed

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum = principal_axes(X, unit_input=True)
        removed = round(X.shape[1] / 100) if self.n_removed is None else self.n_removed
        room = len(spectrum.variances) - removed
        limit = "the rank of the centered rows without the removed axes"
        size = checked_size(self.n_components, room, "all-but-the-top", limit)
        axes = spectrum.axes[:, removed : removed + size]
        return Preprocessing(True, spectrum.mean, axes, True)


class LPP(LinearBaseline):
    """Axes along which neighbors differ least, relative to the spread of all rows.

    He and Niyogi (2003): PCA, then the generalized eigenproblem X' (D - W) X a = v X' D X a for the
    smallest v, where W are the cosine affinities of the k-NN graph.
    """

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum, size = checked_axes(X, self.n_components, "LPP")
        share = np.cumsum(spectrum.variances) / spectrum.variances.sum()
        n_axes = min(len(share), max(size, 1 + int(np.searchsorted(share, VARIANCE))))
        first = whitening(spectrum, 0.0, n_axes, unit_input=True, unit_output=False)
        rows = first.apply(X).astype(np.float64)
        neighbors = nearest_neighbors(rows, min(N_NEIGHBORS, len(rows) - 1), metric="cosine")
        axes = _local_axes(rows, affinity_graph(neighbors))[:, :size]
        return Preprocessing(True, first.mean, first.matrix @ axes, True)


def _local_axes(rows: Array, graph: sparse.csr_matrix) -> Array:
    """Solve the generalized eigenproblem; the most local axes come first."""
    degrees = np.asarray(graph.sum(axis=1), dtype=np.float64).reshape(-1, 1)
    spread = rows.T @ (rows * degrees)
    local = spread - rows.T @ (graph.astype(np.float64) @ rows)
    spread += (RIDGE * np.trace(spread) / len(spread) + 1e-12) * np.eye(len(spread))
    return np.asarray(eigh((local + local.T) / 2, spread)[1])


class PseudoLabelLDA(LinearBaseline):
    """LDA on the labels of RPML's clustering; rows alone in their cluster are ignored."""

    def __init__(self, n_components: int = 2, *, random_state: RandomState = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        clustering = RPML(
            self.n_components, max_iter=0, training="always", random_state=self.random_state
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # no iterations are intended
            labels = clustering.fit(X).labels_
        together = (labels >= 0) & (np.bincount(labels[labels >= 0])[labels] > 1)
        return LDA(self.n_components).fit(X[together], labels[together]).map_


def clustered(partition: Callable[[RandomState], object]) -> Build:
    """Return the constructor of RPML on another clustering, built for the seed."""
    return lambda n_components, seed: RPML(
        n_components, clustering=partition(seed), training="always", random_state=seed
    )


_EXTRA = (
    Method("all-but-the-top", "all-but-the-top", unseeded(AllButTheTop)),
    Method("lpp", "LPP", unseeded(LPP)),
    Method("aas-lda", "AAS + LDA", seeded(PseudoLabelLDA)),
    Method("shrunk-whitened", "whitened PCA, shrunk", unseeded(ShrunkWhitening)),
    Method("adaptor", "Matryoshka-Adaptor", seeded(MatryoshkaAdaptor)),
    Method("adaptor-linear", "Matryoshka-Adaptor, linear", seeded(MatryoshkaAdaptor, hidden=0)),
    Method("rpml-untrained", "RPML before training", seeded(RPML, max_iter=0)),
    Method("rpml-kmeans", "RPML on k-means", clustered(KMeansPartition)),
    Method("rpml-hdbscan", "RPML on HDBSCAN", clustered(lambda seed: HDBSCAN(copy=True))),
    Method("rpml-leiden", "RPML on Leiden", clustered(LeidenPartition)),
    Method("rpml-constant", "RPML, constant weights", trained(weight="constant")),
    Method("srpml-bilinear", "sRPMLv1", trained(solver="stochastic", weight="bilinear")),
    Method(
        "srpml-constant",
        "sRPML, constant weights",
        trained(solver="stochastic", weight="constant"),
    ),
    Method("paper-bilinear", "RPMLv1 as printed", seeded(RPML.paper, weight="bilinear")),
    *(
        Method(f"loss-{loss}", title, seeded(ReferenceLoss, loss=loss))
        for loss, title in LOSS_TITLES.items()
    ),
    *(head(name) for name in DEEP_METHODS),
)
ALL: dict[str, Method] = METHODS | {method.name: method for method in _EXTRA}
"""Every method of the pages by name."""
