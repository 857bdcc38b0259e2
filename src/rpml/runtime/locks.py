"""Locks that the system releases when their process dies."""

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rpml.runtime.errors import InputError

logger = logging.getLogger(__name__)


_PREFIX_BYTES = 150  # file systems allow names of 255 bytes; the rest is for our suffix


def hidden_prefix(path: Path) -> str:
    """How the names of our own files beside `path` begin."""
    return "." + os.fsencode(path.name)[:_PREFIX_BYTES].decode("utf8", "ignore") + "."


def try_lock(descriptor: int) -> bool:
    """Whether the open file or folder is now ours alone.

    Raises
    ------
    OSError
        If the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_open_at(descriptor: int, path: str | Path) -> bool:
    """Whether `path` still names the open file, which its owner may have removed."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    return False


@contextmanager
def locked(output: str | Path) -> Iterator[None]:
    """Hold an output: a second process that wants to write it is refused.

    The lock is a hidden file beside the output with the owner's process id. The system lets go of
    it when the process ends, however it ends; what a crash leaves of the file is not in the way.

    Parameters
    ----------
    output : str or Path
        What the block writes; the name need not exist.

    Raises
    ------
    InputError
        If another process holds it.
    """
    target = Path(os.path.realpath(output))
    path = target.with_name(f"{hidden_prefix(target)}rpml-lock")
    descriptor = _acquire(path, target)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while it is held, so that nobody can be waiting for this very file
        os.close(descriptor)


def _acquire(path: Path, target: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise InputError(f"cannot write {target}: {path}: {error.strerror}") from error
        try:
            owner = _owner(descriptor, path)
            if not try_lock(descriptor):
                raise InputError(
                    f"{target} is being written by process {owner or '?'}: wait until it has "
                    "finished, or choose another name"
                )
            if is_open_at(descriptor, path):
                _sign(descriptor, path)
                return descriptor
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                logger.warning("%s: no locks here, a second writer is not noticed", target.parent)
                return descriptor
            os.close(descriptor)
            raise InputError(f"cannot write {target}: {path}: {error.strerror}") from error
        except InputError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the former owner has just removed it


def _sign(descriptor: int, path: Path) -> None:
    """Write the process id into a lock that is held; it goes if the disk is full."""
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError:
        path.unlink()
        raise


def _owner(descriptor: int, path: Path) -> str:
    """The process id in a lock; a file that is not a lock is left alone."""
    text = os.pread(descriptor, 32, 0)
    if text and not text.isdigit():
        raise InputError(f"{path} is in the way and not ours: move it away")
    return text.decode()
