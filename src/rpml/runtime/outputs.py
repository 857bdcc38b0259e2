"""Checks of output paths: never overwrite an input or a file that rpml has not written."""

import glob
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from rpml.runtime.context import Json
from rpml.runtime.digest import file_fingerprint
from rpml.runtime.errors import InputError
from rpml.runtime.schema import check_json, read_json

FOLDER_MANIFEST = "rpml.json"
"""Lists the files of an output folder."""
MANIFEST_SUFFIX = ".manifest.json"
"""Of the list of the files next to features."""
_STATES = {"*": [(int, str)]}
_MANIFEST = {"files": _STATES, "facts": {}, "earlier?": _STATES}


def check_output(
    path: str | os.PathLike[str], overwrite: bool, inputs: Iterable[str | Path | None] = ()
) -> Path:
    """Raise InputError, before any work, if an output cannot or must not be written.

    `inputs` are the files that are read and must not be replaced (see `check_apart`).
    """
    target = Path(path)
    if str(target) == "-":
        raise InputError("only tables can be written to standard output: give a file name")
    try:
        str(target).encode()
    except UnicodeEncodeError:
        shown = ascii(target.name)
        raise InputError(
            f"the output name {shown} is not text in this locale: set LC_ALL=C.UTF-8"
        ) from None
    check_apart([target], inputs)
    if os.path.lexists(target) and not overwrite:
        raise exists_error(target)
    if not target.is_dir():
        check_regular(target)
    folder = target.parent
    if not folder.is_dir():
        raise InputError(f"cannot write {target}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {target}: no permission to write in {folder}")
    return target


def exists_error(path: Path) -> InputError:
    """Return the exception for an output that exists and may not be replaced."""
    return InputError(
        f"{path} exists: choose another name, or replace it with --force (in Python overwrite=True)"
    )


def check_regular(path: Path) -> None:
    """Raise InputError if a device, a pipe or a folder has the name of an output file."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder")
    if path.exists() and not path.is_file():
        raise InputError(f"cannot write {path}: it is not a regular file")


def check_apart(outputs: Iterable[str | Path], inputs: Iterable[str | Path | None]) -> None:
    """Raise InputError if an output is an input, contains one, or is inside one.

    None, ``-`` and URLs among the inputs are ignored.
    """
    read = [Path(i) for i in inputs if i is not None and str(i) != "-" and "://" not in str(i)]
    used = {os.path.realpath(source): source for source in read}
    for output in map(Path, outputs):
        written = Path(os.path.realpath(output))
        holds = [path for path in used if path.startswith(f"{written}{os.sep}")]
        lies_in = [str(path) for path in written.parents if str(path) in used]
        for word, paths in (("is", _same(written, used)), ("holds", holds), ("lies in", lies_in)):
            if paths:
                source = used[paths[0]]
                raise InputError(f"{output} {word} the input {source}: choose another output")


def _same(path: Path, others: Iterable[str]) -> list[str]:
    """Return those paths that are the same file as `path`, including hard links."""
    linked = path.is_file() and path.stat().st_nlink > 1
    return [
        other
        for other in others
        if str(path) == other or (linked and os.path.exists(other) and path.samefile(other))
    ]


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the path with the links of its folder resolved; a link at its end is not followed."""
    path = Path(path)
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


