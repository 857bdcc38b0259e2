"""What embedded training rows say of others: ranges of the axes, quantiles of similarities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rpml.runtime.intervals import Interval
from rpml.runtime.rows import Array, unit_rows
from rpml.runtime.threads import single_blas_thread

SCALE_ROWS = 2000
PREFIX_QUANTILE = 0.99
# even steps, and the upper tail in geometric steps down to one pair in a million
SCALE_LEVELS = np.union1d(np.linspace(0, 1, 129), 1 - np.geomspace(1e-6, 1e-2, 65))


@dataclass(frozen=True)
class AxisRanges:
    """The range of each axis that int8 codes cover, measured on embedded rows."""

    low: Array  # (l,) smallest value on each axis
    high: Array  # (l,) largest value on each axis
    growth: Array  # (l,) factor by which values grow if only the first 1 .. l axes are normalized

    @classmethod
    def from_rows(cls, Y: Array, unit: bool) -> AxisRanges:
        """Measure rows; `unit` if prefixes are scaled to unit norm again."""
        growth = np.ones(Y.shape[1])
        if unit:
            norms = np.sqrt(np.cumsum(np.square(Y, dtype=np.float64), axis=1))
            inside = norms[norms[:, 0] > 0]
            if len(inside):
                growth = np.quantile(inside[:, -1:] / inside, PREFIX_QUANTILE, axis=0)
        return cls(*(np.asarray(a, np.float32) for a in (Y.min(axis=0), Y.max(axis=0), growth)))

    def first(self, size: int) -> AxisRanges:
        """Return the ranges of the embedding by the first `size` components."""
        factor = self.growth[size - 1]
        low, high = self.low[:size], self.high[:size]
        if factor > 1:  # unit rows
            low, high = (np.clip(bound * factor, -1, 1) for bound in (low, high))
        return AxisRanges(low, high, self.growth[:size] / factor)


@dataclass(frozen=True)
class SimilarityScale:
    """Quantiles of the cosine similarities of embedded training rows."""

    levels: Array  # (q,) ascending from 0 to 1
    random: Array  # (q,) quantiles over random pairs
    nearest: Array  # (q,) quantiles over rows and their nearest neighbor in the sample

    @classmethod
    @single_blas_thread()
    def from_rows(cls, Y: Array) -> SimilarityScale:
        """Compute quantiles from at most 2000 evenly spaced rows of the embedding."""
        rows = unit_rows(np.asarray(Y[:: -(-len(Y) // SCALE_ROWS)], np.float32))
        similarities = rows @ rows.T
        random = np.concatenate([row[:i] for i, row in enumerate(similarities)])
        np.fill_diagonal(similarities, -np.inf)
        nearest = similarities.max(axis=1)
        quantiles = (_quantiles(values) for values in (random, nearest))
        return cls(*(np.asarray(a, np.float32) for a in (SCALE_LEVELS, *quantiles)))

    def quantile(self, similarity: ArrayLike, pairs: str = "random") -> Any:
        """Return the share of pairs that are less similar, in [0, 1]."""
        if pairs not in ("random", "nearest"):
            raise ValueError(f"pairs={pairs!r}: choose from random, nearest.")
        quantiles = self.random if pairs == "random" else self.nearest
        # np.interp needs ascending positions; of equal quantiles the last counts
        return np.interp(np.asarray(similarity), quantiles, self.levels, left=0.0, right=1.0)


def _quantiles(values: Array) -> Array:
    """Return the values at `SCALE_LEVELS`; `numpy.quantile` takes ten times as long for so many."""
    ranked, (low, part) = np.sort(values), np.divmod(SCALE_LEVELS * (len(values) - 1), 1)
    below = low.astype(np.intp)
    above = np.minimum(below + 1, len(values) - 1)
    return np.asarray(ranked[below] * (1 - part) + ranked[above] * part)


# where a range of rank gains begins -> gain in Recall@1 over PCA of fits that are more than PCA:
# lowest, median over sources of data, highest. Written by benchmarks/calibration.py --write
CALIBRATION = {
    0.0: (-0.027, 0.003, 0.027),
    0.05: (-0.01, 0.018, 0.267),
    0.15: (0.002, 0.041, 0.327),
    0.3: (0.039, 0.081, 0.523),
}


def expected_gain(rank_gain: float) -> Interval:
    """Return the gain in Recall@1 over PCA at such a rank gain: median and range of other sets."""
    if rank_gain <= 0:
        return Interval(0.0, 0.0, 0.0)
    low, middle, high = CALIBRATION[max(begin for begin in CALIBRATION if begin <= rank_gain)]
    return Interval(middle, low, high)
