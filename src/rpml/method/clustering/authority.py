"""The authority of a graph: the stationary distribution of a random walk."""

import logging

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

logger = logging.getLogger(__name__)

_TELEPORT = 0.05  # probability of a jump, on a graph that is not strongly connected
_MAX_STEPS = 1000  # of the power iteration


def authority(graph: sparse.csr_matrix, symmetric: bool | None = None) -> NDArray[np.float64]:
    """Return the stationary distribution omega of the random walk P = D^-1 W, (n_samples,).

    On a symmetric graph, connected or not, omega_i = d_i / sum d. On a directed one it is
    iterated: a strongly connected graph has one stationary distribution, to which the lazy walk
    (I + P) / 2 converges even if P is periodic; on any other graph the walker also jumps to a
    random node with probability 0.05, and always from a node without edges, which makes the
    distribution unique and the iteration converge. It is uniform if there are no edges.
    `symmetric` is tested if None.
    """
    degree = np.asarray(graph.sum(axis=1, dtype=np.float64)).ravel()
    if not degree.any():
        return np.full(degree.size, 1.0 / degree.size)
    if is_symmetric(graph) if symmetric is None else symmetric:
        return np.asarray(degree / degree.sum())
    return _power_iteration(graph, degree)


def is_symmetric(graph: sparse.csr_matrix) -> bool:
    """Whether W equals its transpose exactly."""
    other = graph.T.tocsr()
    graph = graph if graph.has_sorted_indices else graph.sorted_indices()
    return (
        np.array_equal(graph.indptr, other.indptr)
        and np.array_equal(graph.indices, other.indices)
        and np.array_equal(graph.data, other.data)
    )


def _power_iteration(graph: sparse.csr_matrix, degree: NDArray[np.float64]) -> NDArray[np.float64]:
    n = degree.size
    arrive = graph.T.tocsr().astype(np.float64)  # rows collect the incoming probability
    share = np.where(degree > 0, 1.0 / np.where(degree > 0, degree, 1.0), 0.0)
    strong = connected_components(graph, connection="strong", return_labels=False) == 1
    jump = 0.0 if strong else _TELEPORT
    omega = np.full(n, 1.0 / n)
    for _ in range(_MAX_STEPS):
        flow = arrive @ (omega * share)
        flow += (1.0 - flow.sum()) / n  # from nodes without edges
        step = 0.5 * (omega + flow) if strong else (1.0 - jump) * flow + jump / n
        step /= step.sum()
        change = float(np.abs(step - omega).sum())
        omega = step
        if change < 1e-10:
            return np.asarray(omega)
    logger.info("authority: %d steps, last change %.1e", _MAX_STEPS, change)
    return np.asarray(omega)
