"""Exact line search by interpolation of function values.

With the trick of `TripletObjective.along` a further trial costs a fraction of an evaluation, so
the search goes on until the interpolated minimum has settled, instead of taking the first decrease.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Step(NamedTuple):
    """Where a line search ended; t = 0 means that no step lowered the function."""

    t: float
    value: float
    trials: int


def minimize_along(
    phi: Callable[[float], float],
    value0: float,
    slope: float,
    first: float,
    max_trials: int = 16,
    precision: float = 0.05,
) -> Step:
    """Minimise phi(t) over t > 0, given phi(0), phi'(0) = slope < 0 and a first guess.

    Each new t minimises the cubic through phi(0), phi'(0) and the two best trials so far, kept
    within a factor of ten of the best. Ends when it moves by less than `precision` of t, and
    after `max_trials` in any case.
    """
    tried: list[tuple[float, float]] = []  # (value, t), best first
    t = first
    trials = 0
    while trials < max_trials:
        trials += 1
        value = phi(t)
        value = value if np.isfinite(value) else np.inf
        tried = sorted([*tried, (value, t)])[:2]
        best_value, best = tried[0]
        if best_value >= value0:  # nothing found yet: come closer to 0
            t = float(np.clip(_parabola(value0, slope, value, t), t / 100, t / 4))
            continue
        t = _next(value0, slope, tried)
        t = float(np.clip(t, best / 10, best * 10))
        if any(abs(t - s) <= precision * s for _, s in tried):
            break
    best_value, best = tried[0]
    return Step(best, best_value, trials) if best_value < value0 else Step(0.0, value0, trials)


def _next(value0: float, slope: float, tried: list[tuple[float, float]]) -> float:
    (f1, t1), *rest = tried
    if not rest or not np.isfinite(rest[0][0]):
        return _parabola(value0, slope, f1, t1)
    f2, t2 = rest[0]
    # cubic a t^3 + b t^2 + slope t + value0 through both trials
    y1 = (f1 - value0 - slope * t1) / t1**2
    y2 = (f2 - value0 - slope * t2) / t2**2
    a = (y1 - y2) / (t1 - t2)
    b = y1 - a * t1
    root = b * b - 3 * a * slope
    if root < 0 or b + np.sqrt(root) <= 0:  # no minimum ahead: the cubic still falls
        return 10 * t1
    return float(-slope / (b + np.sqrt(root)))


def _parabola(value0: float, slope: float, f: float, t: float) -> float:
    """Minimum of the parabola with phi(0), phi'(0) and phi(t); far ahead if it is not convex."""
    excess = f - value0 - slope * t
    return float(-slope * t * t / (2 * excess)) if excess > 0 else 10 * t
