"""Checks of output paths: never overwrite an input or a file that rpml has not written."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from rpml.runtime.context import Json
from rpml.runtime.errors import InputError
from rpml.runtime.schema import check_json, read_json

FOLDER_MANIFEST = "rpml.json"
"""Lists the files of an output folder."""


def check_output(
    path: str | Path, overwrite: bool, inputs: Iterable[str | Path | None] = ()
) -> Path:
    """Raise InputError, before any work, if an output cannot or must not be written.

    `inputs` are the files that are read and must not be replaced (see `check_apart`).
    """
    target = Path(path)
    if str(target) == "-":
        raise InputError("only tables can be written to standard output: give a file name")
    check_apart([target], inputs)
    if os.path.lexists(target) and not overwrite:
        raise InputError(
            f"{target} exists: choose another name, or replace it with --force (in Python "
            "overwrite=True)"
        )
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise InputError(f"cannot write {target}: it is not a regular file")
    folder = target.parent
    if not folder.is_dir():
        raise InputError(f"cannot write {target}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {target}: no permission to write in {folder}")
    return target


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


class Manifest:
    """The files that rpml wrote in a folder, with their sizes and times, as a JSON file.

    Files that are not listed, or were changed since, are never replaced or deleted. A missing or
    foreign manifest lists no files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            stored = read_json(path)
            check_json(stored, {"files": {"*": [int]}, "facts": {}})
        except (OSError, ValueError):
            stored = {"files": {}, "facts": {}}
        self._files: dict[str, list[int]] = stored["files"]
        self.facts: Json = stored["facts"]
        self._ours = bool(self._files)

    def owns(self, path: Path) -> bool:
        """Whether rpml wrote this file and nobody has changed it since."""
        if path == self.path:
            return self._ours
        name = path.relative_to(self.path.parent).as_posix()
        return name in self._files and _state(path) == self._files[name]

    def check(self, path: Path) -> None:
        """Raise InputError if the path exists and is not a file of rpml."""
        if os.path.lexists(path) and not self.owns(path):
            raise InputError(
                f"{path} is there, and not as an earlier run of this output left it: move it away, "
                "or choose another output"
            )

    def intact(self) -> bool:
        """Whether all listed files exist unchanged."""
        return bool(self._files) and all(self.owns(self.path.parent / n) for n in self._files)


def write_manifest(
    path: Path, files: Mapping[str, Path], facts: Mapping[str, object] | None = None
) -> None:
    """Write a manifest of files, under their final names, and of facts about them."""
    states = {name: _state(file) for name, file in files.items()}
    text = json.dumps({"files": states, "facts": dict(facts or {})}, indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf8")


def _state(path: Path) -> list[int]:
    """Return size and modification time, which a rename keeps."""
    try:
        status = os.lstat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def mark_folder(folder: Path) -> None:
    """Write a manifest of all files of a folder, so that it may be replaced later."""
    files = {path.relative_to(folder).as_posix(): path for path in _files_of(folder)}
    write_manifest(folder / FOLDER_MANIFEST, files)


def check_no_file(folder: str | os.PathLike[str]) -> None:
    """Raise InputError if the name of a folder is taken by something else."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError(f"{folder} is there and not a folder: choose another name")


def check_folder(folder: str | Path) -> None:
    """Raise InputError if a folder to be replaced holds files that rpml did not write."""
    folder = Path(folder)
    manifest = Manifest(folder / FOLDER_MANIFEST)
    for path in _files_of(folder):
        manifest.check(path)


def _files_of(folder: Path) -> list[Path]:
    return [Path(base, name) for base, _, names in os.walk(folder) for name in sorted(names)]
