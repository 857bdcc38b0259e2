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
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rpml.runtime.context import file_fingerprint
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

HIDDEN = ".rpml-new"  # ends the names of the private folders
_LOCK = "lock"
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_LOCK_BYTE = 2**20  # beyond the text of the lock file, which others can then read on Windows
_threads = threading.Lock()  # held while a lock is taken or released


@contextmanager
def locked(output: Place, again: bool = False) -> Iterator[Path]:
    """Hold an exclusive lock on an output while the block runs; InputError if it is taken.

    The lock is a file with the process id, which the system releases when the process ends for any
    reason, in a hidden folder next to the output (in it, if it is a folder). Yields a new folder
    there for drafts. With `again` this process may hold the lock already.
    """
    target = resolved(output)
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]  # names are 255 bytes long
    folder = target if target.is_dir() else target.parent
    hidden = folder / f".{target.name[:30]}-{digest}{HIDDEN}"
    with ExitStack() as stack:
        with _threads, _write_errors(target):
            descriptor = _acquire(hidden, target, again)
            stack.callback(_release, hidden, descriptor)
            scratch = Path(tempfile.mkdtemp(dir=hidden))
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        yield scratch


@contextmanager
def _write_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        check_output(target, overwrite=True)  # which may say more than the system does
        raise write_error(target, error) from error


