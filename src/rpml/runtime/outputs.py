"""Checks of output paths: never overwrite an input or a file that rpml has not written."""

import glob
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from rpml.runtime.context import Json, file_fingerprint
from rpml.runtime.errors import InputError
from rpml.runtime.schema import check_json, read_json

Place = str | os.PathLike[str]
FOLDER_MANIFEST = "rpml.json"  # lists the files of an output folder
MANIFEST_SUFFIX = ".manifest.json"  # of the list of the files next to features
_MANIFEST = {"files": {"*": str}, "earlier": {"*": str}, "facts": {}}


def resolved(path: Place) -> Path:
    """Return the path with the links of its folder resolved; a link at its end is not followed."""
    path = Path(path)
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    return Path(os.path.realpath(path.parent), path.name)


def check_output(path: Place, overwrite: bool, inputs: Iterable[str | Path | None] = ()) -> Path:
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
        for path, source in used.items():
            if path == written:
                word = "is"
            elif path.startswith(written + os.sep):
                word = "holds"
            elif written.startswith(path + os.sep):
                word = "lies in"
            else:
                continue
            raise InputError(f"{output} {word} the input {source}: choose another output")


def check_folder(folder: Place, overwrite: bool, names: Iterable[str] = ()) -> None:
    """Raise InputError, before any work, if a folder, or a file of it, must not be written.

    With `overwrite` the files `names` of an earlier output are replaced, others never.
    """
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError(f"{folder} is there and not a folder: choose another name")
    check_output(folder, overwrite)
    manifest = Manifest(Path(folder, FOLDER_MANIFEST))
    for name in (FOLDER_MANIFEST, *names):
        manifest.check(Path(folder, name))


class Manifest:
    """The files that rpml wrote together, with their fingerprints, as a JSON file.

    A file that is not listed, or was changed since, is never replaced or deleted, nor is one that
    another user's manifest lists. A missing or unreadable manifest lists no files.
    """

    def __init__(self, path: Path) -> None:
        self.path = resolved(path)
        stored: Json = {"files": {}, "earlier": {}, "facts": {}}
        self._time = 0  # files that rpml wrote are not newer
        with suppress(OSError, ValueError):
            found = read_json(path)
            check_json(found, _MANIFEST)
            stored, status = found, os.lstat(path)
            # anyone who may write in this folder could list our files in a manifest of their own
            if not hasattr(os, "geteuid") or status.st_uid == os.geteuid():
                self._time = status.st_mtime_ns
        self.facts: Json = stored["facts"]
        self._files = self._inside(stored["files"])
        # those that were to be replaced, if a kill left them in place
        self._earlier = self._inside(stored["earlier"])

    def _inside(self, prints: dict[str, str]) -> dict[Path, str]:
        """Return the files by path, without names that lead out of the folder by .. or a link."""
        folder = self.path.parent
        paths = {name: resolved(folder / name) for name in prints if ".." not in Path(name).parts}
        return {path: prints[name] for name, path in paths.items() if path.is_relative_to(folder)}

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
        if path == self.path:
            return self._time > 0
        if path.is_dir():
            inside = self.listed(path)
            return bool(inside) and all(map(self.owns, inside))
        if not path.is_file() or os.lstat(path).st_mtime_ns > self._time:
            return False
        return file_fingerprint(path) in (self._files.get(path), self._earlier.get(path))

    def check(self, path: Path) -> None:
        """Raise InputError if the path exists and is not a file of rpml."""
        if os.path.lexists(path) and not self.owns(path):
            raise InputError(
                f"{path} is there, and not as an earlier run of this output left it: move it away, "
                "or choose another output"
            )

    def differs(self, path: Path) -> bool:
        """Whether a listed file is missing or has other content than the one listed."""
        stored = self._files.get(resolved(path))
        return stored is not None and not (path.is_file() and file_fingerprint(path) == stored)

    def write_next(
        self, draft: Path, files: Mapping[Path, Path], facts: Mapping[str, object] | None = None
    ) -> None:
        """Write the manifest that will replace this one.

        `files` are the final paths and the files themselves. The new manifest is published before
        them, and knows the files of this one too, so that a kill in between leaves nothing that
        the next run could not replace.
        """
        folder, content = self.path.parent, {"facts": dict(facts or {})}
        for part, paths in (("files", files), ("earlier", {path: path for path in self.owned()})):
            content[part] = {
                os.path.relpath(path, folder).replace(os.sep, "/"): file_fingerprint(file)
                for path, file in paths.items()
            }
        draft.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf8")


def check_written_together(table: Path) -> None:
    """Raise InputError if a table was written with other features than those next to it now.

    ``NAME.npy.manifest.json`` lists the tables of ``NAME.npy`` and its fingerprint.
    """
    start = glob.escape(table.name.split(".")[0])
    for path in table.parent.glob(f"{start}*{MANIFEST_SUFFIX}"):
        manifest = Manifest(path)
        features = path.with_name(path.name.removesuffix(MANIFEST_SUFFIX))
        listed = resolved(table) in manifest.listed()
        other = listed and any(map(manifest.differs, manifest.listed(features)))
        if features.exists() and (other or (manifest.owns(table) and not listed)):
            raise InputError(
                f"{table} was written with other features than {features}: write both "
                f"again, or remove {path.name} if they do belong together"
            )
