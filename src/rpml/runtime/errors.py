"""Exceptions and warnings, each of one sentence; words of messages; optional packages."""

import errno
import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Literal

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


def counted(n: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 row", "2,000 rows"; `plural` if that does not end in s."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def one_line(message: object) -> str:
    """Return the text of a message with all white space folded."""
    return " ".join(str(message).split())


def first_line(error: BaseException) -> str:
    """Return the first line of an error of another library, or its type if it says nothing."""
    return str(error).split("\n")[0].strip() or type(error).__name__


def reason_of(error: Exception) -> str:
    """Return why a file could not be read, in words of our own for the most frequent case."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    return getattr(error, "strerror", None) or first_line(error)


def text_table(rows: Iterable[Sequence[str]], justify: Literal["left", "right"] = "right") -> str:
    """Format aligned columns as plain text of any width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for row in rows:
        if not grid.columns:
            for i in range(len(row)):
                grid.add_column(justify="left" if i == 0 else justify, no_wrap=True)
        grid.add_row(*map(Text, row))
    console = Console(width=10_000, color_system=None)
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
