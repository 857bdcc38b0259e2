"""Output files: locked, written under a private name next to the target, published by one call.

Without permission to overwrite, a file is published by `os.link`, which fails if the name exists;
with it by `os.replace`. Readers see the complete old file or the complete new one, and never write,
repair or delete. Of files that belong together the main file is published last.
"""

import hashlib
import importlib
import logging
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from itertools import product
from pathlib import Path

from rpml.runtime.errors import InputError, WriteError, write_error

logger = logging.getLogger(__name__)
Place = str | os.PathLike[str]
Overwrite = bool | Callable[[Path], bool]
"""Whether existing files are replaced, or which."""
Drafts = dict[Path, Path]
"""Complete files under private names, by the names that they will get."""

HIDDEN = ".rpml-new"  # ends the names of what is not published yet
_threads = threading.Lock()  # held while a lock is taken or released
_held: dict[tuple[int, Path], list[int]] = {}
"""The open file of each lock that a process holds, once per thread or block that shares it."""


def resolved(path: Place) -> Path:
    """Return the path with the links of its folder resolved; a link at its end is not followed."""
    path = Path(path)
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


def exists_error(path: Path) -> InputError:
    """Return the exception for an output that exists and may not be replaced."""
    return InputError(
        f"{path} exists: choose another name, or replace it with --force (in Python overwrite=True)"
    )


def check_output(path: Place, overwrite: bool, inputs: Iterable[Place | None] = ()) -> Path:
    """Raise InputError, before any work, if an output cannot or must not be written.

    `inputs` are the files that are read and must not be replaced (see `check_apart`).
    """
    target, folder = Path(path), Path(path).parent
    if str(target) == "-":
        raise InputError("only tables can be written to standard output: give a file name")
    try:
        str(target).encode()
    except UnicodeEncodeError:
        raise InputError(
            f"the output name {target.name!a} is not text in this locale: set LC_ALL=C.UTF-8"
        ) from None
    check_apart([target], inputs)
    if os.path.lexists(target) and not overwrite:
        raise exists_error(target)
    if not target.is_dir():
        check_regular(target)
    if not folder.is_dir():
        raise InputError(f"cannot write {target}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {target}: no permission to write in {folder}")
    return target


def check_regular(path: Path) -> None:
    """Raise InputError if a device, a pipe or a folder has the name of an output file."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise InputError(f"cannot write {path}: it is {what}")


def check_apart(outputs: Iterable[Place], inputs: Iterable[Place | None]) -> None:
    """Raise InputError if an output is an input (also by a link), contains one, or is inside one.

    None, ``-`` and URLs among the inputs are ignored.
    """
    read = [i for i in inputs if i is not None and str(i) != "-" and "://" not in str(i)]
    for output, source in product(outputs, read):
        written, path = Path(os.path.realpath(output)), Path(os.path.realpath(source))
        if path.is_relative_to(written) or written.is_relative_to(path):
            inside = "holds" if path.is_relative_to(written) else "lies in"
            word = "is" if path == written else inside
            raise InputError(f"{output} {word} the input {source}: choose another output")


@contextmanager
def locked(output: Place, again: bool = False) -> Iterator[Path]:
    """Hold an exclusive lock on an output while the block runs; InputError if it is taken.

    Yields a new folder for drafts, whose name begins with the process id. It is in a hidden folder
    next to the output (in it, if that is a folder), as is the lock, a file that the system releases
    when the process ends for any reason. With `again` this process may hold the lock already.
    """
    target = resolved(output)
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:12]  # names are 255 bytes long
    folder = target if target.is_dir() else target.parent
    hidden = folder / f".{target.name[:30]}-{digest}{HIDDEN}"
    with ExitStack() as stack:
        with _threads, write_errors(target):
            shared = _held.get((os.getpid(), hidden)) if again else None
            descriptor = shared[0] if shared else _acquire(hidden, target)
            _held.setdefault((os.getpid(), hidden), []).append(descriptor)
            stack.callback(_release, hidden)
            scratch = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=hidden)
            stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        yield Path(scratch)


@contextmanager
def write_errors(target: Path) -> Iterator[None]:
    """Turn errors of the system into one sentence about the output."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        check_output(target, overwrite=True)  # which may say more than the system does
        raise write_error(target, error) from error


