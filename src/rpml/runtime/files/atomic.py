"""Atomic file output: one or several files appear complete or not at all.

New files are written to a hidden folder next to their targets and renamed when all are complete.
A single file takes one rename. Several files take a rollback journal, as in SQLite: it lists the
targets and is stored in the hidden folder with the files they replace; deleting it commits the
transaction. After a crash the next reader or writer finds the journal and restores the old files.
"""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rpml.runtime.errors import InputError, WriteError
from rpml.runtime.files.inputs import check_mapped
from rpml.runtime.files.locks import hidden_prefix, is_open_at, try_lock
from rpml.runtime.files.outputs import check_output

logger = logging.getLogger(__name__)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SUFFIX = ".rpml-new"
_NOREPLACE, _EXCHANGE = 1, 2  # of renameat2


def write_error(path: Path, error: OSError, state: str | None = None) -> Exception:
    """Return the exception for a failed write: WriteError on a full disk, else InputError."""
    if state is None:
        state = "the previous one is unchanged" if path.exists() else ""
    reason = error.strerror or str(error)
    advice = ": free some space and try again" if error.errno == errno.ENOSPC else ""
    message = f"cannot write {path}: {reason}{advice}" + (f"; {state}" if state else "")
    if error.errno in _FULL or "No space left" in str(error) or "File too large" in str(error):
        return WriteError(error.errno, message)
    return InputError(message)


@contextmanager
def atomic_output(path: str | Path, overwrite: bool = True) -> Iterator[Path]:
    """Yield a path to write a file or a folder to; it becomes `path` if the block succeeds.

    Readers see either the old or the new content. A process killed in between leaves a hidden
    folder, which the next write to the same path removes.
    """
    with atomic_outputs(path, overwrite) as outputs:
        yield outputs.new(path)


@contextmanager
def atomic_outputs(path: str | Path, overwrite: bool = True) -> Iterator[Transaction]:
    """Yield a transaction whose files all become visible if the block succeeds, or none of them.

    `path` is the main file, by which an interrupted transaction is found again.
    """
    check_output(path, overwrite)
    target = check_output(os.path.realpath(path), overwrite)  # write through symbolic links
    repair(target)
    transaction = None
    try:
        transaction = Transaction(target, overwrite)
        yield transaction
        transaction.publish()
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        unfinished = transaction is not None and not transaction.undo()
        state = "its old files come back when it is next read or written" if unfinished else None
        raise write_error(target, error, state) from error
    finally:
        if transaction is not None:
            transaction.close()


