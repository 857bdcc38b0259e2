"""Outputs that are either whole or absent: a temporary sibling, then a rename."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rpml.runtime.errors import InputError, WriteError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NAME_BYTES = 150  # file systems allow 255 bytes a name; the rest is for our suffix


def _prefix(path: Path) -> str:
    return "." + os.fsencode(path.name)[:_NAME_BYTES].decode("utf8", "ignore")


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40] or "host"


def _temporary(path: Path) -> Path:
    return path.with_name(f"{_prefix(path)}.{_host()}.{os.getpid()}.tmp")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove_stale(path: Path) -> None:
    """Delete the temporary files that killed processes of this machine left for `path`."""
    pattern = re.compile(re.escape(f"{_prefix(path)}.{_host()}.") + r"(\d+)\.tmp(\.old|\.npy)?")
    with suppress(OSError):
        for entry in list(os.scandir(path.parent)):
            match = pattern.fullmatch(entry.name)
            if not match or _alive(int(match.group(1))):
                continue
            if match.group(2) == ".old" and not os.path.lexists(path):
                os.rename(entry.path, path)  # killed between the two renames of _publish
            else:
                _remove(Path(entry.path))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _sync(path: Path) -> None:
    """Flush to the disk, so that the rename never publishes a file that a power cut empties."""
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR
    with suppress(OSError):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_error(path: Path, error: OSError) -> Exception:
    """The sentence for a failed write: full disk, or a place we may not write to."""
    kept = "; the previous one is unchanged" if path.exists() else ""
    reason = error.strerror or str(error)
    if error.errno in _FULL or "No space left" in str(error) or "File too large" in str(error):
        return WriteError(error.errno, f"cannot write {path}: {reason}{kept}")
    return InputError(f"cannot write {path}: {reason}{kept}")


def check_output(path: str | Path, overwrite: bool) -> Path:
    """Refuse, before any work is done, an output that exists or whose folder is missing."""
    target = Path(path)
    if os.path.lexists(target) and not overwrite:
        raise InputError(
            f"{target} exists: choose another name or replace it with --force (overwrite=True)"
        )
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise InputError(f"cannot write {target}: it is not a regular file")
    folder = target.parent
    if not folder.is_dir():
        raise InputError(f"cannot write {target}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {target}: no permission to write in {folder}")
    return target


@contextmanager
def atomic_output(path: str | Path, overwrite: bool = True) -> Iterator[Path]:
    """Yield a temporary path; on success rename it to `path`, on any failure remove it.

    The body may create a file or a directory there. Readers see the old content or the new one,
    never a part; a process killed in between leaves only a hidden temporary file, which the next
    write to the same path removes.
    """
    check_output(path, overwrite)
    target = check_output(os.path.realpath(path), overwrite)  # a link stays a link
    remove_stale(target)
    temporary = _temporary(target)
    try:
        try:
            yield temporary
            _publish(temporary, check_output(target, overwrite))
        except OSError as error:
            if isinstance(error, WriteError):
                raise
            raise write_error(target, error) from error
    finally:
        _remove(temporary)


def _publish(temporary: Path, target: Path) -> None:
    _sync(temporary)
    if temporary.is_dir() and target.is_dir():
        # a directory cannot be renamed over a non-empty one: move the old one aside first
        old = target.with_name(temporary.name + ".old")
        os.rename(target, old)
        os.rename(temporary, target)
        _remove(old)
    else:
        os.replace(temporary, target)
    _sync(target.parent)
