"""Label-free measures of an embedding."""

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph.heaps import nearest_others
from rpml.runtime.intervals import LEVEL, STANDARD_ERRORS, Interval, interval
from rpml.runtime.rows import Array, Integers, Mask

NEAREST = 10  # neighbors that label-free figures compare
N_RESAMPLES = 200
KEPT_QUERIES = 1500  # whose neighbors are looked for among the rows, at each size
KEPT_SIZES = (16, 32, 64, 128, 256, 512)
ERROR_ROWS = 2000  # enough for a standard error


def neighbor_overlap(before: Integers, after: Integers, k: int = NEAREST) -> NDArray[np.float64]:
    """Return the share of each row's k nearest neighbors before that are among its k nearest after.

    Both arrays have as many columns, nearest first; if there are fewer than k, all of them count.
    """
    same = before[:, :k, None] == after[:, None, :k]
    return np.asarray(same.any(axis=2).mean(axis=1))


def spectrum(Z: Array) -> tuple[Array, Interval]:
    """Return the variance shares of the principal axes, and their effective rank.

    The interval of the effective rank is that of the entropy, plus and minus 1.96 standard errors
    by the infinitesimal jackknife: how much each row changes it.
    """
    rows = np.asarray(Z, np.float64)
    rows = rows - rows.mean(axis=0)
    tall = rows.shape[1] <= len(rows)
    values, axes = np.linalg.eigh(rows.T @ rows if tall else rows @ rows.T)
    values, axes = np.maximum(values[::-1], 0.0), axes[:, ::-1]
    total = float(values.sum())
    if total <= 0:
        shares = np.full(len(values), 1.0 / len(values))
        rank = effective_rank(shares)
        return shares, Interval(rank, rank, rank)
    shares = values / total
    squares = (rows[:: 1 + len(rows) // ERROR_ROWS] @ axes) ** 2 if tall else values * axes**2
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    changes = (squares @ logs - squares.sum(axis=1) * (shares @ logs)) * len(rows) / total
    error = float(changes.std()) / np.sqrt(len(rows))
    rank, factor = effective_rank(shares), float(np.exp(STANDARD_ERRORS * error))
    high = max(rank, min(float(len(shares)), rank * factor))
    return shares, Interval(rank, max(1.0, rank / factor), high)


def effective_rank(shares: Array) -> float:
    """Return exp of the entropy of the variance shares: the number of axes in effective use."""
    used = shares[shares > 0]
    return float(np.exp(-(used * np.log(used)).sum()))


def hubness_interval(neighbors: Integers, k: int, rng: np.random.Generator) -> Interval:
    """Return the hubness with its percentile interval over resampled rows.

    It is the skewness of how often a row is among the k nearest of others; 0 if uniform.
    """
    counts = np.bincount(neighbors[:, :k].ravel(), minlength=len(neighbors))
    values, times = np.unique(counts, return_counts=True)
    draws = rng.multinomial(len(counts), times / len(counts), size=N_RESAMPLES)
    shares = np.vstack([times, draws]) / len(counts)
    centered = values - (shares @ values)[:, None]
    spread = np.sqrt((shares * centered**2).sum(axis=1))
    third = (shares * centered**3).sum(axis=1)
    skewness = np.divide(third, spread**3, out=np.zeros_like(third), where=spread > 0)
    low, high = np.quantile(skewness[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(skewness[0]), float(low), float(high))


def is_antihub(neighbors: Integers, k: int) -> Mask:
    """Return which rows are among the k nearest neighbors of no other row."""
    return np.asarray(np.bincount(neighbors[:, :k].ravel(), minlength=len(neighbors)) == 0)


LABEL_FREE = {
    "neighbors_kept": ("Neighbors retained", "of the 10 nearest by the raw features", ".1%"),
    "effective_rank": ("Effective rank", "directions in use; far below the size: waste", ".1f"),
    "hubness": ("Hubness", "above about 1, a few crowd everybody's 10 nearest", ".2f"),
    "antihub_rate": ("Antihubs", "among nobody's 10 nearest; lower is better", ".1%"),
}
"""Title, how to read it and format of each figure of `label_free_figures`."""


def label_free_figures(
    raw: Integers, neighbors: Integers, rank: Interval, rng: np.random.Generator
) -> dict[str, Interval]:
    """Return the figures of rows by their neighbors, the raw ones, and their effective rank."""
    k = min(NEAREST, neighbors.shape[1])
    return {
        "neighbors_kept": interval(neighbor_overlap(raw, neighbors), rng),
        "effective_rank": rank,
        "hubness": hubness_interval(neighbors, k, rng),
        "antihub_rate": interval(is_antihub(neighbors, k), rng),
    }


def neighbors_kept(X: Array, W: Array, size: int) -> dict[int, Interval]:
    """Return the share of the 10 nearest neighbors of the rows X that PCA keeps, per size.

    W are the rows in principal coordinates. Sizes are powers of two, and the requested one.
    """
    rng = np.random.default_rng(0)
    queries = np.sort(rng.permutation(len(X))[:KEPT_QUERIES])
    k = min(NEAREST, len(X) - 1)
    before = nearest_others(X, queries, k)
    sizes = sorted({size, *(s for s in KEPT_SIZES if s < W.shape[1])})
    after = {s: nearest_others(W[:, :s], queries, k) for s in sizes}
    return {s: interval(neighbor_overlap(before, after[s], k), rng) for s in sizes}