class Transaction:
    """New files that replace old ones together; all are in the folder of the main file `target`."""

    def __init__(self, target: Path, overwrite: bool) -> None:
        self._folder, self._overwrite = target.parent, overwrite
        self._home, self._lock = _make_home(target)
        self._new: list[str] = []
        self._removed: list[str] = []

    def new(self, path: str | Path) -> Path:
        """Return where to write the file or folder that will become `path`."""
        self._new.append(self._name(path))
        return self._home / "new" / self._new[-1]

    def remove(self, path: str | Path) -> None:
        """Delete the old file when the new ones are published."""
        self._removed.append(self._name(path))

    def _name(self, path: str | Path) -> str:
        target = Path(os.path.realpath(path))
        if target.parent != self._folder:
            raise InputError(f"{path} is a link out of its folder: give the file it points to")
        return target.name

    def publish(self) -> None:
        """Make the files visible, unless an input they were made from has changed."""
        check_mapped()
        for name in [*self._new, *self._removed]:  # they may have appeared since the start
            check_output(self._folder / name, self._overwrite)
        for name in self._new:
            new, target = self._home / "new" / name, self._folder / name
            if target.is_dir() and not new.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
            _sync_tree(new)
            if target.is_file():  # keep its permissions
                os.chmod(new, stat.S_IMODE(os.stat(target).st_mode))
        if len(self._new) != 1 or self._removed or not self._publish_one(self._new[0]):
            self._publish_all()
        _sync(self._folder)

    def _publish_one(self, name: str) -> bool:
        """Publish a single file by one rename; False if the system cannot do that atomically."""
        new, target = self._home / "new" / name, self._folder / name
        if target.is_dir():
            return _rename(new, target, _EXCHANGE)
        if self._overwrite or not _rename(new, target, _NOREPLACE):
            os.replace(new, target)
        return True

    def _publish_all(self) -> None:
        """Set the old files aside, move the new ones in place, and delete the journal."""
        (self._home / "old").mkdir()
        removed = [n for n in self._removed if os.path.lexists(self._folder / n)]
        entries = {n: _identity(self._home / "new" / n) for n in self._new}
        _write_journal(self._home, {**dict.fromkeys(removed), **entries})
        for name in [*removed, *self._new]:
            target, old = self._folder / name, self._home / "old" / name
            if os.path.lexists(target):
                _set_aside(target, old, vanish=name in removed)
            if name in entries:
                os.rename(self._home / "new" / name, target)
        _sync(self._folder)
        os.unlink(self._home / "journal")

    def undo(self) -> bool:
        """Restore the old files; False if that fails."""
        try:
            _roll_back(self._home)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Delete the hidden folder, unless it holds old files that could not be restored."""
        if self.undo():
            shutil.rmtree(self._home, ignore_errors=True)
        os.close(self._lock)


@contextmanager
def consistent_read(path: str | Path) -> Iterator[None]:
    """Read a file and those published with it; raise InputError on a mixture of old and new."""
    target = Path(os.path.realpath(path))
    repair(target)
    before = _identity(target)
    busy = any((home / "journal").exists() for home in _homes(target.parent, target))
    if not busy:
        yield
    if busy or _identity(target) != before:
        raise InputError(f"{path} is being replaced at this moment: try again")


def repair(path: str | Path) -> None:
    """Undo interrupted transactions on a file and delete their leftovers.

    Raises InputError if one cannot be undone, since the file is then half old and half new.
    """
    target = Path(os.path.realpath(path))
    for home in _homes(target.parent, target):
        _repair_home(home, target)


def repair_folder(folder: str | Path) -> None:
    """Undo the interrupted transactions on all files of a folder."""
    for home in _homes(Path(folder)):
        _repair_home(home, Path(folder))


def _homes(folder: Path, target: Path | None = None) -> list[Path]:
    """Return the hidden folders of all transactions, interrupted or running."""
    start = "." if target is None else hidden_prefix(target)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    return [folder / n for n in names if n.startswith(start) and n.endswith(_SUFFIX)]


def _repair_home(home: Path, target: Path) -> None:
    try:
        lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        try:
            if not try_lock(lock) or not is_open_at(lock, home):
                return
        except OSError:  # a file system without locks: the owner may still be running
            return
        try:
            if _roll_back(home):
                logger.warning("%s: a write that was interrupted has been undone", target)
        except OSError as error:
            raise InputError(
                f"{target} is half written by an interrupted run, and cannot be repaired: "
                f"{error.strerror}"
            ) from error
        shutil.rmtree(home, ignore_errors=True)
    finally:
        os.close(lock)


def _make_home(target: Path) -> tuple[Path, int]:
    """Create a hidden folder with an unpredictable name and lock it."""
    while True:
        home = target.with_name(f"{hidden_prefix(target)}{secrets.token_hex(8)}{_SUFFIX}")
        home.mkdir(mode=0o700)
        try:
            (home / "new").mkdir()
            lock = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            shutil.rmtree(home, ignore_errors=True)
            raise
        with suppress(OSError):  # a file system without locks
            if not try_lock(lock) or not is_open_at(lock, home):  # removed as a leftover
                os.close(lock)
                continue
        return home, lock


def _write_journal(home: Path, entries: dict[str, list[int] | None]) -> None:
    draft = home / "journal.draft"
    draft.write_text(json.dumps(entries), encoding="utf8")
    _sync(draft)
    os.rename(draft, home / "journal")
    _sync(home)


def _roll_back(home: Path) -> bool:
    """Restore the old files that the journal lists; False if there is no journal."""
    try:
        entries = json.loads((home / "journal").read_text(encoding="utf8"))
    except FileNotFoundError:
        return False
    except ValueError as error:
        raise OSError(errno.EIO, f"{home}/journal is damaged") from error
    for name, ours in entries.items():
        if name != os.path.basename(name):
            raise OSError(errno.EPERM, f"{home}/journal names a file elsewhere")
        target, new, old = home.parent / name, home / "new" / name, home / "old" / name
        if ours is not None and not os.path.lexists(new) and _identity(target) == ours:
            os.rename(target, new)
        if os.path.lexists(old) and not os.path.lexists(target):
            os.rename(old, target)
    os.unlink(home / "journal")
    return True


def _identity(path: Path) -> list[int] | None:
    """Return what distinguishes the file at a path from any other file put in its place."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return [status.st_ino]
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _set_aside(target: Path, old: Path, vanish: bool) -> None:
    """Keep the old file under a second name; without `vanish` it stays in place if possible."""
    if not vanish:
        with suppress(OSError):
            os.link(target, old, follow_symlinks=False)
            return
    os.rename(target, old)


def _rename(source: Path, target: Path, flags: int) -> bool:
    """Call renameat2 to swap two names or to refuse an existing one; False if unsupported."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    at = -100  # AT_FDCWD
    if call(at, os.fsencode(source), at, os.fsencode(target), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(target))


def _sync_tree(path: Path) -> None:
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))
    if not path.is_dir():
        _sync(path)


def _sync(path: Path) -> None:
    """Flush to disk, so that a power failure after the rename cannot leave an empty file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync folders
            raise
    finally:
        os.close(descriptor)
