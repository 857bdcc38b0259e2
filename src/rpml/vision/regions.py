"""PCA-whitening of R-MAC regions, learned from the regions of training images."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError
from rpml.vision.extract import Job
from rpml.vision.views import Views
from rpml.vision.whitening import Whitening

SAMPLE = 1000  # images the whitening is learned from


def learn_region_whitening(job: Job) -> Whitening:
    """Learn a whitening from the regions of at most 1,000 images, spread evenly over the files.

    The files of the job must belong to the training split; its views are not used.
    """
    step = max(1, len(job.files) // SAMPLE)
    job = replace(job, files=job.files[::step], recipe=replace(job.recipe, views=Views()))

    def describe(tiles: NDArray[np.uint8]) -> NDArray[np.floating]:
        return job.recipe.pooling.regions(job.backbone(tiles))

    with job.engine(describe) as engine:
        described, _ = engine.run(job.files)
    if not described:
        raise InputError("no image could be read, so the region whitening cannot be learned")
    regions = np.concatenate([tile for tiles in described.values() for tile in tiles])
    return Whitening.learn(regions)
