"""The files of an extraction (features, ids, groups, failures, whitening), written atomically."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from rpml.io.checkpoint import check_directory, fingerprint
from rpml.io.features import Layout, check_table_output
from rpml.io.features.source import as_ids
from rpml.io.features.writing import table_writer
from rpml.runtime.context import Context, Json
from rpml.runtime.digest import data_digest
from rpml.runtime.errors import InputError
from rpml.runtime.files import Outputs, atomic_outputs, folder_outputs
from rpml.runtime.outputs import MANIFEST_SUFFIX, Manifest, check_apart, resolved
from rpml.runtime.schema import COUNT, check_json
from rpml.runtime.wording import counted
from rpml.vision.engine import Failure
from rpml.vision.extract import Job, Part, files_digest, iter_parts, nothing_left, row_id
from rpml.vision.files import ImageFile
from rpml.vision.pooling import DescriptorWhitening


def _beside(pattern: str) -> property:
    """Return a property for a file next to the features; the pattern may use its name and stem."""

    def path(self: OutputPaths) -> Path:
        features = Path(self.features)
        return features.with_name(pattern.format(name=features.name, stem=features.stem))

    return property(path)


@dataclass(frozen=True)
class OutputPaths:
    """The paths of the files of one extraction, all next to the features and named after them."""

    features: str

    ids = _beside("{stem}.ids.csv")
    failures = _beside("{stem}.failures.csv")
    groups = _beside("{stem}.groups.csv")
    labels = _beside("{stem}.labels.csv")
    parts = _beside("{name}.parts")
    whitening = _beside("{stem}.whitening.npz")
    region_whitening = _beside("{stem}.regions.npz")
    manifest = _beside("{name}" + MANIFEST_SUFFIX)

    @property
    def tables(self) -> tuple[Path, ...]:
        """Tables with one row per feature row or failure; the ids belong to the features."""
        return (self.groups, self.labels, self.failures)

    @property
    def whitenings(self) -> tuple[Path, ...]:
        """Files that a later run may read."""
        return (self.whitening, self.region_whitening)

    def check_name(self) -> None:
        """Raise InputError for standard output."""
        if self.features == "-":
            raise InputError("features of images are written to a file, not to standard output")

    def check(
        self, overwrite: bool, resume: bool = False, inputs: Iterable[str | Path | None] = ()
    ) -> None:
        """Raise InputError, before any work, if an output exists or cannot be written.

        `overwrite` allows replacing the features, `resume` only those of an earlier run. The other
        files are replaced or deleted only if the manifest lists them unchanged. `inputs` must not
        be replaced.
        """
        self.check_name()
        inputs = list(inputs)
        manifest, target = Manifest(self.manifest), Path(self.features)
        ours = resume and manifest.owns(target)
        check_table_output(self.features, overwrite or ours, inputs)
        check_apart([*self.tables, self.manifest, self.parts], inputs)
        learned = self.region_whitening if resume and self.parts.exists() else None
        for path in (*self.tables, *self.whitenings, self.manifest):
            if path != learned:  # an unfinished run has written it already
                manifest.check(path)
        if ours and not overwrite and target.suffix.lower() == ".npy":
            manifest.check(self.ids)
        check_directory(self.parts)


@dataclass(frozen=True)
class PostProcess:
    """Processing of the descriptors before they are written."""

    whiten: int | None = None
    """Learn a PCA whitening to this dimension."""
    whiten_on: str = "*"
    """Pattern of the ids of the training split (``*`` matches any text)."""
    whitening: DescriptorWhitening | None = None
    """An existing whitening to apply instead."""
    folder_labels: bool = False
    """Also write each image's folder as its label."""


@dataclass(frozen=True)
class Written:
    """Summary of the files of an extraction; `computed` is False if an earlier run wrote them."""

    rows: int
    dimension: int
    images: int
    failures: tuple[Failure, ...]
    computed: bool = True


_FACTS = {
    "rows": COUNT,
    "dimension": COUNT,
    "images": COUNT,
    "failures": [{"id": str, "reason": str}],
}
"""Schema of the manifest's facts."""


def _fingerprint(job: Job, post: PostProcess) -> str:
    """Return a hash that is equal for runs that write the same files."""
    whitening = post.whitening
    learned = None if whitening is None else data_digest(whitening.mean, whitening.matrix)
    after = {**asdict(replace(post, whitening=None)), "whitening": learned}
    return fingerprint(files_digest(job.files), {**job.settings(), "post_process": after})


def already_written(paths: OutputPaths, job: Job, post: PostProcess) -> Written | None:
    """Return what an earlier run of the same job wrote, if all of it is still there."""
    manifest = Manifest(paths.manifest)
    facts = manifest.facts
    if not manifest.intact() or facts.get("fingerprint") != _fingerprint(job, post):
        return None
    check_json(facts, _FACTS, "manifest")
    failures = tuple(Failure(**failure) for failure in facts["failures"])
    return Written(facts["rows"], facts["dimension"], facts["images"], failures, False)


def training_files(files: Sequence[ImageFile], pattern: str) -> list[ImageFile]:
    """Return the files whose id matches; InputError if there are none."""
    selected = [file for file in files if fnmatchcase(file.id, pattern)]
    if not selected:
        raise InputError(f"no image matches --whiten-on {pattern!r}, the first is {files[0].id!r}")
    return selected


