"""How sure is a figure? 95% intervals over the queries or rows it was measured on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 2000
LEVEL = 0.95
STANDARD_ERRORS = 1.96  # of a 95% interval to each side


@dataclass(frozen=True)
class Interval:
    """A figure and the bounds of its interval, of 95% where nothing else is said."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> int:
        """1 or -1 where the interval lies on one side of zero, 0 where it does not."""
        return int(self.low > 0) - int(self.high < 0)


def interval(values: ArrayLike, rng: np.random.Generator) -> Interval:
    """Mean of one value per query, with the percentile interval of resampled means.

    Hits (and their means over seeds, and differences of these) take few distinct values, and how
    often each is drawn is multinomial: so no query has to be drawn one by one.
    """
    distinct, counts = np.unique(np.round(np.asarray(values, float), 9), return_counts=True)
    n = int(counts.sum())
    draws = rng.multinomial(n, counts / n, size=RESAMPLES) @ distinct / n
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(counts @ distinct / n), float(low), float(high))


def mean_interval(values: ArrayLike) -> Interval:
    """Mean of one value per query, 1.96 standard errors to each side.

    For values that are all distinct, of which drawing thousands of resamples takes long.
    """
    queries = np.asarray(values, float)
    mean = float(queries.mean())
    margin = float(STANDARD_ERRORS * queries.std() / np.sqrt(len(queries)))
    return Interval(mean, mean - margin, mean + margin)


def share_interval(share: float, n: int) -> Interval:
    """A share of n queries, with the interval of Wilson (1927): of hits, nothing else is needed."""
    z = STANDARD_ERRORS**2 / n
    center = (share + z / 2) / (1 + z)
    margin = np.sqrt(z * (share * (1 - share) + z / 4)) / (1 + z)
    return Interval(share, float(center - margin), float(center + margin))


def paired(one: ArrayLike, other: ArrayLike, rng: np.random.Generator) -> Interval:
    """Mean of the differences between two values per query."""
    return interval(np.asarray(one, float) - np.asarray(other, float), rng)
