"""The methods of the paper's two tables, one a file, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence

from rpml.deep.methods import (
    contrastive,
    daml,
    ddml,
    deepcluster,
    exemplar,
    hdml,
    invariant,
    lifted,
    mom,
    nce,
    srpml,
    stml,
    triplet,
)
from rpml.deep.methods.base import Batch, FeatureBank, Loss, LossSpec, Method
from rpml.runtime.errors import InputError

_ALL = (
    exemplar.METHOD,
    nce.METHOD,
    deepcluster.METHOD,
    mom.METHOD,
    invariant.METHOD,
    stml.METHOD,
    srpml.METHOD,
    contrastive.METHOD,
    ddml.METHOD,
    triplet.METHOD,
    triplet.SEMI_HARD,
    daml.METHOD,
    hdml.METHOD,
    lifted.METHOD,
)
METHODS: dict[str, Method] = {method.key: method for method in _ALL}
"""In the order of the paper's tables; those after sRPML see the classes."""


def check_methods(names: Sequence[str]) -> tuple[str, ...]:
    """The names, or a sentence that lists those there are."""
    for name in names:
        if name not in METHODS:
            raise InputError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
    return tuple(names)


__all__ = ["METHODS", "Batch", "FeatureBank", "Loss", "LossSpec", "Method", "check_methods"]
