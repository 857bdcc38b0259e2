"""Extraction of image descriptors to a file; an interrupted run can resume."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from rpml.io.checkpoint import Checkpoint, ResumableRun
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError
from rpml.runtime.files import locked
from rpml.runtime.outputs import Manifest
from rpml.vision.extract import Job, files_digest
from rpml.vision.outputs import (
    OutputPaths,
    PostProcess,
    Written,
    already_written,
    training_files,
    write_features,
)
from rpml.vision.pooling import DescriptorWhitening
from rpml.vision.views import Views

LEARN = "learn"
REGION_IMAGES = 1000  # from which a region whitening is learned


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
    >>> from rpml.vision.files import find_images
    >>> from rpml.vision.resumable import ResumableExtraction
    >>> job = Job(find_images("photos/"), Backbone("googlenet.onnx"))  # doctest: +SKIP
    >>> ResumableExtraction("features.npy", resume=True).extract(job).rows  # doctest: +SKIP
    """

    _suffix: ClassVar[str] = ".parts"

    @property
    def _paths(self) -> OutputPaths:
        return OutputPaths(str(self.path))

    @property
    def started(self) -> bool:
        """Whether there are finished parts to resume from."""
        return self.directory.exists()

    def _check(self, inputs: list[str | Path | None]) -> None:
        self._paths.check(self.overwrite, self.resume, inputs)

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
        self._paths.check_name()
        # photos.npy and photos.csv would write the same tables
        with self._running(file.path for file in job.files), locked(self._paths.ids):
            post, context = post or PostProcess(), context or Context()
            job = self._with_region_whitening(job, region_whitening, post.whiten_on)
            written = already_written(self._paths, job, post) if self.resume else None
            if written is None:
                digest = files_digest(job.files)
                store = Checkpoint(self.directory, digest, job.settings(), self.resume)
                context = replace(context, store=store)
                written = write_features(self._paths, job, post, context, self.overwrite)
            self.discard()
            return written

    def _with_region_whitening(self, job: Job, choice: str | Path | None, training: str) -> Job:
        if choice is None:
            return job
        own = self._paths.region_whitening
        if choice == LEARN and not (self.resume and own.is_file()):
            subset = replace(job, files=training_files(job.files, training))
            learn_region_whitening(subset).save(own, Manifest(self._paths.manifest).owns(own))
        learned = DescriptorWhitening.load(own if choice == LEARN else choice)
        pooling = replace(job.recipe.pooling, region_whitening=learned)
        return replace(job, recipe=replace(job.recipe, pooling=pooling))


def learn_region_whitening(job: Job) -> DescriptorWhitening:
    """Learn a whitening from the regions of at most 1,000 images, spread evenly over the files.

    The files of the job must belong to the training split; its views are not used.
    """
    step = max(1, len(job.files) // REGION_IMAGES)
    job = replace(job, recipe=replace(job.recipe, views=Views()))
    described, _ = job.run(job.files[::step], job.recipe.pooling.regions)
    if not described:
        raise InputError("no image could be read, so the region whitening cannot be learned")
    regions = np.concatenate([tile for tiles in described.values() for tile in tiles])
    return DescriptorWhitening.learn(regions)
