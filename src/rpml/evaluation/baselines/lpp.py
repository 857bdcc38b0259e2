"""Locality preserving projections, without labels."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh

from rpml.evaluation.baselines.linear import LinearBaseline, checked_axes
from rpml.method.graph.affinity import affinity_graph
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.whitening.linear_map import Preprocessing, whitening
from rpml.runtime.rows import Array

N_NEIGHBORS = 10
VARIANCE = 0.9  # share that the PCA keeps: axes with little variance look local and are noise
RIDGE = 1e-3  # share of the mean spread added to its diagonal


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
        axes = _local_axes(rows, affinity_graph(neighbors), RIDGE)[:, :size]
        return Preprocessing(True, first.mean, first.matrix @ axes, True)


def _local_axes(rows: Array, graph: sparse.csr_matrix, ridge: float) -> Array:
    """Solve the generalized eigenproblem; the most local axes come first."""
    degrees = np.asarray(graph.sum(axis=1), dtype=np.float64).reshape(-1, 1)
    spread = rows.T @ (rows * degrees)
    local = spread - rows.T @ (graph.astype(np.float64) @ rows)
    spread += (ridge * np.trace(spread) / len(spread) + 1e-12) * np.eye(len(spread))
    return np.asarray(eigh((local + local.T) / 2, spread)[1])
