"""What a job may write: never an input, never a file that somebody else has put there."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from rpml.runtime.context import Json
from rpml.runtime.errors import InputError
from rpml.runtime.schema import check_json, read_json

FOLDER_MANIFEST = "rpml.json"
"""Lists the files of an output that is a folder."""


def check_output(
    path: str | Path, overwrite: bool, inputs: Iterable[str | Path | None] = ()
) -> Path:
    """Refuse, before any work is done, an output that cannot or may not be written.

    Parameters
    ----------
    path : str or Path
        What will be written.
    overwrite : bool
        Whether it may exist.
    inputs : iterable of str, Path or None, default=()
        What is read, and is never replaced (see `check_apart`).
    """
    target = Path(path)
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
    """Refuse an output that is an input, holds one, or lies in one.

    Parameters
    ----------
    outputs : iterable of str or Path
        What will be written.
    inputs : iterable of str, Path or None
        What is read; None, ``-`` and addresses are passed over.
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
    """Those of the paths that are the same file, by another link perhaps."""
    linked = path.is_file() and path.stat().st_nlink > 1
    return [
        other
        for other in others
        if str(path) == other or (linked and os.path.exists(other) and path.samefile(other))
    ]


class Manifest:
    """The files of ours beside it, as we left them; others are not ours to replace or remove.

    Parameters
    ----------
    path : Path
        A JSON file; one that is absent or not ours lists no files.
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
        """Whether we have written this file, and nobody has changed it since."""
        if path == self.path:
            return self._ours
        name = path.relative_to(self.path.parent).as_posix()
        return name in self._files and _state(path) == self._files[name]

    def check(self, path: Path) -> None:
        """Refuse to touch a file that is there and not ours."""
        if os.path.lexists(path) and not self.owns(path):
            raise InputError(
                f"{path} is there, and not as an earlier run of this output left it: move it away, "
                "or write to a folder of its own"
            )

    def intact(self) -> bool:
        """Whether all of the files are there and unchanged."""
        return bool(self._files) and all(self.owns(self.path.parent / n) for n in self._files)


def write_manifest(
    path: Path, files: Mapping[str, Path], facts: Mapping[str, object] | None = None
) -> None:
    """List files under the names they will have beside the manifest, and facts about them."""
    states = {name: _state(file) for name, file in files.items()}
    text = json.dumps({"files": states, "facts": dict(facts or {})}, indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf8")


def _state(path: Path) -> list[int]:
    """Size and time of change, which a rename keeps."""
    try:
        status = os.lstat(path)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def mark_folder(folder: Path) -> None:
    """List the files of a folder of ours in it, so that it may be replaced later."""
    files = {path.relative_to(folder).as_posix(): path for path in _files_of(folder)}
    write_manifest(folder / FOLDER_MANIFEST, files)


def check_no_file(folder: str | os.PathLike[str]) -> None:
    """Refuse a name for a folder that something else has."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError(f"{folder} is there and not a folder: choose another name")


def check_folder(folder: str | Path) -> None:
    """Refuse to replace a folder that holds anything we have not written."""
    folder = Path(folder)
    manifest = Manifest(folder / FOLDER_MANIFEST)
    for path in _files_of(folder):
        manifest.check(path)


def _files_of(folder: Path) -> list[Path]:
    return [Path(base, name) for base, _, names in os.walk(folder) for name in sorted(names)]
