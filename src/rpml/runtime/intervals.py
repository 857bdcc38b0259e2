"""95% confidence intervals over the queries or rows that a figure was measured on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr

RESAMPLES = 2000
LEVEL = 0.95
STANDARD_ERRORS = 1.96  # half-width of a 95% interval
FEW = 25  # differing queries below which an exact test decides, as is usual for McNemar's


@dataclass(frozen=True)
class Interval:
    """A figure and the bounds of its interval (95% unless stated otherwise)."""

    value: float
    low: float
    high: float

    @property
    def clear(self) -> int:
        """1 if the interval is above zero, -1 if it is below, 0 if it contains zero."""
        return int(self.low > 0) - int(self.high < 0)


def bounded(name: str, figure: Interval) -> dict[str, float]:
    """Return a figure and the bounds of its interval under the names used in tables and JSON."""
    return {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}


def interval(values: ArrayLike, rng: np.random.Generator) -> Interval:
    """Mean of one value per query, with the percentile bootstrap interval.

    Hits (and their means over seeds, and differences of these) take few distinct values, whose
    counts in a resample are multinomial: no query has to be drawn individually.
    """
    distinct, counts = np.unique(np.round(np.asarray(values, float), 9), return_counts=True)
    n = int(counts.sum())
    draws = rng.multinomial(n, counts / n, size=RESAMPLES) @ distinct / n
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(counts @ distinct / n), float(low), float(high))


def mean_interval(values: ArrayLike) -> Interval:
    """Mean of one value per query, plus and minus 1.96 standard errors.

    For values that are all distinct, where a bootstrap would be slow.
    """
    queries = np.asarray(values, float)
    mean = float(queries.mean())
    margin = float(STANDARD_ERRORS * queries.std() / np.sqrt(len(queries)))
    return Interval(mean, mean - margin, mean + margin)


def share_interval(share: float, n: int) -> Interval:
    """Proportion of n queries with its Wilson (1927) interval, which needs no individual hits."""
    z = STANDARD_ERRORS**2 / n
    center = (share + z / 2) / (1 + z)
    margin = np.sqrt(z * (share * (1 - share) + z / 4)) / (1 + z)
    return Interval(share, float(center - margin), float(center + margin))


def paired(one: ArrayLike, other: ArrayLike, rng: np.random.Generator) -> Interval:
    """Mean difference of two values per query, with its bootstrap interval.

    Few differing queries make a bootstrap too certain: of fewer than 25, the interval is extended
    to 0 unless the exact sign test (of hits: McNemar's) is significant at the same level.
    """
    differences = np.round(np.asarray(one, float) - np.asarray(other, float), 9)
    found = interval(differences, rng)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    if better + worse >= FEW or _sign_test(better, worse) < 1 - LEVEL:
        return found
    return Interval(found.value, min(found.low, 0.0), max(found.high, 0.0))


def _sign_test(better: int, worse: int) -> float:
    """Two-sided p-value of so many wins and losses if both are equally likely."""
    return min(1.0, 2 * float(bdtr(min(better, worse), better + worse, 0.5)))