class Manifest:
    """The files that rpml wrote together, with sizes, times and fingerprints, as a JSON file.

    A file that is not listed, or was changed since, is never replaced or deleted, nor is one that
    another user's manifest lists. A missing or unreadable manifest lists no files.
    """

    def __init__(self, path: Path) -> None:
        self.path = resolved(path)
        try:
            stored = read_json(path)
            check_json(stored, _MANIFEST)
        except (OSError, ValueError):
            stored = {"files": {}, "facts": {}}
        self.facts: Json = stored["facts"]
        self._files: dict[str, list[int | str]] = stored["files"]
        # those that were to be replaced, if a kill left them in place
        self._earlier: dict[str, list[int | str]] = stored.get("earlier", {})
        # anyone who may write in this folder could list our files in a manifest of their own
        self._mine = bool(self._files) and _is_mine(path)

    def _path(self, name: str) -> Path | None:
        """Return the path of a name; None if it leads out of the folder, by .. or by a link."""
        path, folder = self.path.parent / name, self.path.parent
        inside = ".." not in path.parts and resolved(path).is_relative_to(folder)
        return path if inside else None

    def _name(self, path: Path) -> str:
        return os.path.relpath(resolved(path), self.path.parent).replace(os.sep, "/")

    def listed(self, folder: Path | None = None) -> list[Path]:
        """Return the paths of the files; of those in a folder, or the file itself, if given."""
        paths = [path for name in self._files if (path := self._path(name)) is not None]
        inside = None if folder is None else resolved(folder)
        return [path for path in paths if inside is None or path.is_relative_to(inside)]

    def owned(self) -> list[Path]:
        """Return the files that rpml wrote, now or earlier, and nobody has changed since."""
        paths = (self._path(name) for name in {**self._earlier, **self._files})
        return [path for path in paths if path is not None and self.owns(path)]

    def owns(self, path: Path) -> bool:
        """Whether rpml wrote this file, or the files of this folder, all unchanged since."""
        if resolved(path) == self.path or not self._mine:
            return self._mine
        if path.is_dir():
            inside = self.listed(path)
            return bool(inside) and all(map(self.owns, inside))
        name, state = self._name(path), _state(path)
        known = (files.get(name, [])[:2] for files in (self._files, self._earlier))
        return self._path(name) is not None and bool(state) and state in known

    def check(self, path: Path) -> None:
        """Raise InputError if the path exists and is not a file of rpml."""
        if os.path.lexists(path) and not self.owns(path):
            raise InputError(
                f"{path} is there, and not as an earlier run of this output left it: move it away, "
                "or choose another output"
            )

    def intact(self) -> bool:
        """Whether all listed files are there as they were written."""
        return bool(self._files) and not any(map(self.differs, self.listed()))

    def differs(self, path: Path) -> bool:
        """Whether a listed file is missing or has other content than the one listed."""
        stored = self._files.get(self._name(path), [])[2:]
        return bool(stored) and not (path.is_file() and [file_fingerprint(path)] == stored)

    def write_next(
        self, draft: Path, files: Mapping[Path, Path], facts: Mapping[str, object] | None = None
    ) -> None:
        """Write the manifest that will replace this one.

        `files` are the final paths and the files themselves. The new manifest is published before
        them, and knows the files of this one too, so that a kill in between leaves nothing that
        the next run could not replace.
        """
        states = {
            self._name(target): [*_state(file), file_fingerprint(file)]
            for target, file in files.items()
        }
        earlier = {self._name(path): _state(path) for path in self.owned()}
        content = {"files": states, "earlier": earlier, "facts": dict(facts or {})}
        text = json.dumps(content, indent=1, sort_keys=True)
        draft.write_text(text + "\n", encoding="utf8")


def check_written_together(table: Path) -> None:
    """Raise InputError if a table was written with other features than those next to it now.

    ``NAME.npy.manifest.json`` lists the tables of ``NAME.npy`` and its fingerprint.
    """
    start = glob.escape(table.name.split(".")[0])
    for path in table.parent.glob(f"{start}*{MANIFEST_SUFFIX}"):
        manifest = Manifest(path)
        features = path.with_name(path.name.removesuffix(MANIFEST_SUFFIX))
        if resolved(table) in manifest.listed() and features.exists():
            for file in manifest.listed(features):
                if manifest.differs(file):
                    raise InputError(
                        f"{table} was written with other features than {features}: write both "
                        f"again, or remove {path.name} if they do belong together"
                    )


def _is_mine(path: Path) -> bool:
    return not hasattr(os, "geteuid") or os.lstat(path).st_uid == os.geteuid()


def _state(path: Path) -> list[int | str]:
    """Return size and modification time, which a rename keeps."""
    try:
        status = os.lstat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def check_no_file(folder: str | os.PathLike[str]) -> None:
    """Raise InputError if the name of a folder is taken by something else."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError(f"{folder} is there and not a folder: choose another name")


def check_folder(
    folder: str | os.PathLike[str], overwrite: bool, names: Iterable[str] = ()
) -> None:
    """Raise InputError, before any work, if a folder cannot be written, or a file in it.

    `names` are the files that will be written; with `overwrite` those of an earlier output are
    replaced, others never.
    """
    check_no_file(folder)
    check_output(folder, overwrite)
    manifest = Manifest(Path(folder) / FOLDER_MANIFEST)
    for name in (FOLDER_MANIFEST, *names):
        manifest.check(Path(folder) / name)