def _acquire(hidden: Path, target: Path) -> int:
    """Return the locked file, open."""
    while True:
        with suppress(FileExistsError):
            hidden.mkdir(0o700)
        with suppress(FileNotFoundError):  # the previous owner may just have deleted it
            status = os.lstat(hidden)
            mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
            if not (mine and stat.S_ISDIR(status.st_mode)):
                raise InputError(f"cannot write {target}: {hidden} is not a folder of yours")
            descriptor = os.open(hidden / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            if not _try_lock(descriptor, target):
                os.close(descriptor)
                owner = next((path.name.split("-")[0] for path in hidden.glob("*-*")), "?")
                raise InputError(
                    f"{target} is being written by process {owner}: wait until it has finished, or "
                    "choose another name"
                )
            if os.path.samestat(os.fstat(descriptor), os.lstat(hidden / "lock")):
                break
            os.close(descriptor)
    for left in hidden.glob("*-*"):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)
    return descriptor


def _try_lock(descriptor: int, target: Path) -> bool:
    """Lock an open file, with a warning where there are no locks; False if another process has."""
    try:
        try:
            fcntl = importlib.import_module("fcntl")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            msvcrt = importlib.import_module("msvcrt")
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):  # of flock and of msvcrt
        return False
    except (ImportError, OSError):
        logger.warning("%s: no locks here, a second writer is not noticed", target.parent)
    return True


def _release(hidden: Path) -> None:
    """Leave a lock to the threads that share it; the last one deletes it."""
    with _threads, suppress(OSError):  # Windows does not delete a file that is open
        users = _held[os.getpid(), hidden]
        descriptor = users.pop()
        if not users:
            del _held[os.getpid(), hidden]
            with suppress(OSError):  # while it is locked: who has opened it will notice
                os.unlink(hidden / "lock")
            os.close(descriptor)
            hidden.rmdir()


@contextmanager
def atomic_output(path: Place, overwrite: Overwrite) -> Iterator[Path]:
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
    publishing: Callable[[Drafts, Path], AbstractContextManager[object]] | None = None,
) -> Iterator[Path]:
    """Yield a private folder; the files in it are published at the end of the block.

    They become files of the folder of `path`, which is published last, or of `path` if that is a
    folder. Files of `earlier` are deleted if there is no new one of that name. If `overwrite` does
    not allow to replace or delete an existing file, that is an InputError, and everything stays.
    `publishing` is entered with the drafts and their folder while names change.
    """
    target = resolved(path)
    with write_errors(target), locked(target, again=True) as scratch:
        yield scratch
        files = [path for path in sorted(scratch.rglob("*")) if path.is_file()]
        files = [path for path in files if HIDDEN not in path.parent.name]  # no locks of drafts
        drafts = {scratch.parents[1] / path.relative_to(scratch): path for path in files}
        removed = [file for file in map(resolved, earlier) if file not in drafts]
        for file in [*drafts, *removed]:
            _exists(file, overwrite)
        with nullcontext() if publishing is None else publishing(drafts, scratch):
            for file in sorted(drafts, key=lambda file: file == target):
                publish(drafts[file], file, overwrite)
            for file in removed:
                file.unlink(missing_ok=True)


def _exists(target: Path, overwrite: Overwrite) -> bool:
    """Whether a file is there and may be replaced; InputError if it must stay."""
    if resolved(target) != target:
        raise InputError(f"{target} is behind a link: move {target.parent} away")
    there = os.path.lexists(target)
    if there and not (overwrite(target) if callable(overwrite) else overwrite):
        raise exists_error(target)
    return there


def publish(draft: Path, target: Path, overwrite: Overwrite) -> None:
    """Give a complete file its name, which another process may be about to take."""
    with open(draft, "rb+") as file:  # or a power failure could leave an empty file
        os.fsync(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    if _exists(target, overwrite):
        check_regular(target)
        if not target.is_symlink():  # a link itself is replaced
            os.chmod(draft, stat.S_IMODE(os.stat(target).st_mode))
    elif overwrite is not True:
        try:
            os.link(draft, target)
        except OSError:  # without hard links an empty file takes the name; a kill would leave it
            try:
                target.touch(exist_ok=False)
            except FileExistsError:
                raise exists_error(target) from None
    os.replace(draft, target)
