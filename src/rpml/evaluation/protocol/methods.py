"""The rows we measure, each a name and how its estimator is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.evaluation.baselines import PCA, registry
from rpml.method.whitening.linear_map import principal_axes
from rpml.runtime.errors import InputError

Array = NDArray[np.floating]
WHITENED = 512


@dataclass(frozen=True)
class Method:
    """A row: how it is called, and the estimator for a dimension, a seed and the training rows."""

    title: str
    build: Callable[[int, int, Array], Any]


def _baseline(key: str, title: str) -> Method:
    return Method(title, lambda dim, seed, X: registry[key](dim, seed))


def _whitened(dim: int, seed: int, X: Array) -> PCA:
    """The descriptors of the recipe that the paper follows, whatever the embeddings' size."""
    rank = len(principal_axes(X, unit_input=True, center=True).variances)
    return PCA(min(WHITENED, rank), exponent=1.0)


METHODS: dict[str, Method] = {
    "raw": _baseline("raw", "raw descriptors"),
    "whitened": Method(f"descriptors PCA-whitened to {WHITENED}", _whitened),
    "random": _baseline("random", "Initial (random projection)"),
    "pca": _baseline("pca", "PCA"),
    "half-whitened": _baseline("half-whitened", "half-whitened PCA"),
    "pca-whitened": _baseline("pca-whitened", "PCA-whitened"),
    "rpml": Method("RPML", lambda dim, seed, X: RPML(dim, random_state=seed)),
    "rpml-v1": Method(
        "RPMLv1", lambda dim, seed, X: RPML(dim, weight="bilinear", random_state=seed)
    ),
    "srpml": Method(
        "sRPML from random",
        lambda dim, seed, X: RPML(dim, solver="stochastic", init="random", random_state=seed),
    ),
    "rpml-paper": Method(
        "RPML as printed", lambda dim, seed, X: RPML.paper(dim, random_state=seed)
    ),
    "srpml-paper": Method(
        "sRPML as printed",
        lambda dim, seed, X: RPML.paper(dim, solver="stochastic", random_state=seed),
    ),
}
DEFAULT_METHODS = tuple(METHODS)


def check_methods(names: tuple[str, ...]) -> None:
    """Refuse a name that is not in the list."""
    for name in names:
        if name not in METHODS:
            raise InputError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
