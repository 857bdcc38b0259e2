"""The rows we measure, each a name and how its estimator is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rpml.baselines import registry
from rpml.errors import InputError
from rpml.estimator import RPML


@dataclass(frozen=True)
class Method:
    """A row: how it is called, and the estimator for a dimension and a seed."""

    title: str
    build: Callable[[int, int], Any]


def _baseline(key: str, title: str) -> Method:
    return Method(title, registry[key])


METHODS: dict[str, Method] = {
    "raw": _baseline("raw", "raw descriptors"),
    "random": _baseline("random", "Initial (random projection)"),
    "pca": _baseline("pca", "PCA"),
    "half-whitened": _baseline("half-whitened", "half-whitened PCA"),
    "pca-whitened": _baseline("pca-whitened", "PCA-whitened"),
    "rpml": Method("RPML", lambda dim, seed: RPML(dim, random_state=seed)),
    "rpml-v1": Method("RPMLv1", lambda dim, seed: RPML(dim, weight="bilinear", random_state=seed)),
    "srpml": Method(
        "sRPML from random",
        lambda dim, seed: RPML(dim, solver="stochastic", init="random", random_state=seed),
    ),
    "rpml-paper": Method("RPML as printed", lambda dim, seed: RPML.paper(dim, random_state=seed)),
    "srpml-paper": Method(
        "sRPML as printed",
        lambda dim, seed: RPML.paper(dim, solver="stochastic", random_state=seed),
    ),
}
DEFAULT_METHODS = tuple(METHODS)


def check_methods(names: tuple[str, ...]) -> None:
    """Refuse a name that is not in the list."""
    for name in names:
        if name not in METHODS:
            raise InputError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
