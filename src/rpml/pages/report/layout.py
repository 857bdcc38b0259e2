"""Rows -> points of a map: near rows are drawn near each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rpml.method.graph.neighbors import Neighbors, nearest_neighbors
from rpml.pages.report import _kernels_layout as kernels

Points = NDArray[np.float32]
ALL = 12_000  # up to so many rows, all are laid out by forces
LANDMARKS = 6_000  # of more rows, so many are; the others are put among them
_NEIGHBORS, _EPOCHS = 15, 200
_CARRIERS = 4  # landmarks that carry a further row
_BLOCK = 2048
_STRETCH = 1.4  # most that one axis of a map is stretched to fill the square


def layout(
    Z: Any,
    rng: np.random.Generator,
    start: Points | None = None,
    landmarks: int | None = None,
) -> Points:
    """Draw rows on a plane, as UMAP does (McInnes et al., 2018): edges pull, random pairs push.

    Parameters
    ----------
    Z : (n, d) array
        Rows; nearness is cosine.
    rng : Generator
        Decides the pushes and, beyond `landmarks` rows, which are laid out first.
    start : (n, 2) array, optional
        Where the points start, for a map that can be compared with another; by default on the two
        principal axes.
    landmarks : int, optional
        Most rows to lay out by forces; by default all of 12,000, and 6,000 of more.

    Returns
    -------
    (n, 2) float32 array, in the unit square.
    """
    n = len(Z)
    if n < 4:
        return _in_square(np.stack([np.arange(n), np.zeros(n)], axis=1))
    most = landmarks or (ALL if n <= ALL else LANDMARKS)
    chosen = np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
    rows = _unit(np.asarray(Z[chosen], np.float32))
    first = principal_plane(rows) if start is None else np.asarray(start[chosen], np.float64)
    placed = _forces(rows, _spread(first), rng)
    if n > len(chosen):
        placed = _carried(Z, chosen, rows, placed, rng)
    return _in_square(placed)


def principal_plane(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """The rows on their two strongest axes."""
    centred = rows - rows.mean(axis=0)
    _, axes = np.linalg.eigh(np.asarray(centred.T @ centred, np.float64))
    plane = axes[:, ::-1][:, :2]
    if plane.shape[1] < 2:
        plane = np.hstack([plane, np.zeros_like(plane)])
    plane = plane * np.where(plane[np.abs(plane).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    return np.asarray(centred @ plane)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1), np.float32)


def _spread(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centred, ten units across."""
    points = points - points.mean(axis=0)
    return np.ascontiguousarray(10.0 * points / max(float(np.ptp(points, axis=0).max()), 1e-12))


def _forces(
    rows: NDArray[np.float32], points: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    k = min(_NEIGHBORS, len(rows) - 1)
    edges = _memberships(nearest_neighbors(rows, k, metric="cosine", method="exact")).tocoo()
    # equal rows would start, and stay, on one point
    points = points + rng.normal(scale=1e-3, size=points.shape)
    period = edges.data.max() / edges.data
    due = period.copy()
    seeds = rng.integers(1, 2**62, size=_EPOCHS)
    heads, tails = edges.row.astype(np.int32), edges.col.astype(np.int32)
    for number in range(_EPOCHS):
        clock = (float(number + 1), 1.0 - number / _EPOCHS, int(seeds[number]))
        kernels.epoch(points, heads, tails, period, due, clock)
    return points


def _memberships(neighbors: Neighbors) -> sparse.csr_matrix:
    """Weights of the edges: exp(-(d - nearest) / s), s such that a row's weights sum to log2 k."""
    n, k = neighbors.indices.shape
    beyond = np.maximum(neighbors.distances - neighbors.distances[:, :1], 0).astype(np.float64)
    low, high = np.zeros((n, 1)), np.full((n, 1), max(float(beyond.max()), 1e-12) * 1e3)
    for _ in range(40):
        scale = (low + high) / 2
        small = np.exp(-beyond / scale).sum(axis=1, keepdims=True) < np.log2(max(k, 2))
        low, high = np.where(small, scale, low), np.where(small, high, scale)
    weights = np.exp(-beyond / np.maximum(high, 1e-12)).ravel()
    indptr = np.arange(0, n * k + 1, k)
    W = sparse.csr_matrix((weights, neighbors.indices.ravel(), indptr), shape=(n, n))
    both = W.multiply(W.T)
    joined = (W + W.T - both).tocsr()
    joined.data[joined.data < joined.data.max() / _EPOCHS] = 0  # would never be used
    joined.eliminate_zeros()
    return joined


def _carried(
    Z: Any,
    chosen: NDArray[np.intp],
    rows: NDArray[np.float32],
    placed: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Every row among its nearest landmarks, nearer ones counting more, with a little noise."""
    out = np.empty((len(Z), 2))
    for start in range(0, len(Z), _BLOCK):
        part = slice(start, min(start + _BLOCK, len(Z)))
        scores = _unit(np.asarray(Z[part], np.float32)) @ rows.T
        near = np.argpartition(-scores, _CARRIERS, axis=1)[:, :_CARRIERS]
        weights = np.take_along_axis(scores, near, axis=1).astype(np.float64)
        weights = np.exp(20.0 * (weights - weights.max(axis=1, keepdims=True)))
        weights /= weights.sum(axis=1, keepdims=True)
        out[part] = (placed[near] * weights[:, :, None]).sum(axis=1)
    out += rng.normal(scale=0.004 * float(np.ptp(placed, axis=0).max()), size=out.shape)
    out[chosen] = placed
    return out


def _in_square(points: NDArray[np.float64]) -> Points:
    """Into the unit square; strays far outside the bulk are drawn in towards it."""
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    half = np.maximum((high - low) / 2, 1e-12)
    half = np.maximum(half, half.max() / _STRETCH)
    t = (points - (low + high) / 2) / half
    beyond = np.maximum(np.abs(t) - 1, 0)
    drawn = np.sign(t) * (np.minimum(np.abs(t), 1) + 0.3 * np.log1p(beyond))
    return np.asarray(0.5 + 0.49 * drawn / max(float(np.abs(drawn).max()), 1e-12), np.float32)
