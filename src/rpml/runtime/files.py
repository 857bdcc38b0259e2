"""Output files: locked, written under a private name next to the target, published by one call.

Without permission to overwrite, a file is published by `os.link`, which fails if the name exists;
with it by `os.replace`. Readers see the complete old file or the complete new one, and never write,
repair or delete. Of files that belong together the main file is published last, and the others
carry its fingerprint, by which a reader recognizes a pair that does not match.
"""

import errno
import hashlib
import importlib
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from rpml.runtime.errors import InputError, WriteError, write_error
from rpml.runtime.outputs import (
    FOLDER_MANIFEST,
    Manifest,
    Place,
    check_output,
    check_regular,
    exists_error,
    resolved,
)

logger = logging.getLogger(__name__)
Overwrite = bool | Callable[[Path], bool]
"""Whether existing files are replaced, or which."""

_DRAFT = ".rpml-new"  # in the names of files that are not yet published
_NEW = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_LOCK_BYTE = 2**20  # beyond the text of the lock file, which others can then read on Windows
_threads = threading.Lock()  # held while a lock is taken and signed


def _hidden_name(target: Path) -> str:
    """Return how the names of hidden files for a target begin; no two targets share it."""
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]
    return f".{target.name[:30]}-{digest}."  # file systems allow 255 bytes


def leftovers(folder: Path, output: Path | None = None) -> list[str]:
    """Return the hidden files of writers, of one output or all; killed ones have left them."""
    start = r"\..*-.*\." if output is None else re.escape(_hidden_name(output))
    name = re.compile(rf"{start}([0-9a-f]{{16}}{re.escape(_DRAFT)}(\..*)?|rpml-lock)")
    with suppress(OSError):
        files = [entry for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
        return [entry.path for entry in files if name.fullmatch(entry.name)]
    return []


@contextmanager
def locked(output: Place, again: bool = False) -> Iterator[None]:
    """Hold an exclusive lock on an output while the block runs; InputError if it is taken.

    The lock is a hidden file next to the output with the owner's process id, which the system
    releases when the process ends for any reason. With `again` this process may hold it already.
    """
    target = resolved(output)
    path = target.with_name(f"{_hidden_name(target)}rpml-lock")
    with _threads:
        descriptor = _acquire(path, target, again)
    if descriptor is None:
        yield
        return
    try:
        for left in {*leftovers(target.parent, target), *leftovers(target, target)} - {str(path)}:
            with suppress(OSError):
                os.unlink(left)
        yield
    finally:
        with suppress(OSError):  # while it is locked: who has opened it will notice
            path.unlink()
        os.close(descriptor)


def _acquire(path: Path, target: Path, again: bool) -> int | None:
    """Return the open and locked file, signed with the process id; None if that is ours already."""
    while True:
        descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDWR | _NEW, 0o600)
            os.lseek(descriptor, 0, os.SEEK_SET)  # fails for a pipe, which would be waited for
            owner = os.read(descriptor, 32)
            free = _try_lock(descriptor, target)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            check_output(target, overwrite=True)  # which may say more than the system does
            raise write_error(target, error) from error
        if not free:
            os.close(descriptor)
            if again and owner == str(os.getpid()).encode():
                return None
            raise InputError(
                f"{target} is being written by process {owner.decode(errors='replace') or '?'}: "
                "wait until it has finished, or choose another name"
            )
        if owner and not owner.isdigit():
            os.close(descriptor)
            raise InputError(f"cannot write {target}: {path} is not a lock of rpml, move it away")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                _sign(descriptor, path, target)
                return descriptor
        os.close(descriptor)  # the previous owner has just deleted it


def _sign(descriptor: int, path: Path, target: Path) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode())
    except OSError as error:  # a full disk
        path.unlink()
        os.close(descriptor)
        raise write_error(target, error) from error


def _optional(module: str) -> ModuleType | None:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _try_lock(descriptor: int, target: Path) -> bool:
    """Lock an open file, with a warning where there are no locks; False if another process has."""
    fcntl, msvcrt = _optional("fcntl"), _optional("msvcrt")
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
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logger.warning("%s: no locks here, a second writer is not noticed", target.parent)
    return True


