"""Which directions tell things apart? Whitening by the scatter within neighbourhoods.

Ours, not the paper's. Whitening divides every direction by its spread; better is to divide by the
spread *within* a class and to keep the spread between classes. Without labels the nearest
neighbours stand in for the class, but a direction that helped to find a neighbour makes it look
close. So they are cross-fitted: the principal axes are split in two halves, neighbours are found
with one and the scatter is measured on the other.

How much to trust such a scatter is decided by *split-half agreement*: how often two halves of the
axes, each whitened by it, name the same nearest neighbour of a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.whitening.linear_map import Preprocessing, Spectrum
from rpml.runtime.rows import unit_rows
from rpml.runtime.threads import single_blas_thread, times, transposed_times

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]

NEIGHBORS = 3
MIN_ROWS, MIN_AXES = 100, 4  # with less there is nothing to estimate: plain PCA
MAX_ROWS = 20_000  # a sample of the rows is enough for a q x q matrix
BLOCK_ROWS = 4096
SHRINKAGES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 8.0, np.inf)
PLATEAU = 0.98  # shrinkages whose agreement is within 2% of the best count as equally good
MIN_AGREEMENT = 0.02  # below it no two halves of the axes see the same: nothing to learn from
QUERIES = 1500


@dataclass(frozen=True)
class ScatterChoice:
    """Which scatter whitens, how strongly it is smoothed, and the label-free evidence for it."""

    source: str
    """"neighbors", "groups", "labels", "groups and labels" or "none" (plain PCA)."""
    shrinkage: float
    """Added variance, as a multiple of trace / n_components; infinite: plain PCA."""
    agreement: dict[float, float]
    """Split-half agreement per shrinkage tried; with labels, rank of held-out class mates."""


@dataclass(frozen=True)
class Coordinates:
    """(A sample of) the rows in whitened principal coordinates."""

    rows: NDArray[np.intp]
    W: Array
    """(n, q), each column of unit variance."""
    deviations: Array
    """(q,) standard deviations, largest first."""
    n_components: int
    """Dimension everything is chosen for."""

    def some(self, chosen: NDArray[Any]) -> Coordinates:
        return Coordinates(self.rows[chosen], self.W[chosen], self.deviations, self.n_components)

    def embed(self, scatter: Array, half: Mask, shrinkage: float, size: int) -> Array:
        """The rows seen through some of the axes, whitened by the smoothed scatter."""
        spread = np.diag(self.deviations[half] ** 2)
        inner = whitening_map(scatter[np.ix_(half, half)], spread, shrinkage, self.n_components)
        scaled = self.deviations[half][:, None] * inner[:, :size]
        return times(self.W[:, half], scaled.astype(self.W.dtype))


def coordinates(
    X: Any,
    rows: NDArray[np.intp],
    spectrum: Spectrum,
    unit_input: bool,
    n_components: int,
    least: int = 0,
) -> Coordinates:
    """Project the given rows of X on the leading principal axes, `least` of them or more."""
    q = leading_axes_kept(len(rows), len(spectrum.variances), n_components)
    q = min(max(q, least), len(spectrum.variances))
    deviations = np.sqrt(spectrum.variances[:q])
    W = np.empty((len(rows), q), np.float32)
    to_axes = (spectrum.axes[:, :q] / deviations).astype(np.float32)
    mean = spectrum.mean.astype(np.float32)
    for start in range(0, len(rows), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        chosen = np.asarray(X[rows[part]], np.float32)
        W[part] = ((unit_rows(chosen) if unit_input else chosen) - mean) @ to_axes
    return Coordinates(rows, W, deviations, n_components)


def leading_axes_kept(n: int, available: int, n_components: int) -> int:
    """How many principal axes are looked at: what n rows can tell apart, and 512 are enough."""
    return min(available, max(512, 2 * n_components), max(n // 3, n_components))


def whiten_by(
    spectrum: Spectrum,
    scatter: Array,
    shrinkage: float,
    n_components: int,
    unit_input: bool,
    spread: Array | None = None,
) -> Preprocessing:
    """The preprocessing that whitens by the smoothed scatter, its axes in order of the spread.

    That is the spread of all rows unless another is given; all axes are kept.
    """
    q = len(scatter)
    spread = np.diag(spectrum.variances[:q]) if spread is None else spread
    inner = whitening_map(scatter, spread, shrinkage, n_components)
    return Preprocessing(unit_input, spectrum.mean, spectrum.axes[:, :q] @ inner, unit_input)


def whitening_map(scatter: Array, spread: Array, shrinkage: float, n_components: int) -> Array:
    """(q, q): rows whitened by S_w + shrinkage I, turned to the axes of the largest spread first.

    That is the generalized eigenproblem of the spread against the smoothed within-scatter.
    """
    q = len(scatter)
    if np.isinf(shrinkage):  # the shrinkage drowns the scatter: the principal axes themselves
        return np.eye(q)
    smoothed = scatter + shrinkage * np.trace(scatter) / n_components * np.eye(q)
    _, axes = linalg.eigh(spread, smoothed, driver="gvd")
    return np.asarray(axes[:, ::-1])


def shrinkage_share(whitened: Preprocessing, choice: ScatterChoice | None, L: Array) -> Array:
    """(l, l): which part of the smoothed scatter, along the axes of L, is the shrinkage.

    A whitening for k instead of l components has a shrinkage l / k times as high.
    """
    if choice is None or np.isinf(choice.shrinkage):
        return np.zeros((L.shape[1], L.shape[1]))
    M, ratio = whitened.matrix, choice.shrinkage / L.shape[1]
    # M' (S + f I) M = I with f = ratio tr S: the trace of S + f I is that of (M' M)^-1
    shrinkage = ratio * np.trace(np.linalg.inv(M.T @ M)) / (1 + ratio * M.shape[1])
    return np.asarray(shrinkage * (M @ L).T @ (M @ L))


@single_blas_thread()
def neighbor_scatter(data: Coordinates, rng: np.random.Generator) -> tuple[Array, ScatterChoice]:
    """The scatter within cross-fitted neighbourhoods, and how strongly to smooth it.

    The shrinkage is the middle one of those whose agreement is near the best, and plain PCA if that
    is among them. Agreement is measured on rows whose neighbours did not make the scatter.
    """
    n, q = data.W.shape
    if n < MIN_ROWS or q < MIN_AXES:
        return np.eye(q), ScatterChoice("none", np.inf, {})
    scatter = _two_rounds(data, rng)
    agreement = cross_agreement(
        data, lambda seen: _two_rounds(data.some(seen), rng), SHRINKAGES, rng
    )
    best = max(agreement.values())
    if best < MIN_AGREEMENT:
        return np.eye(q), ScatterChoice("none", np.inf, agreement)
    plateau = [shrinkage for shrinkage, share in agreement.items() if share >= PLATEAU * best]
    shrinkage = float(np.exp(np.mean(np.log(plateau))))  # infinite if PCA is one of them
    return scatter, ScatterChoice("neighbors", shrinkage, agreement)


def cross_agreement(
    data: Coordinates,
    estimate: Callable[[NDArray[np.intp]], Array],
    shrinkages: tuple[float, ...],
    rng: np.random.Generator,
) -> dict[float, float]:
    """Split-half agreement per shrinkage, of each half of the rows under the other half's scatter.

    `estimate` gives the scatter that some of the rows make.
    """
    order = rng.permutation(len(data.W))
    halves = (np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :]))
    shares = np.zeros(len(shrinkages))
    for seen, unseen in (halves, halves[::-1]):
        shares += split_half_agreement(data.some(unseen), estimate(seen), shrinkages, rng) / 2
    return dict(zip(shrinkages, shares.tolist(), strict=True))


def _two_rounds(data: Coordinates, rng: np.random.Generator) -> Array:
    """Neighbours by half-whitened axes first, then by what these taught."""
    repeats = int(np.clip(12_000 // len(data.W), 2, 4))

    def half_whitened(half: Mask) -> Array:
        return np.asarray(data.W[:, half] * np.sqrt(data.deviations[half]).astype(data.W.dtype))

    first = cross_scatter(data, half_whitened, repeats, rng)
    size = data.W.shape[1]

    def taught(half: Mask) -> Array:
        return data.embed(first, half, data.n_components / int(half.sum()), size)

    return cross_scatter(data, taught, repeats, rng)


def cross_scatter(
    data: Coordinates,
    embed: Callable[[Mask], Array],
    repeats: int,
    rng: np.random.Generator,
) -> Array:
    """S_w = D (I - kappa C) D, C the correlation between a row and its neighbours.

    `embed` gives the rows as a half of the axes sees them; neighbours found there are measured on
    the other half only. kappa keeps S_w positive definite.
    """
    q = data.W.shape[1]
    total, count = np.zeros((q, q)), np.zeros((q, q))
    for _ in range(repeats):
        half = random_halves(q, rng)
        for seen in (half, ~half):
            measured = np.ix_(~seen, ~seen)
            total[measured] += _correlation(data.W[:, ~seen], _neighbor_graph(embed(seen)))
            count[measured] += 1
    correlation = total / np.maximum(count, 1)
    kappa = 0.9 / max(1.0, float(np.linalg.eigvalsh(correlation)[-1]))
    scale = np.outer(data.deviations, data.deviations)
    return np.asarray((np.eye(q) - kappa * correlation) * scale)


def random_halves(q: int, rng: np.random.Generator) -> Mask:
    """One axis of every two successive ones, so that both halves have a similar spectrum."""
    first = rng.integers(0, 2, (q + 1) // 2).astype(bool)
    return np.stack([first, ~first], axis=1).reshape(-1)[:q]


def _neighbor_graph(rows: Array) -> sparse.csr_matrix:
    found = nearest_neighbors(rows, NEIGHBORS, metric="cosine", method="exact").indices
    n, m = found.shape
    ones = np.ones(n * m, np.float32)
    return sparse.csr_matrix((ones, found.ravel(), np.arange(0, n * m + 1, m)), shape=(n, n))


def _correlation(B: Array, graph: sparse.csr_matrix) -> Array:
    """Symmetric correlation of the columns of B across the edges of the graph."""
    ends = (np.asarray(graph.sum(axis=0)).ravel() + np.asarray(graph.sum(axis=1)).ravel()) / 2
    ends = (ends / ends.sum()).astype(B.dtype)
    B = B - ends @ B
    across = transposed_times(B, graph @ B) / graph.nnz
    scale = np.sqrt(np.maximum(ends @ (B * B), 1e-9))
    return np.asarray((across + across.T) / 2 / np.outer(scale, scale))


def split_half_agreement(
    data: Coordinates, scatter: Array, shrinkages: tuple[float, ...], rng: np.random.Generator
) -> Array:
    """Per shrinkage: share of rows with the same nearest neighbour by either half of the axes."""
    shares = np.zeros(len(shrinkages))
    repeats = 2
    for _ in range(repeats):
        half = random_halves(data.W.shape[1], rng)
        size = max(1, min(data.n_components, int(half.sum()) // 2))
        queries = rng.permutation(len(data.W))[:QUERIES]
        for i, shrinkage in enumerate(shrinkages):
            one, two = (
                nearest(data.embed(scatter, seen, shrinkage, size), queries)
                for seen in (half, ~half)
            )
            shares[i] += float(np.mean(one == two)) / repeats
    return shares


def nearest(rows: Array, queries: NDArray[np.intp]) -> NDArray[np.intp]:
    rows = unit_rows(rows)
    similarity = times(rows[queries], rows.T)
    similarity[np.arange(len(queries)), queries] = -np.inf
    return np.asarray(similarity.argmax(axis=1))
