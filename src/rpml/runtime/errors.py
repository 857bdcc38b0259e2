"""Exceptions and warnings; each message is one sentence."""

import errno
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class InputError(ValueError):
    """An input of the user is unusable: a file, a column, an option (exit code 2)."""


class ModelFormatError(InputError):
    """A model file is damaged, forged, or from a newer version of the package."""


class WriteError(OSError):
    """An output could not be written (full disk, quota); the previous file is unchanged."""


class TrainingError(ArithmeticError):
    """Training a network failed: the loss is not finite, or there is nothing to learn from."""


class WeightCollapseWarning(UserWarning):
    """The learned triplet weights have shrunk to zero, so the embedding was hardly trained."""


def write_error(path: Path, error: OSError) -> Exception:
    """Return the exception for a failed write: WriteError on a full disk, else InputError."""
    reason = error.strerror or str(error)
    advice = ": free some space and try again" if error.errno == errno.ENOSPC else ""
    message = f"cannot write {path}: {reason}{advice}"
    if error.errno in _FULL or "No space left" in str(error) or "File too large" in str(error):
        return WriteError(error.errno, message)
    return InputError(message)
