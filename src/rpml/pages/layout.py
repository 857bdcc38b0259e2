"""A two-dimensional map of the rows, laid out like UMAP (McInnes et al., 2018).

Why not umap-learn: docs/decisions/written-by-hand.md.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from rpml.method.graph.heaps import nearest_rows
from rpml.method.graph.neighbors import Neighbors, nearest_neighbors
from rpml.runtime.compiled import compiled
from rpml.runtime.rows import Array, Floats, Indices, Integers, slices, sorted_sample, unit_rows

N_NEGATIVES = 5  # repulsions per attraction
_A, _B = 1.577, 0.895  # the curve of UMAP for min_dist = 0.1
_LIMIT = 4.0  # maximal move of a coordinate before the step size is applied


@compiled()
def _move(P: NDArray[np.float64], i: int, j: int, rate: float, attract: bool) -> None:
    """Move point i to point j, and j to i, or push i away from j."""
    dx, dy = P[i, 0] - P[j, 0], P[i, 1] - P[j, 1]
    square = dx * dx + dy * dy
    if square <= 0.0:
        return
    if attract:
        force = -2.0 * _A * _B * square ** (_B - 1.0) / (1.0 + _A * square**_B)
    else:
        force = 2.0 * _B / ((0.001 + square) * (1.0 + _A * square**_B))
    mx = rate * max(-_LIMIT, min(_LIMIT, force * dx))
    my = rate * max(-_LIMIT, min(_LIMIT, force * dy))
    P[i, 0] += mx
    P[i, 1] += my
    if attract:
        P[j, 0] -= mx
        P[j, 1] -= my


@compiled()
def _run_forces(
    P: Array, heads: Integers, tails: Integers, period: Array, epochs: int, rng: np.random.Generator
) -> None:
    """Move the points in place; an edge is used every `period` passes over all of them."""
    due = period.copy()
    for number in range(epochs):
        rate = 1.0 - number / epochs
        for e in range(heads.shape[0]):
            if due[e] > number + 1:
                continue
            due[e] += period[e]
            _move(P, heads[e], tails[e], rate, True)
            for _ in range(N_NEGATIVES):
                _move(P, heads[e], rng.integers(0, P.shape[0]), rate, False)


Points = Floats
MAX_ROWS = 12_000  # rows that are all laid out by forces
LANDMARKS = 6_000  # rows laid out by forces if there are more; the others are interpolated
_NEIGHBORS, _EPOCHS = 15, 200
_ANCHORS = 4  # landmarks per interpolated row
_BLOCK = 8192
_REACH = 0.4  # of the mean distance beyond the nearest, over which weights fall by the factor e
_STRETCH = 1.4  # maximal stretch of one axis to fill the square


def layout(Z: Array, rng: np.random.Generator, start: Points | None = None) -> Points:
    """Place the rows in the unit square: edges of the neighbor graph attract, random pairs repel.

    Rows are compared by cosine similarity. `start` are initial positions, for a map that can be
    compared with another; by default the two principal axes. All rows are laid out by forces if
    there are at most 12,000, else 6,000 landmarks.
    """
    n = len(Z)
    if n < 4:
        return _in_square(np.stack([np.arange(n), np.zeros(n)], axis=1))
    chosen = sorted_sample(n, n if n <= MAX_ROWS else LANDMARKS, rng)
    rows = unit_rows(np.asarray(Z[chosen], np.float32))
    first = principal_plane(rows) if start is None else np.asarray(start[chosen], np.float64)
    placed = _forces(rows, first, rng)
    if n > len(chosen):
        placed = _interpolate(Z, chosen, rows, placed, rng)
    return _in_square(placed)


def linked_maps(spaces: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Points]:
    """Draw one map per space; each starts from the previous one, so that they are comparable."""
    maps: dict[str, Points] = {}
    start = None
    for key, rows in spaces.items():
        maps[key] = start = layout(rows, rng, start)
    return maps


def quantized(points: Array) -> NDArray[np.uint16]:
    """Convert points of the unit square to little-endian 16-bit integers."""
    return np.asarray(np.rint(np.clip(points, 0, 1) * 65535), "<u2")


def layout_note(n: int) -> str:
    """Return a sentence about interpolated rows; empty if there are none."""
    if n <= MAX_ROWS:
        return ""
    return (
        f"{LANDMARKS:,} items, chosen at random, were laid out; the other {n - LANDMARKS:,} were "
        f"placed between their {_ANCHORS} nearest of these, so small groups may be blurred."
    )


def principal_plane(rows: Floats) -> NDArray[np.float64]:
    centered = rows - rows.mean(axis=0)
    _, axes = np.linalg.eigh(np.asarray(centered.T @ centered, np.float64))
    plane = axes[:, :-3:-1]
    return np.asarray(centered @ np.pad(plane, ((0, 0), (0, 2 - plane.shape[1]))))


def _forces(
    rows: Floats, points: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    k = min(_NEIGHBORS, len(rows) - 1)
    edges = _memberships(nearest_neighbors(rows, k, metric="cosine", method="exact")).tocoo()
    points = 10.0 * (points - points.mean(axis=0)) / max(np.ptp(points, axis=0).max(), 1e-12)
    # equal rows would start and stay at one point
    points = np.ascontiguousarray(points + rng.normal(scale=1e-3, size=points.shape))
    _run_forces(points, edges.row, edges.col, edges.data.max() / edges.data, _EPOCHS, rng)
    return points


def _memberships(neighbors: Neighbors) -> sparse.csr_matrix:
    """Return edge weights, which fall with the distance beyond that of the nearest neighbor."""
    n, k = neighbors.indices.shape
    beyond = np.maximum(neighbors.distances - neighbors.distances[:, :1], 0).astype(np.float64)
    weights = np.exp(-beyond / np.maximum(_REACH * beyond.mean(axis=1, keepdims=True), 1e-12))
    indptr = np.arange(0, n * k + 1, k)
    W = sparse.csr_matrix((weights.ravel(), neighbors.indices.ravel(), indptr), shape=(n, n))
    joined = (W + W.T - W.multiply(W.T)).tocsr()
    joined.data[joined.data < joined.data.max() / _EPOCHS] = 0  # never used
    joined.eliminate_zeros()
    return joined


def _interpolate(
    Z: Array, chosen: Indices, rows: Floats, placed: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Place every row between its nearest landmarks, weighted by similarity, with some noise."""
    out = np.empty((len(Z), 2))
    for part in slices(len(Z), _BLOCK):
        scores, near = nearest_rows(unit_rows(np.asarray(Z[part], np.float32)), rows, _ANCHORS)
        weights = np.exp(20.0 * (scores.astype(np.float64) - scores[:, :1]))
        weights /= weights.sum(axis=1, keepdims=True)
        out[part] = (placed[near] * weights[:, :, None]).sum(axis=1)
    out += rng.normal(scale=0.004 * float(np.ptp(placed, axis=0).max()), size=out.shape)
    out[chosen] = placed
    return out


