"""Exceptions and warnings, each of one sentence; imports of optional packages."""

import errno
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from rpml.runtime.wording import reason_of

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class InputError(ValueError):
    """An input of the user is unusable: a file, a column, an option (exit code 2)."""


class ModelFormatError(InputError):
    """A model file is damaged, forged, or from a newer version of the package."""


class WriteError(OSError):
    """An output could not be written (full disk, quota); the previous file is unchanged."""


class MissingExtraError(InputError, ImportError):
    """An optional package is not installed."""


class TrainingError(ArithmeticError):
    """Training a network failed: the loss is not finite, or there is nothing to learn from."""


class WeightCollapseWarning(UserWarning):
    """The learned triplet weights have shrunk to zero, so the embedding was hardly trained."""


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what else the block raises into an InputError: what failed, and the reason.

    Libraries raise anything on damaged files, and every file system has errors of its own.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{what}: {reason_of(error)}") from error


def write_error(path: Path, error: OSError) -> Exception:
    """Return the exception for a failed write: WriteError on a full disk, else InputError."""
    reason = error.strerror or str(error)
    advice = ": free some space and try again" if error.errno == errno.ENOSPC else ""
    message = f"cannot write {path}: {reason}{advice}"
    if error.errno in _FULL or "No space left" in str(error) or "File too large" in str(error):
        return WriteError(error.errno, message)
    return InputError(message)


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