def check_post_process(files: Sequence[ImageFile], post: PostProcess) -> None:
    """Raise InputError if a whitening cannot be learned, before descriptors are computed."""
    if post.whiten is None:
        return
    training = training_files(files, post.whiten_on)
    if len(training) <= post.whiten:
        raise InputError(
            f"cannot learn a whitening to {counted(post.whiten, 'dimension')} from "
            f"{counted(len(training), 'image')}: it takes more images than dimensions"
        )


def write_features(
    paths: OutputPaths, job: Job, post: PostProcess, context: Context, overwrite: bool = False
) -> Written:
    """Compute the descriptors and write all files together.

    Parts are computed first, into the context's store, and read again for the output, so that only
    one of them (and the training rows of a whitening) is in memory at a time.
    """
    check_post_process(job.files, post)
    failures: list[Failure] = []
    training, images = [], 0
    for part in iter_parts(job, context):
        failures += part.failures
        images += len(set(part.image.tolist()))
        if post.whiten is not None and len(part.values):
            training.append(part.values[_is_training(part, job.files, post.whiten_on)])
    with _publishing(paths, overwrite) as publication:
        publication.csv(paths.failures, ["id", "reason"], [(f.id, f.reason) for f in failures])
        if images:
            whitening = post.whitening
            if post.whiten is not None:
                whitening = DescriptorWhitening.learn(np.concatenate(training), post.whiten)
                whitening.write(publication.tables.new(paths.whitening))
            parts = _whitened(iter_parts(job, Context(store=context.store)), whitening)
            rows, dimension = _write_all(publication, job, parts, post)
            written = Written(rows, dimension, images, tuple(failures))
            publication.facts = {**asdict(written), "fingerprint": _fingerprint(job, post)}
    if not images:
        raise nothing_left(failures)
    return written


class _Publication:
    """The files of an extraction: the features, and what is next to them with a manifest."""

    def __init__(self, paths: OutputPaths, features: Outputs, tables: Outputs) -> None:
        self.paths, self.features, self.tables = paths, features, tables
        self.facts: Json = {}

    def csv(self, path: Path, header: list[str], rows: Sequence[Iterable[object]]) -> None:
        """Write a table, if it has rows."""
        if rows:
            with open(self.tables.new(path), "w", encoding="utf8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(header)
                writer.writerows(rows)

    def finish(self, earlier: Manifest) -> None:
        """Write the manifest and delete tables of an earlier run that this one did not write."""
        files = {**self.features.drafts(), **self.tables.drafts()}
        for path in map(resolved, self.paths.whitenings):
            if path not in files and path.is_file():
                files[path] = path
        for path in map(resolved, self.paths.tables):
            if path not in files and earlier.owns(path):
                self.tables.remove(path, before_main=True)
        earlier.write_next(self.tables.new(self.paths.manifest), files, self.facts)


@contextmanager
def _publishing(paths: OutputPaths, overwrite: bool) -> Iterator[_Publication]:
    """Publish the manifest first and the features last: a table in between is then refused."""
    earlier, features = Manifest(paths.manifest), resolved(paths.features)
    forced = {features, resolved(paths.ids)} if overwrite else set()

    def replaces(path: Path) -> bool:
        return path in forced or earlier.owns(path)

    if paths.features.endswith("/"):
        with (
            folder_outputs(paths.features, overwrite or earlier.owns(features)) as shards,
            atomic_outputs(paths.ids, overwrite, replaces) as tables,
        ):
            publication = _Publication(paths, shards, tables)
            yield publication
            publication.finish(earlier)
    else:
        with atomic_outputs(features, overwrite, replaces) as outputs:
            publication = _Publication(paths, outputs, outputs)
            yield publication
            publication.finish(earlier)


def _is_training(part: Part, files: Sequence[ImageFile], pattern: str) -> NDArray[np.bool_]:
    """Return which rows are images (not views) whose id matches."""
    matches: NDArray[np.bool_] = np.array(
        [fnmatchcase(files[i].id, pattern) for i in part.image], bool
    )
    matches &= part.view == 0
    return matches


def _whitened(parts: Iterable[Part], whitening: DescriptorWhitening | None) -> Iterator[Part]:
    for part in parts:
        if not len(part.values):
            continue
        values = part.values if whitening is None else whitening.apply(part.values)
        yield Part(part.image, part.view, values.astype(np.float32, copy=False))


def _write_all(
    publication: _Publication, job: Job, parts: Iterator[Part], post: PostProcess
) -> tuple[int, int]:
    """Write features with ids, groups and labels; return the number of rows and of dimensions."""
    ids: list[str] = []
    images: list[int] = []
    first = next(parts)
    layout = Layout("X", [f"f{i}" for i in range(first.values.shape[1])], "id")
    with table_writer(publication.features, publication.paths.features, layout) as writer:
        for part in chain([first], parts):
            names = [row_id(job.files[i], v) for i, v in zip(part.image, part.view, strict=True)]
            writer.write(part.values, as_ids(names))
            ids += names
            images += part.image.tolist()
    paths = publication.paths
    if job.recipe.views.count and not job.recipe.average_views:
        publication.csv(paths.groups, ["id", "group"], list(zip(ids, images, strict=True)))
    if post.folder_labels:
        labels = [PurePosixPath(job.files[i].id).parent.name for i in images]
        publication.csv(paths.labels, ["id", "label"], list(zip(ids, labels, strict=True)))
    return len(ids), len(layout.columns)
