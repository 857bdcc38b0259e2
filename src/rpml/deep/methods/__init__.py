"""The methods of the tables of the paper.

A new method is a `Method` in a module of this folder and a line in
`rpml.evaluation.registry.DEEP_METHODS`.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from rpml.deep.methods.base import Method
from rpml.evaluation.registry import DEEP_METHODS, DeepMethod
from rpml.runtime.errors import InputError


def _load(entry: DeepMethod) -> Method:
    module, name = entry.path.split(":")
    method: Method = getattr(import_module(f"{__name__}.{module}"), name)
    return replace(method, title=entry.title, uses_labels=entry.uses_labels)


METHODS: dict[str, Method] = {entry.name: _load(entry) for entry in DEEP_METHODS}
"""In the order of the tables of the paper; supervised methods come last."""


def check_methods(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names; InputError if one of them is not in `METHODS`."""
    for name in names:
        if name not in METHODS:
            raise InputError(f"there is no method {name!r}: choose from {', '.join(METHODS)}")
    return tuple(names)
