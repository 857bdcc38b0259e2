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
States = dict[Path, list[int | str]]


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
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "not a regular file"
        raise InputError(f"cannot write {path}: it is {what}")


def check_apart(outputs: Iterable[str | Path], inputs: Iterable[str | Path | None]) -> None:
    """Raise InputError if an output is an input (also by a link), contains one, or is inside one.

    None, ``-`` and URLs among the inputs are ignored.
    """
    read = [i for i in inputs if i is not None and str(i) != "-" and "://" not in str(i)]
    used = {os.path.realpath(source): source for source in read}
    for output in outputs:
        written = os.path.realpath(output)
        linked = os.path.isfile(written) and os.stat(written).st_nlink > 1
        for path, source in used.items():
            if path == written or (
                linked and os.path.exists(path) and os.path.samefile(path, written)
            ):
                word = "is"
            elif path.startswith(written + os.sep):
                word = "holds"
            elif written.startswith(path + os.sep):
                word = "lies in"
            else:
                continue
            raise InputError(f"{output} {word} the input {source}: choose another output")


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
        self._files = self._inside(stored["files"])
        # those that were to be replaced, if a kill left them in place
        self._earlier = self._inside(stored.get("earlier", {}))
        # anyone who may write in this folder could list our files in a manifest of their own
        users = hasattr(os, "geteuid")
        self._mine = bool(self._files) and not (users and os.lstat(path).st_uid != os.geteuid())

    def _inside(self, states: dict[str, list[int | str]]) -> States:
        """Return the states by path, without names that lead out of the folder by .. or a link."""
        folder = self.path.parent
        paths = {name: resolved(folder / name) for name in states if ".." not in Path(name).parts}
        return {path: states[name] for name, path in paths.items() if path.is_relative_to(folder)}

    def listed(self, folder: Path | None = None) -> list[Path]:
        """Return the paths of the files; of those in a folder, or the file itself, if given."""
        inside = self.path.parent if folder is None else resolved(folder)
        return [path for path in self._files if path.is_relative_to(inside)]

    def owned(self) -> list[Path]:
        """Return the files that rpml wrote, now or earlier, and nobody has changed since."""
        return [path for path in {**self._earlier, **self._files} if self.owns(path)]

    def owns(self, path: Path) -> bool:
        """Whether rpml wrote this file, or the files of this folder, all unchanged since."""
        path = resolved(path)
        if path == self.path or not self._mine:
            return self._mine
        if path.is_dir():
            inside = self.listed(path)
            return bool(inside) and all(map(self.owns, inside))
        known = [states.get(path, [])[:2] for states in (self._files, self._earlier)]
        return os.path.lexists(path) and _state(path) in known

    def check(self, path: Path) -> None:
        """Raise InputError if the path exists and is not a file of rpml."""
        if os.path.lexists(path) and not self.owns(path):
            raise InputError(
                f"{path} is there, and not as an earlier run of this output left it: move it away, "
                "or choose another output"
            )

    def intact(self) -> bool:
        """Whether all listed files are there as they were written."""
        return bool(self._files) and not any(map(self.differs, self._files))

    def differs(self, path: Path) -> bool:
        """Whether a listed file is missing or has other content than the one listed."""
        stored = self._files.get(resolved(path), [])[2:]
        return bool(stored) and not (path.is_file() and [file_fingerprint(path)] == stored)

    def write_next(
        self, draft: Path, files: Mapping[Path, Path], facts: Mapping[str, object] | None = None
    ) -> None:
        """Write the manifest that will replace this one.

        `files` are the final paths and the files themselves. The new manifest is published before
        them, and knows the files of this one too, so that a kill in between leaves nothing that
        the next run could not replace.
        """
        states = {path: [*_state(file), file_fingerprint(file)] for path, file in files.items()}
        earlier = {path: _state(path) for path in self.owned()}
        content = {"files": self._named(states), "earlier": self._named(earlier)}
        text = json.dumps({**content, "facts": dict(facts or {})}, indent=1, sort_keys=True)
        draft.write_text(text + "\n", encoding="utf8")

    def _named(self, states: States) -> Json:
        folder = self.path.parent
        return {os.path.relpath(p, folder).replace(os.sep, "/"): s for p, s in states.items()}


def _state(path: Path) -> list[int | str]:
    """Return size and modification time, which a rename keeps."""
    status = os.lstat(path)
    return [status.st_size, status.st_mtime_ns]


def check_written_together(table: Path) -> None:
    """Raise InputError if a table was written with other features than those next to it now.

    ``NAME.npy.manifest.json`` lists the tables of ``NAME.npy`` and its fingerprint.
    """
    start = glob.escape(table.name.split(".")[0])
    for path in table.parent.glob(f"{start}*{MANIFEST_SUFFIX}"):
        manifest = Manifest(path)
        features = path.with_name(path.name.removesuffix(MANIFEST_SUFFIX))
        together = resolved(table) in manifest.listed() and features.exists()
        if together and any(map(manifest.differs, manifest.listed(features))):
            raise InputError(
                f"{table} was written with other features than {features}: write both "
                f"again, or remove {path.name} if they do belong together"
            )


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
