"""Optional packages: present, or one sentence that says what to install."""

import importlib
from types import ModuleType

from rpml.runtime.errors import InputError


class MissingExtraError(InputError, ImportError):
    """An optional package is not installed."""


def require(module: str, extra: str, what: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    Parameters
    ----------
    module : str
        Dotted name, for instance "pyarrow.parquet".
    extra : str
        The extra of this package that installs it.
    what : str
        Who needs it, as the subject of the sentence: "reading parquet".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{what} needs the extra {extra!r}: pip install 'rpml[{extra}]'"
        ) from error


def optional(module: str) -> ModuleType | None:
    """An optional module, or None where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None
