"""Which directions tell neighbours apart? Whitening by the scatter within neighbourhoods.

Ours, not the paper's. Whitening divides every direction by its spread; better is to divide by the
spread *within* a class and to keep the spread between classes. Without labels the nearest
neighbours stand in for the class, but a direction that helped to find a neighbour makes it look
close. So they are cross-fitted: the principal axes are split in two halves, neighbours are found
with one and the scatter is measured on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rpml.neighbors import nearest_neighbors
from rpml.preprocess import Preprocessing, Spectrum, unit_rows, whitening

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]
Embedding = Callable[[Mask], Array]

NEIGHBORS = 5
MIN_ROWS, MIN_AXES = 100, 4  # with less there is nothing to estimate: plain PCA
MAX_ROWS = 20_000  # a sample of the rows is enough for a q x q matrix
BLOCK_ROWS = 4096
FLOORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 8.0, np.inf)
TOLERANCE = 0.97  # the strongest smoothing within 3% of the best agreement is taken


@dataclass(frozen=True)
class ScatterChoice:
    """How strongly the scatter was smoothed, and the label-free evidence for it."""

    floor: float
    """Added variance, as a multiple of trace / n_components; infinite: plain PCA."""
    agreement: dict[float, float]
    """Per floor: share of rows whose nearest neighbour is the same by two halves of the axes."""


def neighbor_whitening(
    X: NDArray[np.floating],
    spectrum: Spectrum,
    unit_input: bool,
    n_components: int,
    rng: np.random.Generator,
) -> tuple[Preprocessing, ScatterChoice]:
    """Learn the map (S_w + floor I)^-1/2 on the leading principal axes.

    Parameters
    ----------
    X : (n, d) array
        The rows, of which at most MAX_ROWS are looked at.
    spectrum : Spectrum
        Principal axes of all rows.
    unit_input : bool
        Whether rows are scaled to unit norm first.
    n_components : int
        Dimension the floor is chosen for.
    rng : numpy Generator
    """
    if len(X) < MIN_ROWS or len(spectrum.variances) < MIN_AXES:
        plain = whitening(spectrum, 0.0, len(spectrum.variances), unit_input, True)
        return plain, ScatterChoice(np.inf, {})
    W, deviations = _sample(X, spectrum, unit_input, n_components, rng)
    repeats = int(np.clip(18_000 // len(W), 2, 4))
    correlation = _two_rounds(W, deviations, repeats, rng)
    choice = _choose_floor(W, deviations, n_components, repeats, rng)
    scatter = within_scatter(correlation, deviations)
    q = len(deviations)
    map_q = whitening_map(scatter, deviations**2, choice.floor, n_components, q)
    axes = spectrum.axes[:, :q] @ map_q
    return Preprocessing(unit_input, spectrum.mean, axes, True), choice


def _sample(
    X: NDArray[np.floating],
    spectrum: Spectrum,
    unit_input: bool,
    n_components: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Whitened coordinates of (a sample of) the rows, and the standard deviation of each axis."""
    n = len(X)
    available = len(spectrum.variances)
    q = min(available, max(512, 2 * n_components), max(n // 3, n_components))
    deviations = np.sqrt(spectrum.variances[:q])
    rows = np.sort(rng.choice(n, MAX_ROWS, replace=False)) if n > MAX_ROWS else np.arange(n)
    W = np.empty((len(rows), q), np.float32)
    map_q = (spectrum.axes[:, :q] / deviations).astype(np.float32)
    for start in range(0, len(rows), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        chosen = np.asarray(X[rows[part]], np.float32)
        chosen = unit_rows(chosen) if unit_input else chosen
        W[part] = (chosen - spectrum.mean.astype(np.float32)) @ map_q
    return W, deviations


def random_halves(q: int, rng: np.random.Generator) -> Mask:
    """One axis of every two successive ones, so that both halves have a similar spectrum."""
    first = rng.integers(0, 2, (q + 1) // 2).astype(bool)
    return np.stack([first, ~first], axis=1).reshape(-1)[:q]


def cross_correlation(W: Array, embed: Embedding, repeats: int, rng: np.random.Generator) -> Array:
    """Correlation (q, q) between a row and its neighbours, neighbours found with other axes.

    `embed` gives, for a half of the axes, the matrix whose product with those columns of W is
    searched for neighbours.
    """
    q = W.shape[1]
    total, count = np.zeros((q, q)), np.zeros((q, q))
    for _ in range(repeats):
        half = random_halves(q, rng)
        for seen in (half, ~half):
            measured = np.ix_(~seen, ~seen)
            graph = _neighbor_graph(W[:, seen] @ embed(seen))
            total[measured] += _correlation(W[:, ~seen], graph)
            count[measured] += 1
    return np.asarray(total / np.maximum(count, 1))


def _neighbor_graph(rows: Array) -> sparse.csr_matrix:
    found = nearest_neighbors(rows, min(NEIGHBORS, len(rows) - 1), method="exact").indices
    n, m = found.shape
    ones = np.ones(n * m, np.float32)
    return sparse.csr_matrix((ones, found.ravel(), np.arange(0, n * m + 1, m)), shape=(n, n))


def _correlation(B: Array, graph: sparse.csr_matrix) -> Array:
    """Symmetric correlation of the columns of B across the edges of the graph."""
    ends = (np.asarray(graph.sum(axis=0)).ravel() + np.asarray(graph.sum(axis=1)).ravel()) / 2
    ends = (ends / ends.sum()).astype(B.dtype)
    B = B - ends @ B
    across = B.T @ (graph @ B) / graph.nnz
    scale = np.sqrt(np.maximum(ends @ (B * B), 1e-9))
    return np.asarray((across + across.T) / 2 / np.outer(scale, scale))


def within_scatter(correlation: Array, deviations: Array) -> Array:
    """S_w = D (I - kappa C) D, kappa such that it stays positive definite."""
    kappa = 0.9 / max(1.0, float(np.linalg.eigvalsh(correlation)[-1]))
    scatter = np.eye(len(deviations)) - kappa * correlation
    return np.asarray(scatter * np.outer(deviations, deviations))


def whitening_map(
    scatter: Array, variances: Array, floor: float, n_components: int, keep: int
) -> Array:
    """(q, keep): whiten by the smoothed scatter, then the leading axes of what comes out."""
    if np.isinf(floor):  # the floor drowns the scatter: the principal axes themselves
        return np.eye(len(scatter), keep)
    values, vectors = np.linalg.eigh(scatter)
    values = np.maximum(values, 0) + floor * np.trace(scatter) / n_components
    root = (vectors / np.sqrt(values)) @ vectors.T
    _, axes = np.linalg.eigh((root * variances) @ root)
    return np.asarray(root @ axes[:, ::-1][:, :keep])


def _two_rounds(W: Array, deviations: Array, repeats: int, rng: np.random.Generator) -> Array:
    """Neighbours by half-whitened axes first, then by what these taught."""
    first = cross_correlation(W, lambda half: _half_whitened(deviations[half]), repeats, rng)
    scatter = within_scatter(first, deviations)

    def embed(half: Mask) -> Array:
        size = int(half.sum())
        inner = whitening_map(scatter[np.ix_(half, half)], deviations[half] ** 2, 1.0, size, size)
        return np.asarray(deviations[half][:, None] * inner, np.float32)

    return cross_correlation(W, embed, repeats, rng)


def _half_whitened(deviations: Array) -> Array:
    return np.diag(np.sqrt(deviations)).astype(np.float32)


def _choose_floor(
    W: Array, deviations: Array, n_components: int, repeats: int, rng: np.random.Generator
) -> ScatterChoice:
    """The largest floor whose split-half agreement is near the best.

    Agreement is measured on rows whose neighbours did not make the scatter.
    """
    order = rng.permutation(len(W))
    folds = (np.sort(order[: len(W) // 2]), np.sort(order[len(W) // 2 :]))
    agreement = np.zeros(len(FLOORS))
    for fit_rows, check_rows in (folds, folds[::-1]):
        correlation = _two_rounds(W[fit_rows], deviations, max(2, repeats // 2), rng)
        scatter = within_scatter(correlation, deviations)
        for _ in range(3):
            half = random_halves(W.shape[1], rng)
            queries = rng.permutation(len(check_rows))[:1500]
            agreement += _agreements(
                W[check_rows], scatter, deviations, half, n_components, queries
            )
    near = np.flatnonzero(agreement >= TOLERANCE * agreement.max())
    shares = dict(zip(FLOORS, (agreement / 6).tolist(), strict=True))
    return ScatterChoice(FLOORS[near[-1]], shares)


def _agreements(
    W: Array,
    scatter: Array,
    deviations: Array,
    half: Mask,
    n_components: int,
    queries: NDArray[np.intp],
) -> Array:
    """Per floor: how often both halves of the axes name the same nearest neighbour."""
    size = min(n_components, int(half.sum()) // 2) or 1
    out = []
    for floor in FLOORS:
        named = []
        for seen in (half, ~half):
            inner = whitening_map(
                scatter[np.ix_(seen, seen)], deviations[seen] ** 2, floor, n_components, size
            )
            rows = unit_rows(W[:, seen] @ (deviations[seen][:, None] * inner).astype(np.float32))
            named.append(_nearest(rows, queries))
        out.append(float(np.mean(named[0] == named[1])))
    return np.asarray(out)


def _nearest(rows: Array, queries: NDArray[np.intp]) -> NDArray[np.intp]:
    similarity = rows[queries] @ rows.T
    similarity[np.arange(len(queries)), queries] = -np.inf
    return np.asarray(similarity.argmax(axis=1))
