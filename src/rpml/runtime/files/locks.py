"""File locks that the system releases when their process dies."""

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rpml.runtime.errors import InputError

logger = logging.getLogger(__name__)

_PREFIX_BYTES = 150  # file systems allow names of 255 bytes; the rest is for the suffix


def hidden_prefix(path: Path) -> str:
    """Return how the names of hidden files next to `path` begin."""
    return "." + os.fsencode(path.name)[:_PREFIX_BYTES].decode("utf8", "ignore") + "."


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder; False if another process holds it.

    Raises OSError if the file system does not support locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_open_at(descriptor: int, path: str | Path) -> bool:
    """Whether `path` still names the open file, which its owner may have deleted."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    return False


@contextmanager
def locked(output: str | Path) -> Iterator[None]:
    """Hold an exclusive lock on an output while the block runs; InputError if it is taken.

    The lock is a hidden file next to the output with the owner's process id. The system releases
    it when the process ends for any reason, so a file left by a crash does no harm. The output
    itself need not exist.
    """
    target = Path(os.path.realpath(output))
    path = target.with_name(f"{hidden_prefix(target)}rpml-lock")
    descriptor = _acquire(path, target)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # while the lock is held, so that nobody else can be waiting for it
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
        os.close(descriptor)  # the previous owner has just deleted it


def _sign(descriptor: int, path: Path) -> None:
    """Write the process id into the lock file; delete the file if the disk is full."""
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError:
        path.unlink()
        raise


def _owner(descriptor: int, path: Path) -> str:
    """Return the process id in a lock file; InputError if the file is not a lock."""
    text = os.pread(descriptor, 32, 0)
    if text and not text.isdigit():
        raise InputError(f"{path} is in the way and not ours: move it away")
    return text.decode()
