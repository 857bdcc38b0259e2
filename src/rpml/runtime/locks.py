"""One lock per output, which the system releases when its owner dies; and its leftovers."""

import errno
import hashlib
import importlib
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from rpml.runtime.errors import InputError, write_error
from rpml.runtime.outputs import check_output, resolved

logger = logging.getLogger(__name__)

DRAFT = ".rpml-new"
"""In the names of files that are not yet published."""
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
"""Flags of `os.open` that not every system has."""
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_LONG_NAME = 150  # bytes; file systems allow 255, and the rest is for the suffixes
_LOCK_BYTE = 2**20  # beyond the text of the lock file, which others can then read on Windows
_held: dict[tuple[int, Path], tuple[int, int]] = {}  # holders and the open file of each lock
_table = threading.Lock()


def hidden_name(target: Path) -> str:
    """Return how the names of hidden files for a target begin; no two targets share it."""
    name = os.fsencode(target.name)
    if len(name) <= _LONG_NAME:
        return f".{target.name}."
    short = name[: _LONG_NAME - 20].decode("utf8", "ignore")
    return f".{short}-{hashlib.sha256(name).hexdigest()[:16]}."


def leftovers(folder: Path, output: Path | None = None) -> list[str]:
    """Return the drafts that writers of an output have in a folder; None: drafts and locks of all.

    If no writer is at work, killed ones have left them.
    """
    draft = rf"[0-9a-f]{{16}}{re.escape(DRAFT)}(\.[^.]*)?"
    if output is None:
        name = re.compile(rf"\..*\.(rpml-lock|{draft})")
    else:
        name = re.compile(re.escape(hidden_name(output)) + draft)
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    return [e.path for e in entries if name.fullmatch(e.name) and e.is_file(follow_symlinks=False)]


@contextmanager
def locked(output: str | os.PathLike[str], again: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on an output while the block runs; InputError if it is taken.

    The lock is a hidden file next to the output with the owner's process id. The system releases
    it when the process ends for any reason, so a file left by a crash does no harm. The output
    itself need not exist. With `again` this process may hold the lock already.
    """
    target = resolved(output)
    path = target.with_name(f"{hidden_name(target)}rpml-lock")
    key = os.getpid(), target  # a fork inherits the table, not the lock
    with _table:
        if key in _held and not again:
            raise _taken(target, str(os.getpid()))
        holders, descriptor = _held.get(key) or (0, _acquire(path, target))
        _held[key] = holders + 1, descriptor
        if holders == 0:
            for draft in [*leftovers(target.parent, target), *leftovers(target, target)]:
                with suppress(OSError):
                    os.unlink(draft)
    try:
        yield
    finally:
        with _table:
            holders, descriptor = _held.pop(key)
            if holders > 1:
                _held[key] = holders - 1, descriptor
            else:
                _release(path, descriptor)


def _acquire(path: Path, target: Path) -> int:
    """Return the open lock file."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o600)
        except OSError as error:
            check_output(target, overwrite=True)  # which may say more than the system does
            raise write_error(target, error) from error
        kept = False
        try:
            owner = _owner(descriptor, path)
            if not try_lock(descriptor):
                raise _taken(target, owner)
            with suppress(FileNotFoundError):
                kept = os.path.samestat(os.fstat(descriptor), os.lstat(path))
            if kept:
                _sign(descriptor, path)
                return descriptor
        except OSError as error:
            kept = error.errno in _NO_LOCKS
            if not kept:
                raise write_error(target, error) from error
            logger.warning("%s: no locks here, a second writer is not noticed", target.parent)
            return descriptor
        finally:
            if not kept:  # refused, or the previous owner has just deleted it
                os.close(descriptor)


def _taken(target: Path, owner: str) -> InputError:
    return InputError(
        f"{target} is being written by process {owner or '?'}: wait until it has finished, or "
        "choose another name"
    )


def _release(path: Path, descriptor: int) -> None:
    if os.name == "nt":  # an open file cannot be deleted
        os.close(descriptor)
    with suppress(OSError):  # while it is locked: who has opened it will notice
        path.unlink()
    if os.name != "nt":
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder; False if another process holds it.

    Raises OSError if the system or the file system does not have locks.
    """
    fcntl, msvcrt = _module("fcntl"), _module("msvcrt")
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif msvcrt is not None:
            os.lseek(descriptor, _LOCK_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    except (BlockingIOError, PermissionError):  # of flock and of msvcrt
        return False
    return True


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _sign(descriptor: int, path: Path) -> None:
    """Write the process id into the lock file; delete the file if the disk is full."""
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode())
    except OSError:
        path.unlink()
        raise


def _owner(descriptor: int, path: Path) -> str:
    """Return the process id in a lock file; InputError if the file is not a lock."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    text = os.read(descriptor, 32)
    if text and not text.isdigit():
        raise InputError(f"{path} is in the way and not a lock of rpml: move it away")
    return text.decode()