@contextmanager
def atomic_output(path: Place, overwrite: bool) -> Iterator[Path]:
    """Yield a path to write a file to; it becomes `path` if the block succeeds."""
    with atomic_outputs(path, overwrite) as outputs:
        yield outputs.new(path)


@contextmanager
def atomic_outputs(path: Place, overwrite: Overwrite) -> Iterator["Outputs"]:
    """Yield files that are published at the end of the block, the main file `path` last.

    `path` may be a folder that the files are written to. An existing file that `overwrite` does
    not allow to replace raises InputError and stays.
    """
    target = resolved(path)
    try:
        with locked(target, again=True):
            outputs = Outputs(target, overwrite)
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
        with atomic_outputs(target, manifest.owns) as outputs:
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


@contextmanager
def scratch_outputs(folder: str | Path, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary folder, whose files are then published as by `folder_outputs`."""
    with tempfile.TemporaryDirectory(prefix="rpml-") as scratch:
        yield Path(scratch)
        with folder_outputs(folder, overwrite) as outputs:
            for path in sorted(Path(scratch).rglob("*")):
                if path.is_file():
                    target = Path(os.path.realpath(folder), path.relative_to(scratch))
                    shutil.copyfile(path, outputs.new(target))


class Outputs:
    """New files under private names."""

    def __init__(self, main: Path, overwrite: Overwrite) -> None:
        self._main, self._overwrite = main, overwrite
        self._new: dict[Path, tuple[Path, int]] = {}
        self._removed: list[Path] = []

    def new(self, path: Place) -> Path:
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

    def remove(self, path: str | Path) -> None:
        """Delete an existing file once the new ones are published."""
        self._removed.append(resolved(path))

    def publish(self) -> None:
        """Make the files visible, the latest first and the main file last."""
        for path in [*self._new, *self._removed]:
            self._replaces(path)
        created: list[Path] = []
        targets = list(reversed(self._new))
        targets.sort(key=lambda path: path == self._main)
        try:
            for target in targets:
                if self._publish(target):
                    created.append(target)
        except BaseException:
            for target in created:  # without the main file they are nobody's
                with suppress(OSError):
                    target.unlink()
            raise
        for path in self._removed:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in [*targets, *self._removed]}:
            _sync_folder(folder)

    def _replaces(self, path: Path) -> bool:
        """Whether a file is replaced; InputError if it exists and must stay."""
        there = os.path.lexists(path)
        allowed = self._overwrite
        if there and not (allowed(path) if callable(allowed) else allowed):
            raise exists_error(path)
        return there

    def _publish(self, target: Path) -> bool:
        """Publish one file; return whether its name was free."""
        draft, mode = self._new[target]
        replaces = self._replaces(target)
        if replaces:
            check_regular(target)
            if not target.is_symlink():  # a link itself is replaced
                mode = stat.S_IMODE(os.stat(target).st_mode)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(draft, "rb+") as file:  # or a power failure could leave an empty file
            os.fsync(file)
        os.chmod(draft, mode)
        if replaces:
            os.replace(draft, target)
        else:
            _link(draft, target)
        return not replaces

    def discard(self) -> None:
        """Delete what was not published."""
        for draft, _ in self._new.values():
            with suppress(OSError):
                draft.unlink()


def _link(draft: Path, target: Path) -> None:
    """Give a file its name, which must be free, also while another process does the same."""
    try:
        try:
            os.link(draft, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # no hard links here: the name is taken by an empty file first, which a kill would leave
            os.close(os.open(target, os.O_EXCL | os.O_WRONLY | _NEW, 0o600))
            os.replace(draft, target)
    except FileExistsError:
        raise exists_error(target) from None


def _sync_folder(folder: Path) -> None:
    """Flush the new names to disk, where the system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # Windows and some file systems cannot; a disk that fails is an error
        if error.errno in (errno.EIO, errno.ENOSPC):
            raise
