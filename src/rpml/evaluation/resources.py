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
from rpml.method.settings import fit_memory
from rpml.method.whitening.constants import SCATTER_ROWS
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.context import Json, Progress
from rpml.runtime.rows import Array, sorted_sample

_FIRST_PILOT = 2500
_LAST_PILOT = 40_000
_PILOT_SECONDS = 2.0
READS = 2  # times that checks and moments take of the moments alone
SEARCH_GROWTH = 1.75  # power of the rows, by benchmarks/scaling.py: larger blocks work better
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
    then twice as many and so on for a few seconds; each stage is extrapolated from the last fit.

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
    rows, measured, moments = _run_pilots(n, d, X, settings)
    model = RPML(**settings)
    used = min(n, model.subsample or n)
    fitted = min(rows, used)  # a pilot beyond the subsample works on that, too
    stages = {name: seconds * _growth(name, fitted, used) for name, seconds in measured.items()}
    # every row is checked and enters mean and moments; the other stages work on a sample
    stages["prepare"] += READS * moments * max(0, n - rows) / rows
    like = np.empty((0, d), np.float32 if X is None else X.dtype)
    memory = fit_memory(model, n, like, mapped)[1]
    return Resources(n, d, memory, sum(stages.values()), stages, rows)


def _run_pilots(
    n: int, d: int, X: Array | None, settings: Json
) -> tuple[int, dict[str, float], float]:
    """Fit samples of growing size until one takes seconds.

    Returns its rows, the seconds of its stages, and those of mean and principal axes alone.
    """
    rng = np.random.default_rng(0)
    size, most = min(n, _FIRST_PILOT), min(n, _LAST_PILOT, n if X is None else len(X))
    _pilot(_sample(min(size, 500), d, X, rng), settings)  # compile and import
    while True:
        rows = _sample(size, d, X, rng)
        stages = _pilot(rows, settings)
        if size >= most or sum(stages.values()) > _PILOT_SECONDS:
            start = time.perf_counter()
            principal_axes(rows, unit_input=True)
            return len(rows), stages, time.perf_counter() - start
        size = min(2 * size, n)


def _sample(rows: int, d: int, X: Array | None, rng: np.random.Generator) -> Array:
    if X is not None:
        return np.asarray(X[sorted_sample(len(X), rows, rng)])
    centers = rng.normal(size=(max(2, rows // 20), d))
    noise = 0.5 * rng.normal(size=(rows, d))
    return np.asarray(centers[rng.integers(len(centers), size=rows)] + noise, np.float32)


def _pilot(X: Array, settings: Json) -> dict[str, float]:
    """Fit once, timing each stage from its first report to the first report of the next."""
    marks: list[tuple[str, float]] = [("prepare", time.perf_counter())]

    def listen(progress: Progress) -> None:
        if progress.stage != marks[-1][0]:
            marks.append((progress.stage, time.perf_counter()))

    size = settings.get("n_components")
    limit = min(X.shape[1], max(1, len(X) - 1))
    chosen = {**settings, "callback": listen, "n_components": size and min(size, limit)}
    with warnings.catch_warnings(action="ignore"):
        RPML(**chosen).fit(X)
    marks.append(("", time.perf_counter()))
    stages: dict[str, float] = {}
    for (name, start), (_, stop) in itertools.pairwise(marks):
        stages[name] = stages.get(name, 0.0) + stop - start
    return stages


def _growth(stage: str, rows: int, n: int) -> float:
    """Return how many times longer a stage takes with n rows."""
    if stage == "whiten":  # works on a sample
        rows, n = min(rows, SCATTER_ROWS), min(n, SCATTER_ROWS)
    if stage != "neighbors":
        return n / rows
    exact = min(n, max(rows, EXACT_ROWS))
    return float((exact / rows) ** SEARCH_GROWTH * (n / exact) ** INDEX_GROWTH)
