"""Finished stages of a run on disk, next to its output, so that a killed run can resume."""

import hashlib
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import rpml
from rpml.io.container import (
    Arrays,
    canonical_json,
    check_content,
    is_container,
    read_container,
    write_container,
)
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError, ModelFormatError, write_error
from rpml.runtime.files import atomic_output, leftovers, locked
from rpml.runtime.schema import Schema, check_json, read_json

logger = logging.getLogger(__name__)
Inputs = Iterable[str | Path | None]

_VERSION = 2  # 2: every stage stores the fingerprint of its run
_MANIFEST = "manifest.json"
_SIGNED = Schema({}, {"fingerprint": str, "metadata": {}})
_MANIFEST_SCHEMA = {"version": int, "rpml_version": str, "data": str, "settings": {}}


def fingerprint(data: str, settings: Mapping[str, object]) -> str:
    """Return a hash of the data, the settings and the package version."""
    return hashlib.sha256(canonical_json(_manifest(data, settings)).encode()).hexdigest()


def _manifest(data: str, settings: Mapping[str, object]) -> Json:
    return {
        "version": _VERSION,
        "rpml_version": rpml.__version__,
        "data": data,
        "settings": json.loads(canonical_json(settings)),
    }


def _read_manifest(directory: Path) -> Json | None:
    """Read the manifest of a checkpoint; None if there is none that rpml wrote."""
    try:
        manifest = read_json(directory / _MANIFEST)
        check_json(manifest, _MANIFEST_SCHEMA)
    except (OSError, ValueError):
        return None
    return manifest if manifest.keys() == _MANIFEST_SCHEMA.keys() else None


def check_directory(directory: str | Path) -> None:
    """Raise InputError if the path exists and is not a checkpoint, or cannot become one."""
    directory = Path(directory)
    if not os.path.lexists(directory):
        return
    if not directory.is_dir() or directory.is_symlink():
        raise InputError(f"{directory} is in the way of finished stages: move it away")
    there = {str(path) for path in directory.iterdir()} - set(leftovers(directory))
    if there and _read_manifest(directory) is None:
        raise InputError(
            f"{directory} is not a checkpoint that rpml can read, and is left as it is: move it "
            "away, or choose another output"
        )


def remove_checkpoint(directory: str | Path) -> None:
    """Delete a checkpoint's files, and its directory if nothing else is in it."""
    directory = Path(directory)
    if _read_manifest(directory) is not None:
        stages = [path for path in directory.glob("[!.]*.safetensors") if is_container(path)]
        # the manifest goes last, so that a crash in between leaves a resumable checkpoint
        for path in [*stages, directory / _MANIFEST]:
            path.unlink(missing_ok=True)
    with suppress(OSError):
        for name in leftovers(directory):
            os.unlink(name)
        directory.rmdir()


def describe_checkpoint(directory: str | Path) -> dict[str, object]:
    """Describe the finished stages of an unfinished run, as JSON values."""
    directory = Path(directory)
    manifest = _read_manifest(directory)
    if manifest is None:
        raise InputError(f"{directory} is not a readable checkpoint")
    stages = sorted(directory.glob("[!.]*.safetensors"))
    return {
        "kind": "checkpoint",
        "path": str(directory),
        "rpml_version": manifest["rpml_version"],
        "stages": [path.stem for path in stages],
        "bytes": sum(path.stat().st_size for path in stages),
        "settings": manifest["settings"],
    }


