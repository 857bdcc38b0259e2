"""Memory and time of a fit, extrapolated from small fits."""

import itertools
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpml.estimator import RPML
from rpml.estimator.knowledge import check_size
from rpml.method.graph.neighbors import EXACT_ROWS
from rpml.method.settings import fit_shape
from rpml.method.whitening.constants import SCATTER_ROWS
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.context import Json, Progress, peak
from rpml.runtime.rows import Array

Pilot = tuple[int, dict[str, float], float]
"""Rows of a fit, seconds of its stages, and seconds for mean and principal axes alone."""
_FIRST_PILOT = 2500
_LAST_PILOT = 40_000
_PILOT_SECONDS = 2.0
# Powers of the rows, by benchmarks/scaling.py. Whitening: factorizations of fixed size, and
# searches. Search: quadratic in the limit, but larger blocks work better.
GROWTH = {"whiten": (0.2, 1.4), "neighbors": (1.5, 1.75)}
READS = 2  # times that checks and moments take of the moments alone
INDEX_GROWTH = 0.6  # of the search beyond EXACT_ROWS


@dataclass(frozen=True)
class Resources:
    """The expected memory and time of a fit."""

    n_rows: int
    n_features: int
    memory: int
    """Peak bytes, including the vectors unless they are memory-mapped."""
    seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of each stage."""
    pilot_rows: int = 0
    """Rows of the largest fit that was extrapolated."""


def estimate_resources(
    n: int, d: int, *, X: Array | None = None, mapped: bool = False, **settings: Any
) -> Resources:
    """Estimate the peak memory and the time of ``RPML(**settings).fit`` on n rows of d features.

    The memory follows from the sizes of the arrays. For the time, a few thousand rows are fitted,
    then twice as many and so on for a few seconds; each stage is extrapolated by its own growth.

    Parameters
    ----------
    n, d : int
        Shape of the vectors to fit.
    X : ndarray of shape (m, d), default=None
        Sample rows; without them a mixture of Gaussians is used.
    mapped : bool, default=False
        The vectors are memory-mapped and take no memory of their own.
    **settings
        Parameters of `RPML`.

    Returns
    -------
    Resources
        `memory` in bytes, `seconds` in all and, as `stages`, of each stage.
    """
    if n < 2 or d < 1:
        raise ValueError(f"n={n} and d={d}: a fit needs at least two rows and one feature.")
    if X is not None and X.shape[1:] != (d,):
        raise ValueError(f"X has the shape {X.shape}: sample rows need d={d} features.")
    check_size(settings.get("n_components"), d)
    before, last = _run_pilots(n, d, X, settings)
    rows, measured, moments = last
    model = RPML(**settings)
    used = min(n, model.subsample or n)
    stages = {name: _extrapolate(name, (before, last), used) for name in measured}
    # every row is checked and enters mean and moments; the other stages work on a sample
    stages["prepare"] += READS * moments * max(0, n - rows) / rows
    like = np.empty((0, d), np.float32 if X is None else X.dtype)
    shape = fit_shape(model, n, like, mapped)
    return Resources(n, d, peak(shape), sum(stages.values()), stages, rows)


def _run_pilots(n: int, d: int, X: Array | None, settings: Json) -> tuple[Pilot, Pilot]:
    """Fit samples of growing size; return the last two, the last of which takes seconds."""
    rng = np.random.default_rng(0)
    size = min(n, _FIRST_PILOT)
    _pilot(_sample(min(size, 500), d, X, rng), settings)  # compile and import
    before = last = _pilot(_sample(size, d, X, rng), settings)
    while size < min(n, _LAST_PILOT, len(X) if X is not None else n):
        if sum(last[1].values()) > _PILOT_SECONDS and last is not before:
            break
        size = min(2 * size, n)
        before, last = last, _pilot(_sample(size, d, X, rng), settings)
    return before, last


def _sample(rows: int, d: int, X: Array | None, rng: np.random.Generator) -> Array:
    if X is not None:
        chosen = np.sort(rng.choice(len(X), min(rows, len(X)), replace=False))
        return np.asarray(X[chosen])
    centers = rng.normal(size=(max(2, rows // 20), d))
    noise = 0.5 * rng.normal(size=(rows, d))
    return np.asarray(centers[rng.integers(len(centers), size=rows)] + noise, np.float32)


def _pilot(X: Array, settings: Json) -> Pilot:
    """Fit once, timing each stage from its first report to the first report of the next."""
    marks: list[tuple[str, float]] = [("prepare", time.perf_counter())]

    def listen(progress: Progress) -> None:
        if progress.stage != marks[-1][0]:
            marks.append((progress.stage, time.perf_counter()))

    size = settings.get("n_components")
    limit = min(X.shape[1], max(1, len(X) - 1))
    chosen = {**settings, "callback": listen, "n_components": size and min(size, limit)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        RPML(**chosen).fit(X)
    marks.append(("", time.perf_counter()))
    stages: dict[str, float] = {}
    for (name, start), (_, stop) in itertools.pairwise(marks):
        stages[name] = stages.get(name, 0.0) + stop - start
    start = time.perf_counter()
    principal_axes(X, unit_input=True, center=True)
    return len(X), stages, time.perf_counter() - start


def _extrapolate(stage: str, pilots: tuple[Pilot, Pilot], n: int) -> float:
    """Return the seconds of a stage at n rows, by its bounded growth between the pilots."""
    rows, seconds = pilots[1][0], pilots[1][1][stage]
    if n == rows:
        return seconds
    if stage == "whiten":  # works on a sample
        rows, n = min(rows, SCATTER_ROWS), min(n, SCATTER_ROWS)
    low, high = GROWTH.get(stage, (1.0, 1.0))
    exact = min(n, EXACT_ROWS) if stage == "neighbors" else n
    power = float(np.clip(_growth(stage, *pilots), low, high))
    return float(seconds * (exact / rows) ** power * (n / exact) ** INDEX_GROWTH)


def _growth(stage: str, before: Pilot, last: Pilot) -> float:
    """Return the power of the number of rows by which the time of a stage grew."""
    earlier, later = before[1].get(stage, 0.0), last[1][stage]
    if last[0] == before[0] or min(earlier, later) <= 0:
        return np.inf
    return float(np.log(later / earlier) / np.log(last[0] / before[0]))
