"""Output files: locked, written under a private name next to the target, published by one call.

Without permission to overwrite, a file is published by `os.link`, which fails if the name exists;
with it by `os.replace`. Readers see the complete old file or the complete new one, and never write,
repair or delete. Of files that belong together the main file is published last, and the others
carry its fingerprint, by which a reader recognizes a pair that does not match.
"""

import errno
import hashlib
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rpml.runtime.errors import InputError, WriteError, write_error
from rpml.runtime.extras import optional
from rpml.runtime.outputs import (
    FOLDER_MANIFEST,
    Manifest,
    check_output,
    check_regular,
    exists_error,
    resolved,
)

logger = logging.getLogger(__name__)

_DRAFT = ".rpml-new"  # in the names of files that are not yet published
_NEW = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_LONG_NAME = 150  # bytes; file systems allow 255, and the rest is for the suffixes
_LOCK_BYTE = 2**20  # beyond the text of the lock file, which others can then read on Windows
_held: dict[tuple[int, Path], tuple[int, int]] = {}  # holders and the open file of each lock
_table = threading.Lock()
_SCRATCH = "rpml-scratch-"


def _hidden_name(target: Path) -> str:
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
    draft = rf"[0-9a-f]{{16}}{re.escape(_DRAFT)}(\.[^.]*)?"
    names = rf"\..*\.(rpml-lock|{draft})"
    if output is not None:
        names = re.escape(_hidden_name(output)) + draft
    with suppress(OSError):
        files = [entry for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
        return [entry.path for entry in files if re.fullmatch(names, entry.name)]
    return []


@contextmanager
def locked(output: str | os.PathLike[str], again: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on an output while the block runs; InputError if it is taken.

    The lock is a hidden file next to the output with the owner's process id. The system releases
    it when the process ends for any reason, so a file left by a crash does no harm. The output
    itself need not exist. With `again` this process may hold the lock already.
    """
    target = resolved(output)
    path = target.with_name(f"{_hidden_name(target)}rpml-lock")
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
    """Return the open and locked file."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | _NEW, 0o600)
        except OSError as error:
            check_output(target, overwrite=True)  # which may say more than the system does
            raise write_error(target, error) from error
        try:
            os.lseek(descriptor, 0, os.SEEK_SET)  # fails for a pipe, which would be waited for
            owner = os.read(descriptor, 32)
            if owner and not owner.isdigit():
                raise InputError(f"{path} is in the way and not a lock of rpml: move it away")
            if not _try_lock(descriptor):
                raise _taken(target, owner.decode())
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                    _sign(descriptor, path)
                    return descriptor
        except OSError as error:
            if error.errno in _NO_LOCKS:
                logger.warning("%s: no locks here, a second writer is not noticed", target.parent)
                return descriptor
            os.close(descriptor)
            raise write_error(target, error) from error
        except InputError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the previous owner has just deleted it


def _taken(target: Path, owner: str) -> InputError:
    return InputError(
        f"{target} is being written by process {owner or '?'}: wait until it has finished, or "
        "choose another name"
    )


def _try_lock(descriptor: int) -> bool:
    """Lock an open file or folder; False if another process holds it, OSError without locks."""
    fcntl, msvcrt = optional("fcntl"), optional("msvcrt")
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


def _sign(descriptor: int, path: Path) -> None:
    """Write the process id into the lock file; delete the file if the disk is full."""
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode())
    except OSError:
        path.unlink()
        raise


def _release(path: Path, descriptor: int) -> None:
    if os.name == "nt":  # an open file cannot be deleted
        os.close(descriptor)
    with suppress(OSError):  # while it is locked: who has opened it will notice
        path.unlink()
    if os.name != "nt":
        os.close(descriptor)


@contextmanager
def atomic_output(path: str | os.PathLike[str], overwrite: bool) -> Iterator[Path]:
    """Yield a path to write a file to; it becomes `path` if the block succeeds."""
    with atomic_outputs(path, overwrite) as outputs:
        yield outputs.new(path)


@contextmanager
def atomic_outputs(
    path: str | os.PathLike[str], overwrite: bool, replaces: Callable[[Path], bool] | None = None
) -> Iterator["Outputs"]:
    """Yield files that are published at the end of the block, the main file `path` last.

    `path` may be a folder that the files are written to. Existing files are replaced if
    `overwrite` is true or `replaces` says so; any other one raises InputError and stays.
    """
    target = resolved(path)
    try:
        with locked(target, again=True):
            outputs = Outputs(target, replaces or (lambda file: overwrite))
            try:
                yield outputs
                outputs.publish()
            finally:
                outputs.discard()
    except WriteError:
        raise
    except OSError as error:
        raise write_error(target, error) from error


@contextmanager
def folder_outputs(folder: str | Path, overwrite: bool) -> Iterator["Outputs"]:
    """Yield files that are published in a folder, one by one, with a manifest of them.

    The manifest is published first, so that a reader notices a folder that is not complete. With
    `overwrite`, files that an earlier output left there unchanged are replaced, or deleted if the
    new output has none of that name. Everything else in the folder stays.
    """
    target = Path(os.path.realpath(folder))
    made = not target.is_dir()
    if made or not overwrite:
        try:
            target.mkdir()
        except FileExistsError:
            raise exists_error(target) from None
        except OSError as error:
            raise write_error(target, error) from error
    manifest = Manifest(target / FOLDER_MANIFEST)
    try:
        with atomic_outputs(target, overwrite, manifest.owns) as outputs:
            yield outputs
            drafts = outputs.drafts()
            manifest.write_next(outputs.new(manifest.path), drafts)
            for path in manifest.owned():
                if path not in drafts:
                    outputs.remove(path)
    except BaseException:
        if made:
            with suppress(OSError):
                target.rmdir()
        raise


def publish_tree(source: Path, folder: str | Path, overwrite: bool) -> None:
    """Publish copies of all files below a scratch folder; see `folder_outputs`."""
    with folder_outputs(folder, overwrite) as outputs:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                target = outputs.new(Path(os.path.realpath(folder), path.relative_to(source)))
                shutil.copyfile(path, target)


class Outputs:
    """New files under private names; `replaces` says which existing files they may replace."""

    def __init__(self, main: Path, replaces: Callable[[Path], bool]) -> None:
        self._main, self._replaces = main, replaces
        self._new: dict[Path, tuple[Path, int]] = {}
        self._removed: dict[Path, bool] = {}

    def new(self, path: str | os.PathLike[str]) -> Path:
        """Return where to write the file that will become `path`, created empty and private."""
        target, main = resolved(path), self._main
        folder = main if main.is_dir() else target.parent
        if not target.is_relative_to(folder):
            raise InputError(f"{path} is a link out of {folder}: move it away")
        draft = folder / f"{_hidden_name(main)}{secrets.token_hex(8)}{_DRAFT}{target.suffix}"
        descriptor = os.open(draft, os.O_EXCL | os.O_WRONLY | _NEW, 0o666)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)  # as the umask allows
        os.close(descriptor)
        self._new[target] = draft, mode
        os.chmod(draft, 0o600)
        return draft

    def drafts(self) -> dict[Path, Path]:
        """Return the targets and the files written for them so far."""
        return {target: draft for target, (draft, _) in self._new.items()}

    def remove(self, path: str | Path, before_main: bool = False) -> None:
        """Delete an existing file once the new ones are published, or all but the main file."""
        self._removed[resolved(path)] = before_main

    def publish(self) -> None:
        """Make the files visible, the latest first and the main file last."""
        for path in [*self._new, *self._removed]:
            if os.path.lexists(path) and not self._replaces(path):
                raise exists_error(path)
        created: list[tuple[Path, os.stat_result]] = []
        targets = [path for path in reversed(self._new) if path != self._main]
        targets += [self._main] if self._main in self._new else []
        try:
            for target in targets:
                draft, mode = self._new[target]
                replaced = os.path.lexists(target) and self._replaces(target)
                if replaced:
                    check_regular(target)
                if replaced and not target.is_symlink():  # a link itself is replaced
                    mode = stat.S_IMODE(os.stat(target).st_mode)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.chmod(draft, mode)
                _sync(draft)
                if target == targets[-1]:
                    self._unlink(before_main=True)
                if replaced:
                    os.replace(draft, target)
                else:
                    identity = os.stat(draft)
                    _link(draft, target)
                    created.append((target, identity))
        except BaseException:
            for target, identity in created:  # without the main file they are nobody's
                with suppress(OSError):
                    if os.path.samestat(identity, os.lstat(target)):
                        os.unlink(target)
            raise
        self._unlink(before_main=False)
        for folder in {path.parent for path in [*targets, *self._removed]}:
            _sync(folder)

    def _unlink(self, before_main: bool) -> None:
        for path, before in self._removed.items():
            if before == before_main:
                path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete what was not published."""
        for draft, _ in self._new.values():
            with suppress(OSError):
                draft.unlink()


def _link(draft: Path, target: Path) -> None:
    """Give a file its name, which must be free, also while another process does the same."""
    try:
        try:
            os.link(draft, target, follow_symlinks=False)
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_LINKS:
                raise
            # no hard links here: the name is taken by an empty file first, which a kill would leave
            os.close(os.open(target, os.O_EXCL | os.O_WRONLY | _NEW, 0o600))
            os.replace(draft, target)
    except FileExistsError:
        raise exists_error(target) from None


def _sync(path: Path) -> None:
    """Flush to disk, so that a power failure after the publication cannot leave an empty file."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot sync folders
            raise
    finally:
        os.close(descriptor)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder, locked while the process lives; delete those of killed processes."""
    for path in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*"):
        with suppress(OSError, AttributeError):  # Windows has neither flags nor users
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                status = os.fstat(lock)
                young = time.time() - status.st_mtime < 60  # may not be locked yet
                if status.st_uid == os.getuid() and not young and _try_lock(lock):
                    shutil.rmtree(path)
            finally:
                os.close(lock)
    folder = tempfile.TemporaryDirectory(prefix=_SCRATCH)
    with suppress(OSError):  # a file system without locks
        lock = os.open(folder.name, os.O_RDONLY)
        weakref.finalize(folder, os.close, lock)
        _try_lock(lock)
    return folder
