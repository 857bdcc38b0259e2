"""Exact line search by interpolation of function values.

`TripletObjective.line_value` needs no matrix product, so that a trial costs a fraction of an
evaluation. The search therefore continues until the interpolated minimum is stable, instead of
stopping at the first step that decreases the function enough.
"""

from collections.abc import Callable

import numpy as np

Trial = tuple[float, float]  # (t, value)
_PRECISION = 0.05  # relative, of the step


def line_search(
    phi: Callable[[float], float], value0: float, slope: float, first: float, max_trials: int = 16
) -> tuple[float, int]:
    """Minimize phi(t) over t > 0, given phi(0), phi'(0) = slope < 0 and a first guess.

    While the best trial is also the farthest, the next one is at the minimum of an interpolation
    from phi(0) and phi'(0), at most ten times as far. Once a farther trial is worse, the next one
    minimizes the parabola through the best trial and its two neighbors. The search ends when that
    moves by less than 5%, or after `max_trials`. Returns the best t, 0 if no step lowered phi, and
    the number of trials.
    """
    tried: list[Trial] = [(0.0, value0)]
    t = first
    for _ in range(max_trials):
        value = phi(t)
        tried = sorted([*tried, (t, value if np.isfinite(value) else np.inf)])
        best = min(range(len(tried)), key=lambda i: tried[i][1])
        if best == 0:  # no decrease yet: try closer to 0
            nearest = tried[1][0]
            guess = _from_slope(value0, slope, tried[1])
            t = float(np.clip(guess, nearest / 100, nearest / 4))
            continue
        at = tried[best][0]
        if best == len(tried) - 1:
            guess = _from_slope(value0, slope, tried[-1])
            if len(tried) > 2:  # the bolder of two interpolations
                cubic = _cubic(value0, slope, tried[-1], tried[-2])
                guess = max(cubic, _vertex(tried[0], tried[-2], tried[-1]))
            t = float(np.clip(guess, at, 10 * at))
        else:
            t = _between(*tried[best - 1 : best + 2])
        if abs(t - at) <= _PRECISION * at:
            if len(tried) > 2:
                break
            t = 1.5 * at  # a single trial is not enough
    return min(tried, key=lambda trial: trial[1])[0], len(tried) - 1


def _between(left: Trial, middle: Trial, right: Trial) -> float:
    """Return the minimum of the parabola through three trials, the middle one the lowest."""
    if not np.isfinite(right[1]) or right[0] > 4 * middle[0]:  # too far to interpolate
        return float(np.sqrt(middle[0] * right[0]))
    vertex = _vertex(left, middle, right)
    # not too close to the ends, or one end would never move
    low, high = 0.9 * left[0] + 0.1 * middle[0], 0.9 * right[0] + 0.1 * middle[0]
    return float(np.clip(vertex, low, high))


def _from_slope(value0: float, slope: float, trial: Trial) -> float:
    """Return the minimum of the parabola through phi(0), phi'(0) and a trial; far if none."""
    t, value = trial
    excess = value - value0 - slope * t
    return -slope * t * t / (2 * excess) if excess > 0 else 10 * t


def _cubic(value0: float, slope: float, one: Trial, two: Trial) -> float:
    """Return the minimum of a t^3 + b t^2 + slope t + value0 through both trials; far if none."""
    (t1, f1), (t2, f2) = one, two
    y1 = (f1 - value0 - slope * t1) / t1**2
    y2 = (f2 - value0 - slope * t2) / t2**2
    a = (y1 - y2) / (t1 - t2)
    b = y1 - a * t1
    root = b * b - 3 * a * slope
    if root < 0 or b + np.sqrt(root) <= 0:
        return 10 * t1
    return float(-slope / (b + np.sqrt(root)))


def _vertex(one: Trial, two: Trial, three: Trial) -> float:
    """Return the minimum of the parabola through three trials in order of t; far if none."""
    (t1, f1), (t2, f2), (t3, f3) = one, two, three
    s12, s23 = (f2 - f1) / (t2 - t1), (f3 - f2) / (t3 - t2)
    curvature = (s23 - s12) / (t3 - t1)
    return float((t1 + t2) / 2 - s12 / (2 * curvature)) if curvature > 0 else 10 * t3
