"""Extraction of image descriptors to a file and tables next to it; a killed run can resume."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np

from rpml.io.checkpoint import Checkpoint, ResumableRun, check_directory, fingerprint
from rpml.io.features import Layout, check_table_output
from rpml.io.features.source import as_ids
from rpml.io.features.writing import table_writer
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.context import Arrays, Context, Json
from rpml.runtime.errors import InputError
from rpml.runtime.files import Outputs, atomic_outputs, folder_outputs, locked
from rpml.runtime.outputs import MANIFEST_SUFFIX, Manifest, check_apart, resolved
from rpml.runtime.schema import COUNT, ArraySpec, Schema, check_json
from rpml.runtime.wording import counted
from rpml.vision.extract import Failure, Job, Part, files_digest, iter_parts, nothing_left, row_id
from rpml.vision.images import ImageFile, Views
from rpml.vision.pooling import (
    learn_whitening,
    load_whitening,
    save_whitening,
    whiten,
    whitening_digest,
)

LEARN = "learn"
REGION_IMAGES = 1000  # from which a region whitening is learned
_TABLES = ("groups.csv", "labels.csv", "failures.csv")
_WHITENINGS = ("whitening.npz", "regions.npz")  # a later run may read them
_FACTS = {"rows": COUNT, "dimension": COUNT, "images": COUNT, "failures": [[str]]}
"""Schema of the manifest's facts."""
_REGIONS = Schema(
    {"mean": ArraySpec("f", ("features",)), "matrix": ArraySpec("f", ("features", "axes"))}
)


@dataclass(frozen=True)
class PostProcess:
    """Processing of the descriptors before they are written."""

    whiten: int | None = None
    """Learn a PCA whitening to this dimension."""
    whiten_on: str = "*"
    """Pattern of the ids of the training split (``*`` matches any text)."""
    whitening: Preprocessing | None = None
    """An existing whitening to apply instead."""
    folder_labels: bool = False
    """Also write each image's folder as its label."""

    def settings(self) -> Json:
        """All settings as JSON values."""
        learned = self.whitening and whitening_digest(self.whitening)
        return {**asdict(replace(self, whitening=None)), "whitening": learned}

    def check(self, files: Sequence[ImageFile]) -> None:
        """Raise InputError if a whitening cannot be learned, before descriptors are computed."""
        if self.whiten is not None:
            count = len(training_files(files, self.whiten_on))
            if count <= self.whiten:
                raise InputError(
                    f"cannot learn a whitening to {counted(self.whiten, 'dimension')} from "
                    f"{counted(count, 'image')}: it takes more images than dimensions"
                )


@dataclass(frozen=True)
class Written:
    """Summary of the files of an extraction; `computed` is False if an earlier run wrote them."""

    rows: int
    dimension: int
    images: int
    failures: Sequence[Failure]
    computed: bool = True


