"""Raw, PCA, whitening or RPML? An answer from the vectors alone.

Without labels one thing can still be measured: whether two halves of the features tell the same
story. The principal axes are cut in two halves with no axis in common; every candidate learns half
of the asked dimension from each, on half of the rows; and on the other rows we count how often
both name the same nearest neighbour. Noise in one half knows nothing of the noise in the other, so
what they agree on is what the rows really share. Labels were used only to check the rule
(docs/results.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from rpml.estimator import RPML
from rpml.evaluation.registry import METHODS
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import random_halves
from rpml.runtime.rows import unit_rows

Array = NDArray[np.floating]
Hits = NDArray[np.bool_]

TITLES = {
    "raw": "the raw features",
    "pca": "PCA",
    "half-whitened": "half-whitened PCA",
    "pca-whitened": "whitened PCA",
    "rpml": "RPML",
}
SMALLER = ("pca", "half-whitened", "pca-whitened", "rpml")
MAX_ROWS = 5000
MIN_ROWS, MIN_AXES = 60, 4
REPEATS = 2
MAX_ITER = 30  # of RPML on a half: enough to see what it does
CLEARLY = 1.05  # an alternative has to agree this much more often to displace RPML,
RAW_CLEARLY = 1.2  # and the raw features this much, as they cost more space


@dataclass(frozen=True)
class Agreement:
    """How often two halves of the features name the same nearest neighbour."""

    share: float
    low: float
    high: float
    """95 % interval over the rows."""


@dataclass(frozen=True)
class Recommendation:
    """Which embedding to use, why, and how sure that is."""

    choice: str
    """"raw", "pca", "half-whitened", "pca-whitened" or "rpml"."""
    smaller: str
    """The best one of the asked size: the choice itself unless that is "raw"."""
    n_components: int
    reasons: tuple[str, ...]
    certainty: str
    """"clear", "close" (the runner-up may be as good) or "unknown" (too little to measure)."""
    agreement: dict[str, Agreement]
    """Of each candidate of the asked size, half of the dimensions a half."""
    raw_ratio: float
    """Agreement of the raw halves over that of the best smaller one; NaN if not measured."""

    def estimator(self, random_state: Any = None) -> BaseEstimator:
        """The recommended method, ready to fit."""
        return candidate(self.choice, self.n_components, random_state)

    def __str__(self) -> str:
        return " ".join(self.reasons)


def candidate(name: str, n_components: int, random_state: Any = None, **settings: Any) -> Any:
    """The estimator behind a candidate's name; settings are RPML's."""
    if name == "rpml":
        return RPML(n_components, random_state=random_state, **settings)
    return METHODS[name].build(n_components, random_state)


def recommend(X: Any, n_components: int | None = None, random_state: Any = 0) -> Recommendation:
    """Say which of raw, PCA, whitening and RPML to use, without labels.

    Parameters
    ----------
    X : (n, d) array
        Vectors; at most 5,000 of them, drawn at random, are looked at.
    n_components : int or None
        Dimension asked for; None: 128, or fewer if X has fewer directions.
    random_state : int, RandomState or None

    Returns
    -------
    Recommendation

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import rpml
    >>> rpml.recommend(load_digits().data, 8).choice in ("raw", "pca", "half-whitened", "rpml")
    True
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
    rows = np.asarray(X)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError(f"X must be a matrix of finite numbers, got shape {rows.shape}.")
    rows = rows[np.sort(rng.permutation(len(rows))[:MAX_ROWS])].astype(np.float32)
    spectrum = principal_axes(rows, unit_input=True, center=True)
    rank = len(spectrum.variances)
    size = n_components or min(128, rank)
    if not 1 <= size <= rows.shape[1]:
        raise ValueError(f"n_components={size} must lie between 1 and {rows.shape[1]} features.")
    if len(rows) < MIN_ROWS or rank < MIN_AXES or size > rank:
        return _too_little(len(rows), rank, size)
    W = ((unit_rows(rows) - spectrum.mean) @ spectrum.axes).astype(np.float32)
    return decide(*measure_candidates(W, size, rng), size, rows.shape[1])


