"""Imports of optional packages, with an error that says what to install."""

import importlib
from types import ModuleType

from rpml.runtime.errors import InputError


class MissingExtraError(InputError, ImportError):
    """An optional package is not installed."""


def require(module: str, extra: str, what: str) -> ModuleType:
    """Import an optional module, or raise an error that names the extra to install.

    `what` is the subject of that sentence, such as "reading .parquet".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs the extra {extra!r}: pip install 'rpml[{extra}]'"
        ) from error
