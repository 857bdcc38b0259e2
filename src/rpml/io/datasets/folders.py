"""Image collections with one folder per class."""

from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from rpml.io.datasets.image_sets import IMAGE_SUFFIXES, ImageSet
from rpml.runtime.errors import InputError


def read_folders(root: str | Path) -> ImageSet:
    """Read a collection with one folder per class, at the top or below train/ and test/.

    Without train/ and test/, the first half of the classes in alphabetical order is for training
    and the other half for testing, as in the paper for CUB and Cars.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise InputError(f"cannot read {folder}: there is no such folder")
    split = (folder / "train").is_dir() and (folder / "test").is_dir()
    paths = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.glob("*/*/*" if split else "*/*")
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
    )
    if split:
        paths = [path for path in paths if path.startswith(("train/", "test/"))]
    if not paths:
        raise InputError(f"{folder} holds no folders of images, one for each class")
    names = [PurePosixPath(path).parent.name for path in paths]
    classes, labels = np.unique(names, return_inverse=True)
    if split:
        train = np.array([path.startswith("train/") for path in paths])
        _check_disjoint(names, train, folder)
    else:
        train = labels < len(classes) // 2
    return ImageSet(folder.name, folder, tuple(paths), labels.astype(np.int64), train)


def _check_disjoint(names: list[str], train: NDArray[np.bool_], folder: Path) -> None:
    labeled = np.array(names)
    both = set(labeled[train]) & set(labeled[~train])
    if both:
        raise InputError(
            f"{folder}: class {str(min(both))!r} is below both train/ and test/, "
            "and the test must be of classes never seen in training"
        )
