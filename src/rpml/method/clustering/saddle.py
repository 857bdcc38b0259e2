"""Joining neighbouring modes over shallow saddles of the authority (an addition to the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

DEPTH = 0.55  # a pass this high against the lower of its two basins joins them


@dataclass(frozen=True)
class Basins:
    """The graph with every basin shrunk to one node.

    `mass` sums the affinities between (off the diagonal) and inside (on it) the basins, `lifted`
    the same weighted with the authority of the lower end, so that lifted / mass is a mean height.
    """

    mass: sparse.csr_matrix
    lifted: sparse.csr_matrix
    top: NDArray[np.float64]  # height of a basin without inner edges

    def shrink(self, labels: NDArray[np.intp]) -> Basins:
        """Join the basins that share a label."""
        top = np.zeros(labels.max() + 1)
        np.maximum.at(top, labels, self.top)
        return Basins(_shrink(self.mass, labels), _shrink(self.lifted, labels), top)


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
    omega : ndarray of shape (n_samples,), the authority
    labels : int ndarray of shape (n_samples,), the basins, numbered from 0
    epsilon : float
    depth : float, default=DEPTH

    Returns
    -------
    int ndarray of shape (n_samples,), the joined basins, numbered from 0.
    """
    return join_passes(basins_of(graph, omega, labels, epsilon), labels, depth)


def join_passes(basins: Basins, labels: NDArray[np.intp], depth: float = DEPTH) -> NDArray[np.intp]:
    """`join_basins`, given the shrunken graph."""
    while True:
        low, high = _highest_passes(basins, depth)
        if not low.size:
            return labels
        hooks = sparse.coo_matrix((np.ones(low.size), (low, high)), shape=basins.mass.shape)
        joined = connected_components(hooks, directed=False)[1].astype(np.intp)
        labels, basins = joined[labels], basins.shrink(joined)


def basins_of(
    graph: sparse.csr_matrix,
    omega: NDArray[np.float64],
    labels: NDArray[np.intp],
    epsilon: float,
    first: int = 0,
) -> Basins:
    """The shrunken graph of the relevant edges.

    The graph may hold the rows of the nodes from `first` on only; omega and labels are of all.
    """
    own = slice(first, first + graph.shape[0])
    keep = graph.data > epsilon
    kept = np.concatenate([[0], np.cumsum(keep)])[graph.indptr]
    columns, mass = graph.indices[keep], graph.data[keep].astype(np.float64)
    height = np.minimum(np.repeat(omega[own], np.diff(kept)), omega[columns])
    ends = np.repeat(labels[own], np.diff(kept)), labels[columns]
    top = np.zeros(labels.max() + 1)
    np.maximum.at(top, labels[own], omega[own])
    return Basins(_between(ends, mass, len(top)), _between(ends, mass * height, len(top)), top)


def add_basins(parts: Sequence[Basins]) -> Basins:
    """The shrunken graph of all nodes, from those of parts of them."""
    mass, lifted = parts[0].mass, parts[0].lifted
    for part in parts[1:]:
        mass, lifted = mass + part.mass, lifted + part.lifted
    return Basins(mass, lifted, np.max([part.top for part in parts], axis=0))


def _between(
    ends: tuple[NDArray[np.intp], NDArray[np.intp]], values: NDArray[np.float64], size: int
) -> sparse.csr_matrix:
    return sparse.coo_matrix((values, ends), shape=(size, size)).tocsr()


def _shrink(matrix: sparse.csr_matrix, labels: NDArray[np.intp]) -> sparse.csr_matrix:
    ends = np.repeat(labels, np.diff(matrix.indptr)), labels[matrix.indices]
    return _between(ends, matrix.data, int(labels.max()) + 1)


def _highest_passes(basins: Basins, depth: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
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