def _in_square(points: NDArray[np.float64]) -> Points:
    """Scale to the unit square; outliers are pulled in."""
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    half = np.maximum((high - low) / 2, 1e-12)
    half = np.maximum(half, half.max() / _STRETCH)
    t = (points - (low + high) / 2) / half
    beyond = np.maximum(np.abs(t) - 1, 0)
    drawn = np.sign(t) * (np.minimum(np.abs(t), 1) + 0.3 * np.log1p(beyond))
    return np.asarray(0.5 + 0.49 * drawn / max(float(np.abs(drawn).max()), 1e-12), np.float32)


def grid_order(points: Array, most: int, rng: np.random.Generator) -> tuple[Indices, int]:
    """Arrange a sample of points on the largest square grid they fill, at most `most` per side.

    Returns their rows, row by row from the top left, and the side. `points` are in the unit square,
    y upwards; the assignment moves them as little as possible in total.
    """
    side = min(most, math.isqrt(len(points)))
    chosen = sorted_sample(len(points), side * side, rng)
    placed = points[chosen]
    # ranks spread the points evenly before they are matched to cells
    ranks = np.argsort(np.argsort(placed, axis=0, kind="stable"), axis=0) / (len(placed) - 1 or 1)
    across, down = np.meshgrid(*2 * [(np.arange(side) + 0.5) / side])
    cells = np.stack([across.ravel(), 1 - down.ravel()], axis=1)
    cost = ((cells[:, None] - 0.5 * (ranks + placed)) ** 2).sum(axis=2)
    return chosen[linear_sum_assignment(cost)[1]], side
