"""The sparse affinity graph of a set of neighbors, on which AAS runs its random walk."""

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from rpml.method.graph.neighbors import Neighbors
from rpml.runtime.rows import slices

_LOCAL_NEIGHBOR = 7  # its distance is a point's bandwidth (Zelnik-Manor and Perona, 2004)


def affinity_graph(
    neighbors: Neighbors,
    *,
    affinity: str = "cosine",
    bandwidth: str | float = "local",
    symmetric: bool = True,
) -> sparse.csr_matrix:
    """Return the (n, n) float32 graph of affinities between rows and their neighbors.

    The affinity "cosine" is max(0, cos) and needs neighbors of metric="cosine"; "gaussian" is
    exp(-|x_i - x_j|^2 / (2 s_i s_j)). s_i is the distance to the 7th neighbor of i ("local"), its
    median over all rows ("global"), their geometric mean ("balanced") or a number. Local
    affinities are comparable across dense and sparse regions but independent of the density,
    global ones are the opposite. A `symmetric` graph has an edge if either end found the other
    (the union, max(W, W')). Both ends give it the same weight, so nothing is averaged and no point
    loses its neighbors.
    """
    n, k = neighbors.indices.shape
    weight = _cosine_weights if affinity == "cosine" else partial(_gaussian_weights, bandwidth)
    indptr = np.arange(0, n * k + 1, k, dtype=np.int64 if 2 * n * k > 2**31 - 1 else np.int32)
    # copy the indices: sorting the matrix must not reorder the caller's neighbors
    columns = neighbors.indices.ravel().copy()
    weights = weight(neighbors).ravel()
    graph = sparse.csr_matrix((weights, columns, indptr), shape=(n, n), copy=False)
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph.maximum(graph.T.tocsr()) if symmetric else graph


def _cosine_weights(neighbors: Neighbors) -> NDArray[np.float32]:
    if neighbors.metric != "cosine":
        raise ValueError(
            f"affinity='cosine' needs neighbors of metric='cosine', got {neighbors.metric!r}"
        )
    half = np.square(neighbors.distances, dtype=np.float32) * np.float32(0.5)
    return np.asarray(np.maximum(np.float32(1.0) - half, np.float32(0.0)))


def _gaussian_weights(bandwidth: str | float, neighbors: Neighbors) -> NDArray[np.float32]:
    scale = _bandwidths(bandwidth, neighbors)
    out = np.empty(neighbors.indices.shape, dtype=np.float32)
    for part in slices(len(out), 65536):
        square = np.square(neighbors.distances[part], dtype=np.float64)
        square /= 2.0 * scale[part, None] * scale[neighbors.indices[part]]
        out[part] = np.exp(-square)
    return out


def _bandwidths(bandwidth: str | float, neighbors: Neighbors) -> NDArray[np.float64]:
    """Return s_i of every row."""
    if not isinstance(bandwidth, str):
        return np.full(len(neighbors.indices), float(bandwidth))
    near = neighbors.distances[:, min(_LOCAL_NEIGHBOR, neighbors.n_neighbors) - 1].astype(float)
    # a point among duplicates gets the typical scale, or its other edges would vanish
    typical = float(np.median(near[near > 0])) if (near > 0).any() else 1.0
    local = np.where(near > 0, near, typical)
    share = {"local": 1.0, "balanced": 0.5, "global": 0.0}[bandwidth]
    return np.asarray(typical * (local / typical) ** share)


def check_graph(graph: ArrayLike | sparse.spmatrix) -> sparse.csr_matrix:
    """Validate a user's affinity graph: square, finite, non-negative; the diagonal is dropped."""
    graph = sparse.csr_matrix(graph, copy=True)  # it changes below
    if graph.shape[0] != graph.shape[1]:
        raise ValueError(f"precomputed graph: must be square, got {graph.shape}")
    if not np.isfinite(graph.data).all():
        raise ValueError("precomputed graph: affinities must be finite")
    if graph.nnz and graph.data.min() < 0:
        raise ValueError(
            f"precomputed graph: affinities must be non-negative, got {graph.data.min()}"
        )
    if graph.diagonal().any():
        graph.setdiag(0)
    graph.sum_duplicates()
    graph.eliminate_zeros()
    return graph
