"""The files of an extraction: features, ids, groups, failures, whitening, whole or not at all."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from rpml.io.checkpoint import Checkpoint, remove_checkpoint
from rpml.io.features import Layout, check_table_output, open_writer
from rpml.io.features.source import as_ids
from rpml.runtime.atomic import atomic_output, check_output
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError
from rpml.vision.engine import Failure
from rpml.vision.extract import Job, Part, files_digest, iter_parts, nothing_left, row_id
from rpml.vision.files import ImageFile
from rpml.vision.whitening import Whitening


@dataclass(frozen=True)
class Places:
    """Where the files of one extraction go: all beside the features."""

    features: str

    def _beside(self, name: str) -> Path:
        return Path(self.features.rstrip("/")).with_name(name)

    @property
    def ids(self) -> Path:
        return self._beside("ids.csv")

    @property
    def failures(self) -> Path:
        return self._beside("failures.csv")

    @property
    def groups(self) -> Path:
        return self._beside("groups.csv")

    @property
    def labels(self) -> Path:
        return self._beside("labels.csv")

    @property
    def parts(self) -> Path:
        return self._beside(Path(self.features).name + ".parts")

    @property
    def whitening(self) -> Path:
        return self._beside(Path(self.features).stem + ".whitening.npz")

    @property
    def region_whitening(self) -> Path:
        return self._beside(Path(self.features).stem + ".regions.npz")

    def check(self, overwrite: bool) -> None:
        """Refuse, before any work is done, what exists or cannot be written."""
        if self.features == "-":
            raise InputError("features of images are written to a file, not to standard output")
        check_table_output(self.features, overwrite)
        if self.ids.exists() and not overwrite:
            raise InputError(
                f"{self.ids} is there already, from other features: write to a folder of its own, "
                "or replace it with --force"
            )
        check_output(self.ids, overwrite)


@dataclass(frozen=True)
class Finish:
    """What happens to the descriptors before they are written.

    Parameters
    ----------
    whiten : int, optional
        Learn a PCA-whitening to this dimension.
    whiten_on : str
        Which ids are the training split it is learned on (``*`` stands for any text).
    whitening : Whitening, optional
        A whitening that is already there, instead.
    folder_labels : bool
        Also write each image's folder as its label.
    """

    whiten: int | None = None
    whiten_on: str = "*"
    whitening: Whitening | None = None
    folder_labels: bool = False


@dataclass(frozen=True)
class Written:
    """What an extraction has written."""

    rows: int
    dimension: int
    images: int
    failures: tuple[Failure, ...]


def open_parts(places: Places, job: Job, resume: bool) -> Checkpoint:
    """The finished parts beside the output, or none yet."""
    settings = {
        **job.recipe.settings(),
        "backbone": job.backbone.fingerprint(),
        "part": job.execution.part,
        "batch": job.execution.batch,
    }
    return Checkpoint(places.parts, files_digest(job.files), settings, resume)


def training_files(files: Sequence[ImageFile], pattern: str) -> list[ImageFile]:
    """The files whose id matches, which must be some."""
    found = [file for file in files if fnmatchcase(file.id, pattern)]
    if not found:
        raise InputError(f"no image matches --whiten-on {pattern!r}, the first is {files[0].id!r}")
    return found


def check_finish(files: Sequence[ImageFile], finish: Finish) -> None:
    """Refuse a whitening that cannot be learned before hours are spent on descriptors."""
    if finish.whiten is None:
        return
    training = training_files(files, finish.whiten_on)
    if len(training) <= finish.whiten:
        raise InputError(
            f"cannot learn a whitening to {finish.whiten} dimensions from {len(training)} images: "
            "it takes more images than dimensions"
        )


def write_features(places: Places, job: Job, finish: Finish, context: Context) -> Written:
    """Describe the images and write everything; the features come last.

    Parts are computed first, into the context's store, and read again for the output, so that
    memory holds one of them (and the training rows of a whitening) at a time.
    """
    check_finish(job.files, finish)
    failures: list[Failure] = []
    training, images = [], 0
    for part in iter_parts(job, context):
        failures += part.failures
        images += len(set(part.image.tolist()))
        if finish.whiten is not None and len(part.values):
            training.append(part.values[_is_training(part, job.files, finish.whiten_on)])
    _write_failures(places.failures, failures)
    if not images:
        raise nothing_left(failures)
    whitening = finish.whitening
    if finish.whiten is not None:
        whitening = Whitening.learn(np.concatenate(training), finish.whiten)
        whitening.save(places.whitening)
    quiet = Context(store=context.store)
    parts = iter_parts(job, quiet)
    rows, dimension = _write_all(places, job, _whitened(parts, whitening), finish)
    return Written(rows, dimension, images, tuple(failures))


def _is_training(part: Part, files: Sequence[ImageFile], pattern: str) -> NDArray[np.bool_]:
    """Rows of images (not views) whose id matches."""
    matches: NDArray[np.bool_] = np.array(
        [fnmatchcase(files[i].id, pattern) for i in part.image], bool
    )
    matches &= part.view == 0
    return matches


def _whitened(parts: Iterable[Part], whitening: Whitening | None) -> Iterator[Part]:
    for part in parts:
        if not len(part.values):
            continue
        values = part.values if whitening is None else whitening.apply(part.values)
        yield Part(part.image, part.view, values.astype(np.float32, copy=False))


def _write_all(places: Places, job: Job, parts: Iterator[Part], finish: Finish) -> tuple[int, int]:
    """Features and ids, then groups and labels."""
    ids: list[str] = []
    images: list[int] = []
    first = next(parts)
    layout = Layout("X", [f"f{i}" for i in range(first.values.shape[1])], "id")
    with open_writer(places.features, layout, overwrite=True) as writer:
        for part in chain([first], parts):
            names = [row_id(job.files[i], v) for i, v in zip(part.image, part.view, strict=True)]
            writer.write(part.values, as_ids(names))
            ids += names
            images += part.image.tolist()
        _write_csv(places.ids, ["id"], ([name] for name in ids))
        groups = zip(ids, images, strict=True)
        _write_csv(places.groups, ["id", "group"], groups if job.recipe.views.count else None)
        folders = ((name, folder_of(job.files[i])) for name, i in zip(ids, images, strict=True))
        _write_csv(places.labels, ["id", "label"], folders if finish.folder_labels else None)
    return len(ids), len(layout.columns)


def folder_of(file: ImageFile) -> str:
    """The name of the folder that holds an image, empty at the top."""
    return PurePosixPath(file.id).parent.name


def _write_failures(path: Path, failures: Sequence[Failure]) -> None:
    rows = ((f.id, f.reason) for f in failures)
    _write_csv(path, ["id", "reason"], rows if failures else None)


def _write_csv(path: Path, header: list[str], rows: Iterable[Iterable[object]] | None) -> None:
    """Write a table; None removes the one that an earlier run left."""
    if rows is None:
        path.unlink(missing_ok=True)
        return
    with (
        atomic_output(path) as temporary,
        open(temporary, "w", encoding="utf8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def forget_parts(places: Places) -> None:
    """Remove the finished parts."""
    remove_checkpoint(places.parts)
