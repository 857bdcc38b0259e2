"""Descriptors of the images of a dataset, computed once and stored."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.protocol.descriptors import Descriptors
from rpml.evaluation.protocol.published import RECALL_AT
from rpml.io.datasets.image_sets import ImageSet
from rpml.io.features import read_features
from rpml.runtime.context import Context
from rpml.vision.backbone import Backbone
from rpml.vision.engine import Execution
from rpml.vision.extract import Job, Recipe, files_digest
from rpml.vision.files import ImageFile
from rpml.vision.resumable import ResumableExtraction


@dataclass(frozen=True)
class BackboneSpec:
    """A backbone file, its sidecar, and how its descriptors are computed."""

    path: str
    sidecar: str | None
    recipe: Recipe
    execution: Execution


def from_images(
    dataset: str, images: ImageSet, network: BackboneSpec, folder: Path, context: Context
) -> Descriptors:
    """Compute the descriptors of a dataset and store them in `folder`.

    A second call with the same images, network and recipe reads them; an interrupted call is
    resumed.
    """
    files = [ImageFile(path, images.root / path) for path in images.paths]
    backbone = Backbone(network.path, network.sidecar, threads=network.execution.threads()[1])
    job = Job(files, backbone, network.recipe, network.execution)
    origin: dict[str, object] = {
        "dataset": images.name,
        "images": len(files),
        "files": files_digest(files),
        "backbone": {"name": backbone.path.name, **backbone.fingerprint()},
        "recipe": network.recipe.settings(),
    }
    features = str(folder / "features.npy")
    ResumableExtraction(features, resume=True).extract(job, context=context)
    return _of_images(dataset, images, features, origin)


def _of_images(dataset: str, images: ImageSet, path: str, origin: dict[str, object]) -> Descriptors:
    """Read the stored features, with the classes of the images that could be read."""
    features = read_features(path)
    place = {name: i for i, name in enumerate(images.paths)}
    rows = np.array([place[name] for name in (features.ids if features.ids is not None else ())])
    return Descriptors(
        np.asarray(features.values),
        images.labels[rows],
        images.train[rows],
        {**origin, "left_out": len(images.paths) - len(rows)},
        RECALL_AT.get(dataset, KS),
        tuple(images.root / images.paths[i] for i in rows),
    )