def measure_candidates(
    W: Array, size: int, rng: np.random.Generator
) -> tuple[dict[str, Hits], dict[str, Hits]]:
    """Agreements of the candidates row by row: (half the dimensions a half, all of them a half).

    W are the rows in principal coordinates. The second are for the comparison with raw, whose
    halves have all the axes there are: of the best candidate and of raw alone.
    """
    small: dict[str, list[Hits]] = {name: [] for name in SMALLER}
    folds = []
    for _ in range(REPEATS):
        half = random_halves(W.shape[1], rng)
        order = rng.permutation(len(W))
        fold = [
            (W[order[: len(W) // 2]][:, m], W[order[len(W) // 2 :]][:, m]) for m in (half, ~half)
        ]
        folds.append(fold)
        for name in SMALLER:
            small[name].append(_agree(name, max(1, size // 2), fold))
    hits = {name: np.concatenate(found) for name, found in small.items()}
    best = choose_smaller(hits)
    full = {
        name: np.concatenate([_agree(name, size, fold) for fold in folds]) for name in (best, "raw")
    }
    return hits, full


def _agree(name: str, size: int, fold: list[tuple[Array, Array]]) -> Hits:
    """Whether the two halves give each held-out row the same nearest neighbour."""
    nearest = []
    for seen, unseen in fold:
        # what a half of the axes spans on half of the rows bounds its dimension
        room = min(size, seen.shape[1], len(seen) - 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of capped iterations, of clusters of a half
            fitted = candidate(name, room, 0, max_iter=MAX_ITER).fit(seen)
        found = nearest_neighbors(fitted.transform(unseen), 1, metric="cosine", method="exact")
        nearest.append(found.indices[:, 0])
    return np.asarray(nearest[0] == nearest[1])


def choose_smaller(hits: dict[str, Hits]) -> str:
    """RPML, unless another one agrees clearly more often: more than 5 % and beyond chance."""
    ours = hits["rpml"]
    other = max((name for name in SMALLER if name != "rpml"), key=lambda name: hits[name].mean())
    gain = hits[other].astype(float) - ours
    clear = gain.mean() > 2 * gain.std() / np.sqrt(len(gain))
    return other if clear and hits[other].mean() > CLEARLY * ours.mean() else "rpml"


def decide(
    hits: dict[str, Hits], full: dict[str, Hits], size: int, n_features: int
) -> Recommendation:
    """From agreements to a choice and its reasons; pure."""
    smaller = choose_smaller(hits)
    shares = {name: _interval(found) for name, found in hits.items()}
    runner_up = max((n for n in SMALLER if n != smaller), key=lambda name: shares[name].share)
    ratio = float(full["raw"].mean() / max(full[smaller].mean(), 1e-12))
    choice = "raw" if ratio > RAW_CLEARLY else smaller
    reasons: tuple[str, ...] = (
        _headline(choice, smaller, size, n_features),
        f"With {size} dimensions split between two halves of the features, both name the same "
        f"nearest neighbour for {_percent(shares[smaller].share)} of the rows with "
        f"{TITLES[smaller]}, for {_percent(shares[runner_up].share)} with {TITLES[runner_up]}.",
        _about_raw(ratio, smaller, size, n_features),
    )
    gain = hits[smaller].astype(float) - hits[runner_up]
    clear = choice == "raw" or gain.mean() > 2 * gain.std() / np.sqrt(len(gain))
    certainty = "clear" if clear else "close"
    if not clear:
        reasons += (f"It is close: {TITLES[runner_up]} may do as well.",)
    return Recommendation(choice, smaller, size, reasons, certainty, shares, ratio)


def _headline(choice: str, smaller: str, size: int, n_features: int) -> str:
    if choice == "raw":
        return (
            f"Keep the raw features if {n_features} numbers a vector are affordable: {size} lose "
            f"neighbours; if they are not, use {TITLES[smaller]}."
        )
    return f"Use {TITLES[choice]} with {size} dimensions."


def _about_raw(ratio: float, smaller: str, size: int, n_features: int) -> str:
    verb = "more often" if ratio >= 1 else "less often"
    change = f"{abs(ratio - 1):.0%} {verb}" if abs(ratio - 1) >= 0.005 else "as often"
    return (
        f"Halves of the raw features agree {change} than halves reduced to {size} dimensions by "
        f"{TITLES[smaller]}, and raw vectors take {n_features / size:.3g} times the space."
    )


def _too_little(n: int, rank: int, size: int) -> Recommendation:
    choice = "pca" if size <= rank else "raw"
    what = f"{n} rows that vary in {rank} directions are too little to compare embeddings on"
    reasons = (f"{what}: {TITLES[choice]} is the safe choice.".capitalize(),)
    return Recommendation(choice, "pca", size, reasons, "unknown", {}, float("nan"))


def _interval(hits: Iterable[Any]) -> Agreement:
    values = np.asarray(hits, float)
    share, error = float(values.mean()), 1.96 * float(values.std()) / np.sqrt(len(values))
    return Agreement(share, max(0.0, share - error), min(1.0, share + error))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