def _acquire(hidden: Path, target: Path, again: bool) -> int | None:
    """Return the open and locked file, signed with the process id; None if that is ours already."""
    while True:
        with suppress(FileExistsError):
            hidden.mkdir(0o700)
        with suppress(FileNotFoundError):  # the previous owner may just have deleted it
            if not is_private(hidden):
                raise InputError(f"cannot write {target}: {hidden} is not a folder of yours")
            descriptor = os.open(hidden / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            owner = os.read(descriptor, 32).decode(errors="replace")
            if not _try_lock(descriptor, target):
                os.close(descriptor)
                if again and owner == str(os.getpid()):
                    return None
                raise InputError(
                    f"{target} is being written by process {owner or '?'}: wait until it has "
                    "finished, or choose another name"
                )
            if os.path.samestat(os.fstat(descriptor), os.lstat(hidden / _LOCK)):
                break
            os.close(descriptor)
    for left in hidden.iterdir():  # by a killed process
        shutil.rmtree(left, ignore_errors=True)
    with suppress(OSError):  # on a full disk others do not learn who holds it
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.ftruncate(descriptor, os.write(descriptor, str(os.getpid()).encode()))
    return descriptor


def is_private(hidden: Path) -> bool:
    """Whether a path is a hidden folder of this user, for the drafts of an output."""
    status = os.lstat(hidden)
    mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return mine and stat.S_ISDIR(status.st_mode) and hidden.name.endswith(HIDDEN)


def _release(hidden: Path, descriptor: int | None) -> None:
    with _threads, suppress(OSError):  # Windows does not delete a file that is open
        if descriptor is not None:
            with suppress(OSError):  # while it is locked: who has opened it will notice
                os.unlink(hidden / _LOCK)
            os.close(descriptor)
        hidden.rmdir()  # unless another thread has drafts in it


def remove_leftovers(folder: Path) -> None:
    """Delete the hidden folders of outputs that killed processes left, not those in use."""
    for hidden in folder.glob(f".*{HIDDEN}"):
        with suppress(InputError, OSError):
            with _threads:
                descriptor = _acquire(hidden, hidden, again=False)
            _release(hidden, descriptor)


def _try_lock(descriptor: int, target: Path) -> bool:
    """Lock an open file, with a warning where there are no locks; False if another process has."""
    try:
        try:
            fcntl = importlib.import_module("fcntl")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            msvcrt = importlib.import_module("msvcrt")
            os.lseek(descriptor, _LOCK_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):  # of flock and of msvcrt
        return False
    except (ImportError, OSError) as error:
        if getattr(error, "errno", errno.ENOSYS) not in _NO_LOCKS:
            raise
        logger.warning("%s: no locks here, a second writer is not noticed", target.parent)
    return True


@contextmanager
def atomic_output(path: Place, overwrite: bool) -> Iterator[Path]:
    """Yield a path to write a file to; it becomes `path` if the block succeeds."""
    target = resolved(path)
    check_regular(target)
    with atomic_outputs(target, overwrite) as scratch:
        yield scratch / target.name


@contextmanager
def atomic_outputs(
    path: Place,
    overwrite: Overwrite,
    earlier: Collection[Path] = (),
    manifest: Manifest | None = None,
) -> Iterator[Path]:
    """Yield a private folder; the files in it are published at the end of the block.

    They become files of the folder of `path`, which is published last, or of `path` if that is a
    folder. Files of `earlier` are deleted if there is no new one of that name. If `overwrite` does
    not allow to replace or delete an existing file, that is an InputError, and everything stays.
    The manifest, if any, lists those of both runs and says that it is not complete while files are
    published, then those that are there.
    """
    target = resolved(path)
    with _write_errors(target), locked(target, again=True) as scratch:
        yield scratch
        drafts = _drafts(scratch)
        removed = [file for file in map(resolved, earlier) if file not in drafts]
        for file in [*drafts, *removed]:
            _exists(file, overwrite)
        if manifest is not None:
            listed = {*manifest.owned(), *drafts}
            manifest.main = file_fingerprint(drafts[target]) if target in drafts else ""
            _publish_list(scratch, manifest, listed, complete=False)
        for file in sorted(drafts, key=lambda file: file == target):
            _publish(drafts[file], file, overwrite)
        for file in removed:
            file.unlink(missing_ok=True)
        if manifest is not None:
            _publish_list(scratch, manifest, listed.difference(removed), complete=True)


def _publish_list(
    scratch: Path, manifest: Manifest, files: Collection[Path], complete: bool
) -> None:
    draft = scratch / f"list{HIDDEN}"
    draft.write_text(manifest.text(files, complete), encoding="utf8")
    _publish(draft, manifest.path, complete or manifest.owns(manifest.path))


@contextmanager
def folder_outputs(
    folder: Place,
    overwrite: bool,
    manifest: Manifest | None = None,
    retained: Collection[Path] = (),
) -> Iterator[Path]:
    """Yield a folder as `atomic_outputs` does; its files are published in `folder`, one by one.

    With `overwrite`, files that an earlier output left there unchanged are replaced, or deleted if
    they are not `retained`. Everything else in the folder stays.
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
    try:
        manifest = manifest or Manifest(target / FOLDER_MANIFEST)
        earlier = manifest.owned().difference(retained)
        with atomic_outputs(target, manifest.owns, earlier, manifest) as scratch:
            yield scratch
    except BaseException:
        if made:
            with suppress(OSError):
                target.rmdir()
        raise


def _drafts(scratch: Path) -> dict[Path, Path]:
    """Return the files of a private folder by what they will become."""
    files = {p.relative_to(scratch): p for p in sorted(scratch.rglob("*")) if p.is_file()}
    hidden = [name for name in files if any(part.endswith(HIDDEN) for part in name.parts)]
    return {scratch.parents[1] / name: files[name] for name in files if name not in hidden}


def _exists(target: Path, overwrite: Overwrite) -> bool:
    """Whether a file is there and may be replaced; InputError if it must stay."""
    if resolved(target) != target:
        raise InputError(f"{target} is behind a link: move {target.parent} away")
    there = os.path.lexists(target)
    if there and not (overwrite(target) if callable(overwrite) else overwrite):
        raise exists_error(target)
    return there


def _publish(draft: Path, target: Path, overwrite: Overwrite) -> None:
    """Give a complete file its name, which another process may be about to take."""
    with open(draft, "rb+") as file:  # or a power failure could leave an empty file
        os.fsync(file)
    if _exists(target, overwrite):
        check_regular(target)
        if not target.is_symlink():  # a link itself is replaced
            os.chmod(draft, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(draft, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        try:
            os.link(draft, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # no hard links here: the name is taken by an empty file first, which a kill would leave
            os.close(os.open(target, os.O_EXCL | os.O_CREAT | os.O_WRONLY, 0o600))
            os.replace(draft, target)
    except FileExistsError:
        raise exists_error(target) from None