@dataclass(frozen=True)
class ResumableExtraction(ResumableRun):
    """Compute descriptors of images and write them; a killed run can resume.

    Finished parts are kept in the folder ``<path>.parts`` until the features are written. Next to
    photos.npy are photos.ids.csv (other formats hold the ids) and, where they apply,
    photos.groups.csv, photos.labels.csv and photos.failures.csv.

    Parameters
    ----------
    path : str
        The file of features to write, or NAME/ for shards.
    resume : bool, default=False
        Continue an interrupted run of the same images, network and recipe.
    overwrite : bool, default=False
        Replace existing files; without `resume` also discard finished parts.

    Examples
    --------
    >>> from rpml.vision.backbone import Backbone
    >>> from rpml.vision.extract import Job
    >>> from rpml.vision.images import find_images
    >>> from rpml.vision.resumable import ResumableExtraction
    >>> job = Job(find_images("photos/"), Backbone("googlenet.onnx"))  # doctest: +SKIP
    >>> ResumableExtraction("features.npy", resume=True).extract(job).rows  # doctest: +SKIP
    """

    path: str
    _suffix: ClassVar[str] = ".parts"

    def table(self, name: str) -> Path:
        """Return the path of a file next to the features, such as photos.ids.csv for ids.csv."""
        return Path(self.path).with_name(f"{Path(self.path).stem}.{name}")

    @property
    def _manifest(self) -> Path:
        return Path(self.path).with_name(Path(self.path).name + MANIFEST_SUFFIX)

    def check(self, inputs: Sequence[str | Path | None] = ()) -> None:
        """Tables are replaced or deleted only if the manifest lists them unchanged."""
        if self.path == "-":
            raise InputError("features of images are written to a file, not to standard output")
        manifest, target = Manifest(self._manifest), Path(self.path)
        ours = self.resume and manifest.owns(target)
        check_table_output(self.path, self.overwrite or ours, inputs)
        tables = [self.table(name) for name in (*_TABLES, *_WHITENINGS)]
        check_apart([*tables, self._manifest, self.directory], inputs)
        if ours and not self.overwrite and target.suffix.lower() == ".npy":
            tables.append(self.table("ids.csv"))
        for path in (*tables, self._manifest):
            manifest.check(path)
        check_directory(self.directory)

    def extract(
        self,
        job: Job,
        post: PostProcess | None = None,
        region_whitening: str | Path | None = None,
        context: Context | None = None,
    ) -> Written:
        """Compute the descriptors and write the features.

        Parameters
        ----------
        job : Job
            Images, network, recipe and execution.
        post : PostProcess, default=None
            Processing of the descriptors before they are written.
        region_whitening : "learn", str or Path, default=None
            A whitening of R-MAC regions, or "learn" to learn one on the training images and write
            it next to the features.
        context : Context, default=None
            Receives progress.
        """
        # photos.npy and photos.csv would write the same tables
        with self._running([file.path for file in job.files]), locked(self.table("ids.csv")):
            post, context = post or PostProcess(), context or Context()
            if region_whitening not in (None, LEARN):
                job = job.with_region_whitening(load_whitening(region_whitening))
            digest, regions = files_digest(job.files), region_whitening == LEARN
            settings = {**job.settings(), **post.settings(), "learn_regions": regions}
            run = fingerprint(digest, settings)
            written = self._already_written(run) if self.resume else None
            if written is None:
                post.check(job.files)
                store = Checkpoint(self.directory, digest, settings, self.resume)
                context = replace(context, store=store)
                if regions:
                    job = _with_learned_regions(job, post.whiten_on, context)
                written = self._write(job, post, context, regions, run)
            self.discard()
            return written

    def _already_written(self, run: str) -> Written | None:
        """Return what an earlier run of this fingerprint wrote, if all of it is still there."""
        manifest = Manifest(self._manifest)
        facts, files = manifest.facts, manifest.listed()
        complete = bool(files) and not any(map(manifest.differs, files))
        complete = complete and set(manifest.owned()) <= {*files}  # no table left of an earlier run
        if not complete or facts.get("fingerprint") != run:
            return None
        check_json(facts, _FACTS, "manifest")
        failures = [(name, reason) for name, reason in facts["failures"]]
        return Written(facts["rows"], facts["dimension"], facts["images"], failures, False)

    def _write(
        self, job: Job, post: PostProcess, context: Context, regions: bool, run: str
    ) -> Written:
        """Compute the descriptors and write all files together.

        Parts are computed first, into the context's store, and read again for the output, so that
        only one of them (and the training rows of a whitening) is in memory at a time.
        """
        failures: list[Failure] = []
        training, images = [], 0
        for part in iter_parts(job, context):
            failures += part.failures
            images += len(set(part.image.tolist()))
            if post.whiten is not None and len(part.values):
                matches = [fnmatchcase(job.files[i].id, post.whiten_on) for i in part.image]
                training.append(part.values[np.array(matches) & (part.view == 0)])
        written = Written(0, 0, images, failures)
        with self._publishing() as (features, tables):
            _write_csv(tables, self.table("failures.csv"), ["id", "reason"], failures)
            if images:
                whitening = post.whitening
                if post.whiten is not None:
                    whitening = learn_whitening(np.concatenate(training), post.whiten)
                    save_whitening(whitening, tables.new(self.table("whitening.npz")))
                if regions and job.recipe.pooling.region_whitening is not None:
                    learned = job.recipe.pooling.region_whitening
                    save_whitening(learned, tables.new(self.table("regions.npz")))
                parts = _whitened(iter_parts(job, Context(store=context.store)), whitening)
                ids, of_image, dimension = self._write_rows(features, job, parts)
                self._write_tables(tables, job, post, ids, of_image)
                written = replace(written, rows=len(ids), dimension=dimension)
            facts = {**asdict(written), "fingerprint": run} if images else {}
            self._list_files(features, tables, facts)
        if not images:
            raise nothing_left(failures)
        return written

    def _write_rows(
        self, outputs: Outputs, job: Job, parts: Iterator[Part]
    ) -> tuple[list[str], list[int], int]:
        """Write the features; return the id and the image of each row, and the dimension."""
        ids: list[str] = []
        images: list[int] = []
        first = next(parts)
        layout = Layout("X", [f"f{i}" for i in range(first.values.shape[1])], "id")
        with table_writer(outputs, self.path, layout) as writer:
            for part in chain([first], parts):
                rows = zip(part.image, part.view, strict=True)
                names = [row_id(job.files[i], view) for i, view in rows]
                writer.write(part.values, as_ids(names))
                ids += names
                images += part.image.tolist()
        return ids, images, len(layout.columns)

    def _write_tables(
        self, outputs: Outputs, job: Job, post: PostProcess, ids: list[str], images: list[int]
    ) -> None:
        """Write groups and labels, where they apply."""
        if job.recipe.views.count and not job.recipe.average_views:
            rows = list(zip(ids, images, strict=True))
            _write_csv(outputs, self.table("groups.csv"), ["id", "group"], rows)
        if post.folder_labels:
            labels = [PurePosixPath(job.files[i].id).parent.name for i in images]
            named = list(zip(ids, labels, strict=True))
            _write_csv(outputs, self.table("labels.csv"), ["id", "label"], named)

    @contextmanager
    def _publishing(self) -> Iterator[tuple[Outputs, Outputs]]:
        """Yield the outputs for features and for tables, the same one unless there are shards.

        The manifest is published first and the features last: a table in between is then refused.
        """
        earlier, target = Manifest(self._manifest), resolved(self.path)
        forced = {target, resolved(self.table("ids.csv"))} if self.overwrite else set()

        def replaces(path: Path) -> bool:
            return path in forced or earlier.owns(path)

        if self.path.endswith("/"):
            with (
                folder_outputs(self.path, self.overwrite or earlier.owns(target)) as shards,
                atomic_outputs(self.table("ids.csv"), replaces) as tables,
            ):
                yield shards, tables
        else:
            with atomic_outputs(target, replaces) as outputs:
                yield outputs, outputs

    def _list_files(self, features: Outputs, tables: Outputs, facts: dict[str, object]) -> None:
        """Write the manifest and delete tables of an earlier run that this one did not write."""
        earlier, files = Manifest(self._manifest), {**features.drafts(), **tables.drafts()}
        for path in (resolved(self.table(name)) for name in _WHITENINGS):
            if path not in files and path.is_file():
                files[path] = path
        for path in (resolved(self.table(name)) for name in _TABLES):
            if path not in files and earlier.owns(path):
                tables.remove(path)
        earlier.write_next(tables.new(self._manifest), files, facts)


