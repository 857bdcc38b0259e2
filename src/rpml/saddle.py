"""Joining neighbouring modes over shallow saddles of the authority (an addition to the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

DEPTH = 0.55  # a pass this high against the lower of its two basins joins them


@dataclass(frozen=True)
class _Basins:
    """The graph with every basin shrunk to one node.

    `mass` sums the affinities between (off the diagonal) and inside (on it) the basins, `lifted`
    the same weighted with the authority of the lower end, so that lifted / mass is a mean height.
    """

    mass: sparse.csr_matrix
    lifted: sparse.csr_matrix
    top: NDArray[np.float64]  # height of a basin without inner edges

    def shrink(self, labels: NDArray[np.intp]) -> _Basins:
        """Join the basins that share a label."""
        top = np.zeros(labels.max() + 1)
        np.maximum.at(top, labels, self.top)
        return _Basins(_shrink(self.mass, labels), _shrink(self.lifted, labels), top)


def join_basins(
    graph: sparse.csr_matrix,
    omega: NDArray[np.float64],
    labels: NDArray[np.intp],
    epsilon: float,
    depth: float = DEPTH,
) -> NDArray[np.intp]:
    """Join basins whose pass is hardly lower than the basins themselves.

    The height of a pass is the mean, over the edges (affinity above epsilon) that cross it and
    weighted by affinity, of the smaller authority of the two ends; the height of a basin is the
    same mean over its inner edges. Means of many edges, where the usual persistence compares a
    single highest pass with a single peak: one stray point between two clusters, or one lucky
    peak, decides nothing. Only ratios of authorities are used, so no scale has to be set. Each
    round joins every basin with the neighbour across its highest pass, if that pass reaches
    `depth` times the lower of the two basins, until no pass does.

    Parameters
    ----------
    graph : (n, n) csr_matrix
    omega : (n,) array, the authority
    labels : (n,) int array, the basins, numbered from 0
    epsilon : float
    depth : float

    Returns
    -------
    (n,) int array, the joined basins, numbered from 0.
    """
    basins = _nodes(graph, omega, epsilon).shrink(labels)
    while True:
        low, high = _highest_passes(basins, depth)
        if not low.size:
            return labels
        hooks = sparse.coo_matrix((np.ones(low.size), (low, high)), shape=basins.mass.shape)
        joined = connected_components(hooks, directed=False)[1].astype(np.intp)
        labels, basins = joined[labels], basins.shrink(joined)


def _nodes(graph: sparse.csr_matrix, omega: NDArray[np.float64], epsilon: float) -> _Basins:
    """Every node a basin of its own; relevant edges only."""
    keep = graph.data > epsilon
    kept = np.concatenate([[0], np.cumsum(keep)])[graph.indptr]
    mass = sparse.csr_matrix(
        (graph.data[keep].astype(np.float64), graph.indices[keep], kept), shape=graph.shape
    )
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(kept))
    height = np.minimum(omega[rows], omega[mass.indices])
    lifted = sparse.csr_matrix((mass.data * height, mass.indices, kept), shape=graph.shape)
    return _Basins(mass, lifted, omega)


def _shrink(matrix: sparse.csr_matrix, labels: NDArray[np.intp]) -> sparse.csr_matrix:
    rows = np.repeat(labels, np.diff(matrix.indptr))
    size = int(labels.max()) + 1
    return sparse.coo_matrix(
        (matrix.data, (rows, labels[matrix.indices])), shape=(size, size)
    ).tocsr()


def _highest_passes(basins: _Basins, depth: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For each basin that may be joined: the basin and its neighbour across the highest pass."""
    inner = basins.mass.diagonal()
    height = np.where(inner > 0, basins.lifted.diagonal() / np.where(inner > 0, inner, 1.0), 0.0)
    height = np.where(inner > 0, height, basins.top)
    mass, lifted = basins.mass.tocoo(), basins.lifted.tocoo()  # same pattern, same order
    a, b = mass.row.astype(np.intp), mass.col.astype(np.intp)
    lower = np.minimum(height[a], height[b])
    level = lifted.data / (mass.data * np.where(lower > 0, lower, 1.0))
    good = (a != b) & (level >= depth)
    a, b, level = a[good], b[good], level[good]
    order = np.lexsort((b, -level, a))
    a, b = a[order], b[order]
    first = np.diff(a, prepend=-1) > 0
    return a[first], b[first]
