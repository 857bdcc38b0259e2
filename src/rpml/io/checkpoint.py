"""Finished stages of a run on disk, next to its output, so that a killed run can resume."""

import hashlib
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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
    write_draft,
)
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError, ModelFormatError
from rpml.runtime.files import HIDDEN, locked, publish, resolved, write_errors
from rpml.runtime.schema import Schema

logger = logging.getLogger(__name__)

_VERSION = 3  # every stage stores the run that it is of
_STAGE = Schema({}, {"run": {"rpml_version": str, "data": str, "settings": {}}, "metadata": {}})


def fingerprint(data: str, settings: Mapping[str, object]) -> str:
    """Return a hash of the data, the settings and the package version."""
    return hashlib.sha256(canonical_json(_run(data, settings)).encode()).hexdigest()


def _run(data: str, settings: Mapping[str, object]) -> Json:
    plain = json.loads(canonical_json(settings))
    return {"rpml_version": rpml.__version__, "data": data, "settings": plain}


def _read_stage(path: Path) -> tuple[Arrays, Json]:
    arrays, fields = read_container(path, "checkpoint", _VERSION)
    check_content(path, _STAGE, arrays, fields["metadata"])
    return arrays, fields["metadata"]


def _stages(directory: Path) -> list[Path]:
    """Return the finished stages of a folder; they may be damaged."""
    paths = sorted(directory.glob("[!.]*.safetensors"))
    return [path for path in paths if is_container(path, "checkpoint")]


def _drafts(directory: Path) -> list[Path]:
    """Return what killed runs left unfinished in a folder."""
    return [path for path in directory.glob(f".*{HIDDEN}") if path.is_file()]


def _stored_run(directory: Path) -> Json | None:
    """Return the run that the first complete stage of a folder is of."""
    for path in _stages(directory):
        with suppress(ModelFormatError):
            run: Json = _read_stage(path)[1]["run"]
            return run
    return None


def check_directory(directory: str | Path) -> None:
    """Raise InputError if the path exists and is not a checkpoint, or cannot become one."""
    directory = Path(directory)
    if not os.path.lexists(directory):
        return
    if not directory.is_dir() or directory.is_symlink():
        raise InputError(f"{directory} is in the way of finished stages: move it away")
    if set(directory.iterdir()).difference(_stages(directory), _drafts(directory)):
        raise InputError(
            f"{directory} is not a checkpoint that rpml can read, and is left as it is: move it "
            "away, or choose another output"
        )


def remove_checkpoint(directory: str | Path) -> None:
    """Delete a checkpoint's files, and its directory if nothing else is in it."""
    directory = Path(directory)
    for path in (*_stages(directory), *_drafts(directory)):
        path.unlink()
    with suppress(OSError):
        directory.rmdir()


def describe_checkpoint(directory: str | Path) -> dict[str, object] | None:
    """Describe the finished stages of an unfinished run, as JSON values; None if there are none."""
    directory = Path(directory)
    stages, run = _stages(directory), _stored_run(directory)
    if run is None:
        return None
    return {
        "kind": "checkpoint",
        "path": str(directory),
        "rpml_version": run["rpml_version"],
        "stages": [path.stem for path in stages],
        "bytes": sum(path.stat().st_size for path in stages),
        "settings": run["settings"],
    }


class Checkpoint:
    """A directory with the finished stages of a run on one data set with fixed settings.

    Each save is atomic and replaces the previous one of that name, so that a kill at any moment
    leaves the last complete state. Each stage names its data and settings; a stage of another run
    is not loaded. `data` is the digest of the data, `settings` everything else that changes the
    result. `resume` continues an existing checkpoint, if any; without it an existing one is an
    error, so that forgetting the option loses nothing.
    """

    def __init__(
        self, directory: str | Path, data: str, settings: Mapping[str, object], resume: bool = False
    ) -> None:
        self.directory, self._run = Path(directory), _run(data, settings)
        check_directory(self.directory)
        if _stages(self.directory) and not resume:
            raise InputError(
                f"{self.directory} holds an unfinished run: continue it with --resume, "
                "or start over with --force"
            )
        stored = _stored_run(self.directory)
        if stored is not None and stored != self._run:
            raise InputError(
                f"cannot resume from {self.directory}: {self._difference(stored)}; "
                "repeat the first command with --resume, or start over with --force"
            )

    def _difference(self, stored: Json) -> str:
        if stored["data"] != self._run["data"]:
            return "it was made from other data"
        ours, settings = self._run["settings"], stored["settings"]
        for name in sorted(ours.keys() | settings.keys()):
            if ours.get(name) != settings.get(name):
                return f"it was made with {name}={settings.get(name)}, not {ours.get(name)}"
        return f"it was made by rpml {stored['rpml_version']}, not {rpml.__version__}"

    def load(self, name: str) -> tuple[Arrays, Json] | None:
        """Return (arrays, metadata) of a finished stage, or None if it has to be computed."""
        path = self.directory / f"{name}.safetensors"
        if not path.is_file():
            return None
        try:
            arrays, metadata = _read_stage(path)
        except ModelFormatError as error:
            logger.warning("%s: this stage is computed again", error)
            return None
        if metadata["run"] != self._run:
            logger.warning("%s is of another run: this stage is computed again", path)
            return None
        return arrays, metadata["metadata"]

    def save(self, name: str, arrays: Arrays, metadata: Mapping[str, object] | None = None) -> None:
        """Store a finished stage, replacing the previous one of that name."""
        path = resolved(self.directory / f"{name}.safetensors")
        draft = self.directory / f".{name}{HIDDEN}"  # only the holder of the run's lock writes it
        stored = {"run": self._run, "metadata": metadata or {}}
        with write_errors(self.directory):
            self.directory.mkdir(exist_ok=True)
            try:
                write_draft(draft, arrays, stored, "checkpoint", _VERSION)
                publish(draft, path, overwrite=True)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise


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

    @abstractmethod
    def check(self, inputs: Sequence[str | Path | None] = ()) -> None:
        """Raise InputError, before any work, if an output exists, is an input or not of rpml.

        Parameters
        ----------
        inputs : sequence of str, Path or None, default=()
            The files and folders that are read.
        """

    def discard(self) -> None:
        """Delete the finished stages."""
        remove_checkpoint(self.directory)

    @contextmanager
    def _running(self, inputs: Sequence[str | Path | None] = ()) -> Iterator[None]:
        """Hold the lock of the output, checked again; start over if that is asked for."""
        with locked(self.path):
            self.check(inputs)
            if self.overwrite and not self.resume:
                self.discard()
            yield
