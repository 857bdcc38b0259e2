"""What can be said of an embedding without labels: small pure functions of arrays."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.intervals import LEVEL, STANDARD_ERRORS, Interval
from rpml.runtime.rows import Array

N_RESAMPLES = 200
ERROR_ROWS = 2000  # enough for a standard error


def neighbor_overlap(
    before: NDArray[np.integer], after: NDArray[np.integer], k: int
) -> NDArray[np.float64]:
    """Share of each row's k nearest neighbors before that are among its k nearest after.

    Parameters
    ----------
    before, after : int ndarray of shape (n_samples, >= k)
        Neighbors, nearest first.
    k : int
    """
    same = before[:, :k, None] == after[:, None, :k]
    return np.asarray(same.any(axis=2).mean(axis=1))


@dataclass(frozen=True)
class VarianceSpectrum:
    """How the variance of rows is spread over their principal axes."""

    shares: Array
    """Share of the variance along each axis, largest first."""
    effective_rank: Interval
    """How many axes are really in use."""


def spectrum(Z: Array) -> VarianceSpectrum:
    """Shares of the variance along the principal axes, and their effective rank.

    The interval of the effective rank is that of the entropy, 1.96 standard errors to each side by
    the infinitesimal jackknife: what one row more would change, for every row.
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
        return VarianceSpectrum(shares, Interval(rank, rank, rank))
    shares = values / total
    squares = (rows[:: 1 + len(rows) // ERROR_ROWS] @ axes) ** 2 if tall else values * axes**2
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    changes = (squares @ logs - squares.sum(axis=1) * (shares @ logs)) * len(rows) / total
    error = float(changes.std()) / np.sqrt(len(rows))
    return VarianceSpectrum(shares, _rank_interval(effective_rank(shares), error, len(shares)))


def _rank_interval(rank: float, error: float, most: int) -> Interval:
    factor = float(np.exp(STANDARD_ERRORS * error))
    return Interval(rank, max(1.0, rank / factor), max(rank, min(float(most), rank * factor)))


def effective_rank(shares: Array) -> float:
    """exp of the entropy of the variance shares: how many axes are really in use."""
    used = shares[shares > 0]
    return float(np.exp(-(used * np.log(used)).sum()))


def hubness(neighbors: NDArray[np.integer], k: int) -> float:
    """Skewness of how often a row is among the k nearest of others; 0 where all are alike."""
    counts = np.bincount(neighbors[:, :k].ravel(), minlength=len(neighbors)).astype(np.float64)
    centered = counts - counts.mean()
    spread = float(np.sqrt((centered**2).mean()))
    return float((centered**3).mean() / spread**3) if spread > 0 else 0.0


def hubness_interval(neighbors: NDArray[np.integer], k: int, rng: np.random.Generator) -> Interval:
    """Hubness, with the percentile interval over resampled rows."""
    counts = np.bincount(neighbors[:, :k].ravel(), minlength=len(neighbors))
    values, times = np.unique(counts, return_counts=True)
    draws = rng.multinomial(len(counts), times / len(counts), size=N_RESAMPLES) / len(counts)
    centered = values - (draws @ values)[:, None]
    spread = np.sqrt((draws * centered**2).sum(axis=1))
    third = (draws * centered**3).sum(axis=1)
    skewness = np.divide(third, spread**3, out=np.zeros_like(third), where=spread > 0)
    low, high = np.quantile(skewness, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(hubness(neighbors, k), float(low), float(high))


def is_antihub(neighbors: NDArray[np.integer], k: int) -> NDArray[np.bool_]:
    """Which rows are among the k nearest neighbors of no other row: antihubs."""
    return np.asarray(np.bincount(neighbors[:, :k].ravel(), minlength=len(neighbors)) == 0)
