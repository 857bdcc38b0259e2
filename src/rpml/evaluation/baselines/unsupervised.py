"""Label-free baselines: no map, fixed projections, the PCA family, locality preservation."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh
from sklearn.utils import check_random_state

from rpml.evaluation.baselines.linear import (
    LinearBaseline,
    checked_axes,
    checked_rank,
    checked_size,
)
from rpml.method.graph.affinity import affinity_graph
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.whitening.linear_map import Preprocessing, principal_axes, whitening
from rpml.runtime.rows import Array, RandomState

N_NEIGHBORS = 10
VARIANCE = 0.9  # share that the PCA keeps: axes with little variance look local and are noise
RIDGE = 1e-3  # share of the mean spread added to its diagonal


class Raw(LinearBaseline):
    """No map at all."""

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        d = X.shape[1]
        return Preprocessing(True, np.zeros(d), np.eye(d), False)


class Truncation(LinearBaseline):
    """Keep the leading columns of the rows, scaled to unit norm; nothing is learned."""

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        d = X.shape[1]
        size = checked_size(self.n_components, d, "truncation", "the number of features")
        return Preprocessing(True, np.zeros(d), np.eye(d, size), True)


class RandomProjection(LinearBaseline):
    """Project on a uniformly random subspace."""

    def __init__(self, n_components: int = 2, *, random_state: RandomState = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        d = X.shape[1]
        size = checked_size(self.n_components, d, "a random projection", "the number of features")
        draws = check_random_state(self.random_state).standard_normal((d, size))
        return Preprocessing(True, np.zeros(d), np.linalg.qr(draws)[0], True)


class PCA(LinearBaseline):
    """Project on the leading principal axes, divided by a power of their standard deviation.

    The exponent 0 is PCA, 1 is PCA whitening, 1/2 is half-whitening (S^-1/2).
    """

    def __init__(self, n_components: int = 2, *, exponent: float = 0.0) -> None:
        self.n_components = n_components
        self.exponent = exponent

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum, size = checked_axes(X, self.n_components, "PCA")
        return whitening(spectrum, self.exponent, size, unit_input=True, unit_output=True)


class WhitenedDescriptors(LinearBaseline):
    """All principal axes, at most 512, whitened: the descriptors of the paper.

    `n_components` is ignored, since the size is always the same.
    """

    MOST = 512

    def __init__(self, n_components: int = 2) -> None:
        self.n_components = n_components

    def _learn(self, X: Array, y: NDArray[np.intp] | None) -> Preprocessing:
        spectrum = principal_axes(X, unit_input=True, center=True)
        return whitening(spectrum, 1.0, self.MOST, unit_input=True, unit_output=True)


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
        spectrum = principal_axes(X, unit_input=True, center=True)
        removed = round(X.shape[1] / 100) if self.n_removed is None else self.n_removed
        room = len(spectrum.variances) - removed
        size = checked_rank(self.n_components, room, "all-but-the-top", X.shape[1])
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
        axes = _local_axes(rows, affinity_graph(neighbors), RIDGE)[:, :size]
        return Preprocessing(True, first.mean, first.matrix @ axes, True)


def _local_axes(rows: Array, graph: sparse.csr_matrix, ridge: float) -> Array:
    """Solve the generalized eigenproblem; the most local axes come first."""
    degrees = np.asarray(graph.sum(axis=1), dtype=np.float64).reshape(-1, 1)
    spread = rows.T @ (rows * degrees)
    local = spread - rows.T @ (graph.astype(np.float64) @ rows)
    spread += (ridge * np.trace(spread) / len(spread) + 1e-12) * np.eye(len(spread))
    return np.asarray(eigh((local + local.T) / 2, spread)[1])
