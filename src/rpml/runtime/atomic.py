"""Files that appear whole or not at all, one or several at once.

New files are written into a hidden folder beside their targets and renamed when all are complete.
One file takes one rename. Several take a rollback journal, as in SQLite: it names the targets and
lies in the hidden folder with the files they replace; removing it is the moment of success. After
a kill the next reader or writer finds the journal and puts the old files back.
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
from rpml.runtime.inputs import check_mapped
from rpml.runtime.locks import hidden_prefix, is_open_at, try_lock
from rpml.runtime.outputs import check_output

logger = logging.getLogger(__name__)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SUFFIX = ".rpml-new"
_NOREPLACE, _EXCHANGE = 1, 2  # of renameat2


def write_error(path: Path, error: OSError, state: str | None = None) -> Exception:
    """The sentence for a failed write: full disk, or a place we may not write to."""
    if state is None:
        state = "the previous one is unchanged" if path.exists() else ""
    reason = error.strerror or str(error)
    message = f"cannot write {path}: {reason}" + (f"; {state}" if state else "")
    if error.errno in _FULL or "No space left" in str(error) or "File too large" in str(error):
        return WriteError(error.errno, message)
    return InputError(message)


@contextmanager
def atomic_output(path: str | Path, overwrite: bool = True) -> Iterator[Path]:
    """Yield a path to write a file or a folder to; it becomes `path` if the block succeeds.

    Readers see the old content or the new one, never a part. A process killed in between leaves a
    hidden folder, which the next write to the same path removes.
    """
    with atomic_outputs(path, overwrite) as outputs:
        yield outputs.new(path)


@contextmanager
def atomic_outputs(path: str | Path, overwrite: bool = True) -> Iterator[Transaction]:
    """Yield a transaction: all of its files become visible if the block succeeds, or none.

    Parameters
    ----------
    path : str or Path
        The main one of the files, by which an interrupted transaction is found again.
    overwrite : bool, default=True
        Replace what is there.
    """
    check_output(path, overwrite)
    target = check_output(os.path.realpath(path), overwrite)  # a link stays a link
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
    """New files of one folder that replace the old ones together.

    Parameters
    ----------
    target : Path
        The main file; the others must be in its folder.
    overwrite : bool
        Replace what is there.
    """

    def __init__(self, target: Path, overwrite: bool) -> None:
        self._folder, self._overwrite = target.parent, overwrite
        self._home, self._lock = _make_home(target)
        self._new: list[str] = []
        self._removed: list[str] = []

    def new(self, path: str | Path) -> Path:
        """Where to write the file or folder that will be `path`."""
        self._new.append(self._name(path))
        return self._home / "new" / self._new[-1]

    def remove(self, path: str | Path) -> None:
        """Let the old file go when the new ones come."""
        self._removed.append(self._name(path))

    def _name(self, path: str | Path) -> str:
        target = Path(os.path.realpath(path))
        if target.parent != self._folder:
            raise InputError(f"{path} is a link out of its folder: give the file it points to")
        return target.name

    def publish(self) -> None:
        """Make the files visible, unless an input they were made from has changed."""
        check_mapped()
        for name in [*self._new, *self._removed]:  # they may have appeared meanwhile
            check_output(self._folder / name, self._overwrite)
        for name in self._new:
            new, target = self._home / "new" / name, self._folder / name
            if target.is_dir() and not new.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
            _sync_tree(new)
            _keep_mode(new, target)
        if len(self._new) != 1 or self._removed or not self._publish_one(self._new[0]):
            self._publish_all()
        _sync(self._folder)

    def _publish_one(self, name: str) -> bool:
        """One rename, if that is enough."""
        new, target = self._home / "new" / name, self._folder / name
        if target.is_dir():
            return _rename(new, target, _EXCHANGE)
        if self._overwrite or not _rename(new, target, _NOREPLACE):
            os.replace(new, target)
        return True

    def _publish_all(self) -> None:
        """Put the old files aside, the new ones in place, and remove the journal."""
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
        """Put the old files back; False if that cannot be done now."""
        try:
            _roll_back(self._home)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Remove the hidden folder, unless it holds old files that could not be put back."""
        if self.undo():
            shutil.rmtree(self._home, ignore_errors=True)
        os.close(self._lock)


@contextmanager
def consistent_read(path: str | Path) -> Iterator[None]:
    """Read a file and those published with it; refuse a mixture of old and new."""
    target = Path(os.path.realpath(path))
    repair(target)
    before = _identity(target)
    busy = any((home / "journal").exists() for home in _homes(target.parent, target))
    if not busy:
        yield
    if busy or _identity(target) != before:
        raise InputError(f"{path} is being replaced at this moment: try again")


def repair(path: str | Path) -> None:
    """Undo the transactions of dead processes on a file, and remove what they left.

    Raises
    ------
    InputError
        If an interrupted transaction cannot be undone, so that what is there is half new.
    """
    target = Path(os.path.realpath(path))
    for home in _homes(target.parent, target):
        _repair_home(home, target)


def repair_folder(folder: str | Path) -> None:
    """The same for every file of a folder."""
    for home in _homes(Path(folder)):
        _repair_home(home, Path(folder))


def _homes(folder: Path, target: Path | None = None) -> list[Path]:
    """The hidden folders of transactions, of dead processes and of live ones."""
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
        except OSError:  # a file system without locks: nobody knows whether its owner is alive
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
    """A folder of our own with an unpredictable name, locked for as long as we live."""
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
            if not try_lock(lock) or not is_open_at(lock, home):  # taken for a dead one's
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
    """Put old files back where the journal's new ones are; whether there was a journal."""
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
    """What tells our file from one that somebody has put in its place."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return [status.st_ino]
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _set_aside(target: Path, old: Path, vanish: bool) -> None:
    """Keep the old file under a second name; it stays in place if the system can link files."""
    if not vanish:
        with suppress(OSError):
            os.link(target, old, follow_symlinks=False)
            return
    os.rename(target, old)


def _rename(source: Path, target: Path, flags: int) -> bool:
    """renameat2: exchange two names, or refuse an existing one; False if it is not to be had."""
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


def _keep_mode(new: Path, target: Path) -> None:
    """A file that was private stays private."""
    if target.is_file():
        os.chmod(new, stat.S_IMODE(os.stat(target).st_mode))


def _sync_tree(path: Path) -> None:
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))
    if not path.is_dir():
        _sync(path)


def _sync(path: Path) -> None:
    """Flush to the disk, so that a rename never publishes what a power cut would empty."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync a folder
            raise
    finally:
        os.close(descriptor)
