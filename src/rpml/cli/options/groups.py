"""Option groups: a frozen dataclass declares options for every command that takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def expand_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command one parameter per field of each dataclass in its signature.

    Typer reads the options of a command from its signature and knows no groups. A parameter
    annotated with a dataclass is therefore replaced by the fields of that dataclass, and the
    function is called with the dataclass made of their values.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, type[DataclassInstance]] = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
    }
    options: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        plain = parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        options += _options(groups[name]) if name in groups else [plain]

    @wraps(function)
    def run(**arguments: object) -> None:
        packed = {
            name: group(**{field.name: arguments.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        function(**arguments, **packed)

    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options(group: type[DataclassInstance]) -> list[Parameter]:
    """Convert the fields of a dataclass to keyword parameters."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
