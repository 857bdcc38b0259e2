"""The protocol's descriptors, from a file or from the images of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.baselines.unsupervised import PCA
from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.protocol.published import RECALL_AT
from rpml.io.datasets.image_sets import (
    PUBLISHED,
    ImageSet,
    read_cars,
    read_cub,
    read_folders,
    read_sop,
)
from rpml.io.features import ReadOptions, read_features, read_labels
from rpml.io.features.numpy_files import NpzFile
from rpml.io.features.reading import check_readable
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array

READERS: dict[str, Callable[[str], ImageSet]] = {
    "cub": read_cub,
    "cars": read_cars,
    "sop": read_sop,
    "folders": read_folders,
}
_TRAIN_ARRAY = "train"


@dataclass(frozen=True)
class Descriptors:
    """Rows of all images, their classes, the split, and their origin.

    `images` are the files in row order, if available; `ks` the K of Recall@K.
    """

    X: Array
    labels: NDArray[np.generic]
    train: NDArray[np.bool_]
    origin: Json
    ks: tuple[int, ...] = KS
    images: tuple[Path, ...] | None = None

    def __post_init__(self) -> None:
        if not self.train.any() or self.train.all():
            side = "training" if not self.train.any() else "test"
            raise InputError(
                f"there are no {side} rows: give classes of both sides, or an array "
                f"{_TRAIN_ARRAY!r} of True and False in the .npz file"
            )
        both = set(self.labels[self.train].tolist()) & set(self.labels[~self.train].tolist())
        if both:
            raise InputError(
                f"class {min(both, key=str)!r} is on both sides of the split, and the test must be "
                "of classes never seen in training"
            )

    def whitened(self, dim: int) -> Descriptors:
        """Return the descriptors PCA-whitened to `dim`, learned on the training rows only."""
        whitening = PCA(dim, exponent=1.0).fit(self.X[self.train])
        return replace(self, X=whitening.transform(self.X), origin={**self.origin, "whitened": dim})


def read_dataset(dataset: str, root: str, incomplete: bool = False) -> ImageSet:
    """Read a dataset's images; check that the files exist and the counts are the published ones."""
    images = READERS[dataset](root)
    images.check_files()
    if dataset in PUBLISHED and not incomplete:
        images.check_counts(PUBLISHED[dataset])
    return images


def from_file(
    dataset: str, path: str, options: ReadOptions, labels: str | None = None
) -> Descriptors:
    """Read descriptors from any file of features, and labels from it or another file.

    An .npz file may also hold the labels (``y``) and the split (``train``); otherwise the split
    follows the class numbers of the dataset ("cub", "cars", "sop" or "folders").
    """
    if path.endswith(".npz") and options.array is None:
        options = replace(options, array=_only_matrix(Path(path)))
    features = read_features(path, options)
    n = len(features.values)
    y = read_labels(labels or path, n, features.ids)
    train = _split(dataset, path, y)
    origin = {"features": Path(path).name, "array": options.array}
    return Descriptors(
        np.asarray(features.values, np.float32),
        y,
        train,
        origin,
        RECALL_AT.get(dataset, KS),
    )


def _only_matrix(path: Path) -> str | None:
    """Return the only array with two dimensions; None leaves the choice to the reader."""
    check_readable(path)
    archive = NpzFile(path)
    matrices = [name for name in archive.names if archive.read(name).ndim == 2]
    return matrices[0] if len(matrices) == 1 else None


def _split(dataset: str, path: str, y: NDArray[np.generic]) -> NDArray[np.bool_]:
    if path.endswith(".npz"):
        archive = NpzFile(Path(path))
        if _TRAIN_ARRAY in archive.names:
            train = archive.read(_TRAIN_ARRAY).astype(bool)
            if train.shape != y.shape:
                raise InputError(f"{path}: the array 'train' must have one value per row")
            return train
    if dataset not in PUBLISHED or y.dtype.kind not in "iu":
        raise InputError(
            f"{path} does not say which rows are for training: give an .npz file with an array "
            "'train', or a dataset with numbered classes"
        )
    return np.asarray(y.astype(np.int64) <= PUBLISHED[dataset].train_classes)
