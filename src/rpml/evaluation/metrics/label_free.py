"""What can be said of an embedding without labels: small pure functions of arrays."""

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.rows import Array


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


def spectrum(Z: Array) -> Array:
    """Share of the variance along each principal axis, largest first."""
    rows = np.asarray(Z, np.float64)
    rows = rows - rows.mean(axis=0)
    gram = rows.T @ rows if rows.shape[1] <= len(rows) else rows @ rows.T
    values = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    total = float(values.sum())
    return values / total if total > 0 else np.full(len(values), 1.0 / len(values))


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


def antihub_rate(neighbors: NDArray[np.integer], k: int) -> float:
    """Share of the rows that are among the k nearest neighbors of no other row."""
    counts = np.bincount(neighbors[:, :k].ravel(), minlength=len(neighbors))
    return float((counts == 0).mean())
