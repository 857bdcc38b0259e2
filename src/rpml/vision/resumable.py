"""Extraction of image descriptors to a file and tables next to it; a killed run can resume."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import ClassVar

import numpy as np

from rpml.io.checkpoint import Checkpoint, ResumableRun, check_directory, fingerprint
from rpml.io.features import Batch, Layout, check_table_output
from rpml.io.features.reading import TABLES
from rpml.io.features.source import as_ids
from rpml.io.features.writing import write_csv, write_drafts
from rpml.io.manifest import FOLDER_MANIFEST, MANIFEST_SUFFIX, Manifest, folder_outputs
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.context import Context, Json, data_digest, file_fingerprint
from rpml.runtime.errors import InputError, counted
from rpml.runtime.files import atomic_outputs, check_apart, locked, resolved
from rpml.runtime.schema import COUNT, check_json
from rpml.vision.extract import Failure, Job, Part, files_digest, iter_parts, nothing_left, row_id
from rpml.vision.images import ImageFile
from rpml.vision.pooling import learn_whitening, save_whitening, whiten

_RETAINED = ("ids.csv", "whitening.npz")  # a later run may read them
_FACTS = {"rows": COUNT, "dimension": COUNT, "images": COUNT, "failures": [[str]]}
"""Schema of the manifest's facts."""


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
        learned = self.whitening and data_digest(self.whitening.mean, self.whitening.matrix)
        return {**asdict(replace(self, whitening=None)), "whitening": learned}

    def check(self, files: Sequence[ImageFile]) -> None:
        """Raise InputError if a whitening cannot be learned, before descriptors are computed."""
        if self.whiten is not None:
            count = sum(fnmatchcase(file.id, self.whiten_on) for file in files)
            if not count:
                raise InputError(
                    f"no image matches --whiten-on {self.whiten_on!r}, the first is {files[0].id!r}"
                )
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
    photos.groups.csv, photos.labels.csv and photos.failures.csv; in photos/ they are groups.csv,
    labels.csv and failures.csv.

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
        """Return the path of another file, such as photos.ids.csv or photos/ids.csv for ids.csv."""
        target = Path(self.path)
        if self.path.endswith("/"):
            return target / name
        return target.with_name(f"{target.stem}.{name}")

    @property
    def _manifest(self) -> Path:
        if self.path.endswith("/"):
            return Path(self.path, FOLDER_MANIFEST)
        return Path(self.path + MANIFEST_SUFFIX)

    def check(self, inputs: Sequence[str | Path | None] = ()) -> None:
        """Tables are replaced or deleted only if the manifest lists them unchanged."""
        if self.path == "-":
            raise InputError("features of images are written to a file, not to standard output")
        manifest, tables = Manifest(self._manifest), [self.table(name) for name in TABLES]
        replaces = self.overwrite or self._continues(manifest)
        check_table_output(self.path, replaces, inputs)
        check_apart([*tables, self._manifest, self.directory], inputs)
        if replaces and not self.overwrite and self.path.endswith(".npy"):
            tables.append(self.table("ids.csv"))
        for path in (*tables, self._manifest):
            manifest.check(path)
        check_directory(self.directory)

    def _continues(self, manifest: Manifest) -> bool:
        """Whether `resume` may replace what is there."""
        main = manifest.path if self.path.endswith("/") else Path(self.path)
        return self.resume and manifest.owns(main)

    def extract(
        self, job: Job, post: PostProcess | None = None, context: Context | None = None
    ) -> Written:
        """Compute the descriptors and write the features.

        Parameters
        ----------
        job : Job
            Images, network, recipe, and how it runs.
        post : PostProcess, default=None
            Processing of the descriptors before they are written.
        context : Context, default=None
            Receives progress.
        """
        tables = Path(self.path).with_suffix(".ids.csv")  # of photos.npy and of photos.csv
        with self._running([file.path for file in job.files]), locked(tables):
            post, context = post or PostProcess(), context or Context()
            digest, settings = files_digest(job.files), {**job.settings(), **post.settings()}
            run = fingerprint(digest, settings)
            written = self._already_written(run) if self.resume else None
            if written is None:
                post.check(job.files)
                store = Checkpoint(self.directory, digest, settings, self.resume)
                written = self._write(job, post, replace(context, store=store), run)
            self.discard()
            return written

    def _already_written(self, run: str) -> Written | None:
        """Return what an earlier run of this fingerprint wrote, if all of it is still there."""
        manifest, target = Manifest(self._manifest), Path(self.path)
        facts, unchanged = manifest.facts, all(map(manifest.owns, manifest.files))
        if target.is_file():
            unchanged = unchanged and file_fingerprint(target) == manifest.main
        if not manifest.complete or not unchanged or facts.get("fingerprint") != run:
            return None
        check_json(facts, _FACTS, "manifest")
        failures = [(name, reason) for name, reason in facts["failures"]]
        return Written(facts["rows"], facts["dimension"], facts["images"], failures, False)

    def _write(self, job: Job, post: PostProcess, context: Context, run: str) -> Written:
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
        written, manifest = Written(0, 0, images, failures), Manifest(self._manifest)
        with self._publishing(manifest) as scratch:
            if failures:
                self._write_table(scratch, "failures", "reason", *zip(*failures, strict=True))
            if images:
                whitening = post.whitening
                if post.whiten is not None:
                    whitening = learn_whitening(np.concatenate(training), post.whiten)
                    save_whitening(whitening, scratch / self.table("whitening.npz").name)
                parts = _whitened(iter_parts(job, Context(store=context.store)), whitening)
                ids, of_image, dimension = self._write_rows(scratch, job, parts)
                if job.recipe.views.count and not job.recipe.average_views:
                    self._write_table(scratch, "groups", "group", ids, of_image)
                if post.folder_labels:
                    labels = [PurePosixPath(job.files[i].id).parent.name for i in of_image]
                    self._write_table(scratch, "labels", "label", ids, labels)
                written = replace(written, rows=len(ids), dimension=dimension)
            manifest.facts = {**asdict(written), "fingerprint": run} if images else {}
        if not images:
            raise nothing_left(failures)
        return written

    def _publishing(self, manifest: Manifest) -> AbstractContextManager[Path]:
        """Yield a folder for the files of the run, which replace those of an earlier one."""
        target, ids = resolved(self.path), resolved(self.table("ids.csv"))
        retained = {target, *(resolved(self.table(name)) for name in _RETAINED)}
        if self.path.endswith("/"):
            overwrite = self.overwrite or self._continues(manifest)
            return folder_outputs(target, overwrite, manifest, retained)
        forced = {target, ids} if self.overwrite else set()

        def replaces(file: Path) -> bool:
            return file in forced or manifest.owns(file)

        earlier = manifest.owned().difference(retained)
        return atomic_outputs(target, replaces, earlier, manifest.publishing)

    def _write_rows(
        self, scratch: Path, job: Job, parts: Iterator[Part]
    ) -> tuple[list[str], list[int], int]:
        """Write the features; return the id and the image of each row, and the dimension."""
        ids: list[str] = []
        images: list[int] = []
        first = next(parts)
        layout = Layout("X", [f"f{i}" for i in range(first.values.shape[1])], "id")

        def batches() -> Iterator[Batch]:
            for part in chain([first], parts):
                rows = zip(part.image, part.view, strict=True)
                names = [row_id(job.files[i], view) for i, view in rows]
                yield Batch(len(ids), part.values, as_ids(names))
                ids.extend(names)
                images.extend(part.image.tolist())

        write_drafts(scratch, self.path, layout, batches())
        return ids, images, len(layout.columns)

    def _write_table(
        self, scratch: Path, table: str, column: str, ids: Sequence[str], values: Sequence[object]
    ) -> None:
        path = scratch / self.table(f"{table}.csv").name
        write_csv(path, Layout(column, [column]), [Batch(0, np.array(values), as_ids(ids))])


def _whitened(parts: Iterable[Part], whitening: Preprocessing | None) -> Iterator[Part]:
    """Yield the parts that have rows, whitened."""
    for part in parts:
        if len(part.values):
            values = part.values if whitening is None else whiten(part.values, whitening)
            yield Part(part.image, part.view, values.astype(np.float32, copy=False))
