"""Files that rpml wrote together: a list of them next to them, by which readers and writers know.

``rpml.json`` lists the files of an output folder, ``NAME.npy.manifest.json`` the tables of
``NAME.npy``. While files are published, the list says that it is not complete.
"""

import glob
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rpml.runtime.context import Json, file_fingerprint
from rpml.runtime.errors import InputError
from rpml.runtime.files import (
    Drafts,
    Place,
    atomic_outputs,
    check_output,
    publish,
    resolved,
    write_errors,
)
from rpml.runtime.schema import check_json, read_document

FOLDER_MANIFEST = "rpml.json"
MANIFEST_SUFFIX = ".manifest.json"
_SCHEMA = {"complete": bool, "files": [str], "main": str, "facts": {}}


class Manifest:
    """A JSON list of the files that rpml wrote together, and facts about them.

    A file that is not listed, or newer than the list, is never replaced or deleted. A missing or
    unreadable manifest lists no files.
    """

    def __init__(self, path: Place) -> None:
        self.path = resolved(path)
        stored: Json = {"complete": True, "files": [], "main": "", "facts": {}}
        self._time = 0
        with suppress(OSError, ValueError):
            found = read_document(self.path)
            check_json(found, _SCHEMA)
            stored, self._time = found, os.lstat(self.path).st_mtime_ns
        self.complete: bool = stored["complete"]
        self.facts: Json = stored["facts"]
        self.main: str = stored["main"]
        """The fingerprint of the features that the tables belong to."""
        self.features = Path(str(self.path).removesuffix(MANIFEST_SUFFIX))
        paths = [resolved(self.path.parent / name) for name in stored["files"]]
        self.files = [path for path in paths if path.is_relative_to(self.path.parent)]

    def owns(self, path: Path) -> bool:
        """Whether rpml wrote this file and nobody has changed it since."""
        path = resolved(path)
        listed = path in (self.path, *self.files) and path.is_file()
        return listed and os.lstat(path).st_mtime_ns <= self._time

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

    @contextmanager
    def publishing(self, drafts: Drafts, scratch: Path) -> Iterator[None]:
        """List new and earlier files while names change, then those that are there."""
        if self.features in drafts:
            self.main = file_fingerprint(drafts[self.features])
        self.files = sorted({*self.owned(), *drafts})
        self.write(False, scratch)
        yield
        self.files = [path for path in self.files if path.exists()]
        self.write(True, scratch)

    def write(self, complete: bool, scratch: Path) -> None:
        """Replace the list by this one, by way of a folder; InputError if it is none of rpml."""
        names = [path.relative_to(self.path.parent).as_posix() for path in self.files]
        content = {"complete": complete, "files": names, "main": self.main, "facts": self.facts}
        draft = scratch / self.path.name
        draft.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf8")
        publish(draft, self.path, complete or self.owns(self.path))


@contextmanager
def folder_outputs(
    folder: Place,
    overwrite: bool,
    manifest: Manifest | None = None,
    retained: Collection[Path] = (),
) -> Iterator[Path]:
    """Yield a folder as `atomic_outputs` does; its files are published in `folder`, one by one.

    With `overwrite`, files that an earlier output left there unchanged are replaced, or deleted if
    they are neither new nor `retained`. Everything else in the folder stays.
    """
    target = Path(os.path.realpath(folder))
    made = not target.is_dir()
    if made or not overwrite:
        check_output(target, overwrite)
        with write_errors(target):
            target.mkdir()
    try:
        manifest = manifest or Manifest(target / FOLDER_MANIFEST)
        earlier = manifest.owned().difference(retained)
        with atomic_outputs(target, manifest.owns, earlier, manifest.publishing) as scratch:
            yield scratch
    except BaseException:
        if made:
            with suppress(OSError):
                target.rmdir()
        raise


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


def check_written_together(table: Path) -> None:
    """Raise InputError if a table was written with other features than those next to it now."""
    start = glob.escape(table.name.split(".")[0])
    lists = [*table.parent.glob(f"{start}*{MANIFEST_SUFFIX}"), table.with_name(FOLDER_MANIFEST)]
    for manifest in map(Manifest, lists):
        features = manifest.features
        if resolved(table) not in manifest.files or not features.exists():
            continue
        if not manifest.complete or manifest.main not in ("", file_fingerprint(features)):
            raise InputError(
                f"{table} was written with other features than are there now: write both again, or "
                f"remove {manifest.path.name} if they do belong together"
            )
