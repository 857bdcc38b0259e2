"""Checks of output paths: never overwrite an input or a file that rpml has not written."""

import glob
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from rpml.runtime.context import Json, file_fingerprint
from rpml.runtime.errors import InputError
from rpml.runtime.schema import check_json, read_document

Place = str | os.PathLike[str]
FOLDER_MANIFEST = "rpml.json"  # lists the files of an output folder
MANIFEST_SUFFIX = ".manifest.json"  # of the list of the files next to features
_MANIFEST = {"complete": bool, "files": [str], "main": str, "facts": {}}


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
    """A JSON list of the files that rpml wrote together, and facts about them.

    It is not `complete` while they are published. A file that is not listed, or newer than the
    list, is never replaced or deleted, nor is one in the list of another user. A missing or
    unreadable manifest lists no files.
    """

    def __init__(self, path: Place) -> None:
        self.path = resolved(path)
        stored: Json = {"complete": True, "files": [], "main": "", "facts": {}}
        self._time = 0
        with suppress(OSError, ValueError):
            found = read_document(self.path)
            check_json(found, _MANIFEST)
            stored, status = found, os.lstat(self.path)
            # anyone who may write in this folder could list our files in a manifest of their own
            if not hasattr(os, "geteuid") or status.st_uid == os.geteuid():
                self._time = status.st_mtime_ns
        self.complete: bool = stored["complete"]
        self.main: str = stored["main"]
        """The fingerprint of the file that the others belong to."""
        self.facts: Json = stored["facts"]
        paths = [resolved(self.path.parent / name) for name in stored["files"]]
        self.files = [path for path in paths if path.is_relative_to(self.path.parent)]

    def owns(self, path: Path) -> bool:
        """Whether rpml wrote this file and nobody has changed it since."""
        path = resolved(path)
        listed = path == self.path or (path in self.files and path.is_file())
        return listed and self._time > 0 and os.lstat(path).st_mtime_ns <= self._time

    def owned(self) -> set[Path]:
        """Return the listed files that rpml wrote and nobody has changed since."""
        return set(filter(self.owns, self.files))

    def check(self, path: Path) -> None:
        """Raise InputError if the path exists and is not a file of rpml."""
        if os.path.lexists(path) and not self.owns(path):
            raise InputError(
                f"{path} is there, and not as an earlier run of this output left it: move it away, "
                "or choose another output"
            )

    def text(self, files: Iterable[Path], complete: bool) -> str:
        """Return the content of a list of other files, with this one's facts."""
        names = [os.path.relpath(path, self.path.parent).replace(os.sep, "/") for path in files]
        content = {"complete": complete, "files": sorted(names), "main": self.main}
        return json.dumps(content | {"facts": self.facts}, indent=1, sort_keys=True) + "\n"


def check_written_together(table: Path) -> None:
    """Raise InputError if a table was written with other features than those next to it now.

    ``NAME.npy.manifest.json`` lists the tables of ``NAME.npy``, ``rpml.json`` those of a folder.
    """
    start = glob.escape(table.name.split(".")[0])
    lists = [*table.parent.glob(f"{start}*{MANIFEST_SUFFIX}"), table.with_name(FOLDER_MANIFEST)]
    for manifest in map(Manifest, lists):
        features = Path(str(manifest.path).removesuffix(MANIFEST_SUFFIX))
        if resolved(table) not in manifest.files or not features.exists():
            continue
        if not manifest.complete or manifest.main not in ("", file_fingerprint(features)):
            raise InputError(
                f"{table} was written with other features than are there now: write both again, or "
                f"remove {manifest.path.name} if they do belong together"
            )