def _write_csv(
    outputs: Outputs, path: Path, header: list[str], rows: Sequence[Iterable[object]]
) -> None:
    """Write a table, if it has rows."""
    if rows:
        with open(outputs.new(path), "w", encoding="utf8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)


def _whitened(parts: Iterable[Part], whitening: Preprocessing | None) -> Iterator[Part]:
    """Yield the parts that have rows, whitened."""
    for part in parts:
        if len(part.values):
            values = part.values if whitening is None else whiten(part.values, whitening)
            yield Part(part.image, part.view, values.astype(np.float32, copy=False))


def training_files(files: Sequence[ImageFile], pattern: str) -> list[ImageFile]:
    """Return the files whose id matches; InputError if there are none."""
    selected = [file for file in files if fnmatchcase(file.id, pattern)]
    if not selected:
        raise InputError(f"no image matches --whiten-on {pattern!r}, the first is {files[0].id!r}")
    return selected


def _with_learned_regions(job: Job, pattern: str, context: Context) -> Job:
    """Learn a region whitening on the training images, as a stage of the checkpoint."""

    def learn() -> Arrays:
        learned = learn_region_whitening(replace(job, files=training_files(job.files, pattern)))
        return {"mean": learned.mean, "matrix": learned.matrix}

    arrays = context.stage("regions", _REGIONS, learn)
    return job.with_region_whitening(Preprocessing(True, arrays["mean"], arrays["matrix"], True))


def learn_region_whitening(job: Job) -> Preprocessing:
    """Learn a whitening from the regions of at most 1,000 images, spread evenly over the files.

    The files of the job must belong to the training split; its views are not used.
    """
    step = max(1, len(job.files) // REGION_IMAGES)
    job = replace(job, recipe=replace(job.recipe, views=Views()))
    described, _ = job.run(job.files[::step], job.recipe.pooling.regions)
    if not described:
        raise InputError("no image could be read, so the region whitening cannot be learned")
    return learn_whitening(np.concatenate([tile for tiles in described.values() for tile in tiles]))
