"""Output files: written under a private name next to the target, then published by one call.

Without permission to overwrite, a file is published by `os.link`, which fails if the name exists;
with it by `os.replace`. Readers see the complete old file or the complete new one, and never write,
repair or delete. Of files that belong together the main file is published last, and the others
carry its fingerprint, by which a reader recognizes a pair that does not match.
"""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rpml.runtime.errors import InputError, WriteError, write_error
from rpml.runtime.locks import DRAFT, NO_FOLLOW, hidden_name, locked
from rpml.runtime.outputs import (
    FOLDER_MANIFEST,
    Manifest,
    check_regular,
    exists_error,
    resolved,
)

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


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
    target, state = resolved(path), ""
    try:
        with locked(target, again=True):
            outputs = Outputs(target, replaces or (lambda file: overwrite))
            state = "; the previous one is unchanged" if target.is_file() else ""
            try:
                yield outputs
                state = state if len(outputs.drafts()) == 1 else ""
                outputs.publish()
            finally:
                outputs.discard()
    except WriteError:
        raise
    except OSError as error:
        raise write_error(target, error, state) from error


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
        self._removed: list[Path] = []
        self._stale: list[Path] = []

    def new(self, path: str | os.PathLike[str]) -> Path:
        """Return where to write the file that will become `path`, created empty and private."""
        target, main = resolved(path), self._main
        folder = main if main.is_dir() else target.parent
        if not target.is_relative_to(folder):
            raise InputError(f"{path} is a link out of {folder}: move it away")
        draft = folder / f"{hidden_name(main)}{secrets.token_hex(8)}{DRAFT}{target.suffix}"
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_FOLLOW, 0o666)
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
        self._removed.append(resolved(path))
        if before_main:
            self._stale.append(resolved(path))

    def publish(self) -> None:
        """Make the files visible, the latest first and the main file last."""
        for path in [*self._new, *self._removed]:
            if os.path.lexists(path) and not self._replaces(path):
                raise exists_error(path)
        created = []
        targets = [p for p in reversed(self._new) if p != self._main]
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
                for path in self._stale if target == targets[-1] else ():
                    path.unlink(missing_ok=True)
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
        for path in self._removed:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in [*targets, *self._removed]}:
            _sync(folder)
        self.discard()

    def discard(self) -> None:
        """Delete what was not published."""
        for draft, _ in self._new.values():
            with suppress(OSError):
                draft.unlink()
        self._new.clear()


def _link(draft: Path, target: Path) -> None:
    """Give a file its name, which must be free, also while another process does the same."""
    try:
        try:
            os.link(draft, target, follow_symlinks=False)
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in _NO_LINKS:
                raise
            # no hard links here: the name is taken by an empty file first, which a kill would leave
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NO_FOLLOW, 0o600))
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