class Checkpoint:
    """A directory with the finished stages of a run on one data set with fixed settings.

    Each save is atomic and replaces the previous one of that name, so that a kill at any moment
    leaves the last complete state. Each stage carries the fingerprint of its data and settings; a
    stage of another run is not loaded. `data` is the digest of the data, `settings` everything
    else that changes the result. `resume` continues an existing checkpoint, if any; without it an
    existing one is an error, so that forgetting the option loses nothing.
    """

    def __init__(
        self, directory: str | Path, data: str, settings: Mapping[str, object], resume: bool = False
    ) -> None:
        self.directory = Path(directory)
        self._manifest = _manifest(data, settings)
        self._fingerprint = fingerprint(data, settings)
        check_directory(self.directory)
        stored = _read_manifest(self.directory)
        if stored is None:
            return
        if not resume:
            raise InputError(
                f"{self.directory} holds an unfinished run: continue it with --resume, "
                "or start over with --force"
            )
        if stored != self._manifest:
            raise InputError(
                f"cannot resume from {self.directory}: {self._difference(stored)}; "
                "repeat the first command with --resume, or start over with --force"
            )

    def _difference(self, stored: Json) -> str:
        if stored["data"] != self._manifest["data"]:
            return "it was made from other data"
        ours: Json = self._manifest["settings"]
        settings: Json = stored["settings"]
        for name in sorted(ours.keys() | settings.keys()):
            if ours.get(name) != settings.get(name):
                return f"it was made with {name}={settings.get(name)}, not {ours.get(name)}"
        return f"it was made by rpml {stored.get('rpml_version')}, not {rpml.__version__}"

    def path(self, name: str) -> Path:
        """Return the file of a stage."""
        return self.directory / f"{name}.safetensors"

    def load(self, name: str) -> tuple[Arrays, Json] | None:
        """Return (arrays, metadata) of a finished stage, or None if it has to be computed."""
        path = self.path(name)
        if not path.is_file():
            return None
        try:
            arrays, fields = read_container(path, "checkpoint", _VERSION)
            check_content(path, _SIGNED, arrays, fields["metadata"])
        except ModelFormatError as error:
            logger.warning("%s: this stage is computed again", error)
            return None
        if fields["metadata"]["fingerprint"] != self._fingerprint:
            logger.warning("%s is of another run: this stage is computed again", path)
            return None
        return arrays, fields["metadata"]["metadata"]

    def save(self, name: str, arrays: Arrays, metadata: Mapping[str, object] | None = None) -> None:
        """Store a finished stage, replacing the previous one of that name."""
        path = self.path(name)
        if not (self.directory / _MANIFEST).is_file():
            try:
                self.directory.mkdir(exist_ok=True)
            except OSError as error:
                raise write_error(self.directory, error) from error
            with atomic_output(self.directory / _MANIFEST, True) as temporary:
                temporary.write_text(canonical_json(self._manifest), encoding="utf8")
        signed = {"fingerprint": self._fingerprint, "metadata": metadata or {}}
        write_container(path, arrays, signed, "checkpoint", _VERSION)


@dataclass(frozen=True)
class ResumableRun(ABC):
    """A run whose output is `path`; a killed one continues with `resume`.

    `overwrite` replaces an existing output; without `resume` it also discards finished stages.
    """

    path: str | Path
    resume: bool = False
    overwrite: bool = False
    _suffix: ClassVar[str]
    """Of the folder of finished stages."""

    @property
    def directory(self) -> Path:
        """The folder of finished stages, next to the output."""
        target = Path(self.path)
        return target.with_name(target.name + self._suffix)

    def check(self, inputs: Inputs = ()) -> None:
        """Raise InputError, before any work, if an output exists, is an input or not of rpml.

        Parameters
        ----------
        inputs : iterable of str, Path or None, default=()
            The files and folders that are read.
        """
        self._check(list(inputs))

    @abstractmethod
    def _check(self, inputs: list[str | Path | None]) -> None: ...

    def discard(self) -> None:
        """Delete the finished stages."""
        remove_checkpoint(self.directory)

    @contextmanager
    def _running(self, inputs: Inputs = ()) -> Iterator[None]:
        """Hold the lock of the output, checked again; start over if that is asked for."""
        with locked(self.path):
            self.check(inputs)
            if self.overwrite and not self.resume:
                self.discard()
            yield
