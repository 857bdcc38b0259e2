"""Labeled image collections with a zero-shot split, as in the paper: CUB, Cars, SOP, folders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.text_files import text_lines
from rpml.runtime.errors import InputError, counted, explained
from rpml.runtime.rows import Mask

VIEW_MARK = "#view"  # ids of augmented views: the id of the image, this mark, and a number
IMAGE_SUFFIXES = (
    *(".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm"),
    *(".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
_CARS = "cars_annos.mat"
_DEVKIT = (("cars_train", "cars_train_annos.mat"), ("cars_test", "cars_test_annos_withlabels.mat"))
_LISTINGS = (("Ebay_train.txt", True), ("Ebay_test.txt", False))


@dataclass(frozen=True)
class Counts:
    """Numbers of images and classes of a split."""

    train_images: int
    test_images: int
    train_classes: int
    test_classes: int

    def __str__(self) -> str:
        return (
            f"{counted(self.train_images, 'training image')} of "
            f"{counted(self.train_classes, 'class', 'classes')} and "
            f"{counted(self.test_images, 'test image')} of {self.test_classes:,}"
        )


PUBLISHED = {
    "cub": Counts(5_864, 5_924, 100, 100),
    "cars": Counts(8_054, 8_131, 98, 98),
    "sop": Counts(59_551, 60_502, 11_318, 11_316),
}
"""The splits in the paper's section on fine-grained categorization."""


@dataclass(frozen=True)
class ImageSet:
    """Images, their classes, and which of them are for training; no class is in both parts."""

    name: str
    root: Path
    paths: tuple[str, ...]
    """Relative to `root`, with ``/`` as the separator."""
    labels: NDArray[np.int64]
    train: Mask
    """True for images of training classes."""

    def counts(self) -> Counts:
        sides = self.labels[self.train], self.labels[~self.train]
        return Counts(*map(len, sides), *(len(np.unique(side)) for side in sides))

    def check_files(self) -> None:
        """Raise InputError if images are missing on disk."""
        missing = [path for path in self.paths if not (self.root / path).is_file()]
        if missing:
            raise InputError(
                f"{self.name}: {len(missing):,} of {len(self.paths):,} images are missing below "
                f"{self.root}, the first is {missing[0]}"
            )

    def check_counts(self, expected: Counts) -> None:
        """Raise InputError if the split is not the published one."""
        if self.counts() != expected:
            raise InputError(
                f"{self.name} at {self.root} is not complete: the published split has {expected}, "
                f"this has {self.counts()} (--incomplete to go on nevertheless)"
            )


def read_cub(root: str | Path) -> ImageSet:
    """Read CUB-200-2011: classes 1-100 for training, 101-200 for testing."""
    folder = _find_root(root, "images.txt", "CUB_200_2011", "CUB-200-2011")
    images = dict(_read_lines(folder / "images.txt", 2))
    listing = folder / "image_class_labels.txt"
    labels = {key: _as_number(label, listing) for key, label in _read_lines(listing, 2)}
    if images.keys() != labels.keys():
        odd = sorted(images.keys() ^ labels.keys())[0]
        raise InputError(f"{folder}: image {odd} is in only one of images.txt and {listing.name}")
    rows = [(f"images/{path}", labels[key]) for key, path in images.items()]
    return _make_set("CUB-200-2011", folder, rows, PUBLISHED["cub"])


def read_cars(root: str | Path) -> ImageSet:
    """Read Cars-196: classes 1-98 for training, 99-196 for testing, whatever the original split.

    Layouts: cars_annos.mat with car_ims/; or cars_train/ and cars_test/ with
    cars_train_annos.mat and cars_test_annos_withlabels.mat, next to them or in devkit/.
    """
    for folder in (Path(root), Path(root) / "cars196", Path(root) / "stanford_cars"):
        if (folder / _CARS).is_file():
            rows = _annotations(folder / _CARS, "relative_im_path")
            return _make_set("Cars-196", folder, rows, PUBLISHED["cars"])
        if (folder / _DEVKIT[0][0]).is_dir():
            return _make_set("Cars-196", folder, list(_devkit(folder)), PUBLISHED["cars"])
    raise InputError(
        f"{root} does not hold Cars-196: it needs {_CARS} with car_ims/, or cars_train/ and "
        "cars_test/ with their annotations"
    )


def _devkit(folder: Path) -> Iterator[tuple[str, int]]:
    for images, name in _DEVKIT:
        places = [place / name for place in (folder, folder / "devkit")]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise InputError(
                f"{folder} has {images}/ but {name} is neither there nor in devkit/: it holds the "
                "classes, and the test file without labels cannot stand for it"
            )
        for name, label in _annotations(path, "fname"):
            yield f"{images}/{name}", label


def _annotations(path: Path, field: str) -> list[tuple[str, int]]:
    """Return names, in this field, and classes of a MATLAB annotation file."""
    from scipy.io import loadmat

    with explained(f"cannot read {path} as MATLAB annotations"):
        records = np.atleast_1d(loadmat(path, squeeze_me=True)["annotations"])
        return [(str(record[field]), int(record["class"])) for record in records]


def read_sop(root: str | Path) -> ImageSet:
    """Read Stanford Online Products, split as in its listings (11,318 and 11,316 classes)."""
    name = "Stanford Online Products"
    folder = _find_root(root, "Ebay_train.txt", name.replace(" ", "_"), name)
    rows: list[tuple[str, int, bool]] = []
    for listing, training in _LISTINGS:
        path, columns = folder / listing, "image_id class_id super_class_id path"
        header, *lines = _read_lines(path, 4) or [[]]
        if header != columns.split():
            raise InputError(f"{path} must start with the line {columns}")
        rows += [(line[3], _as_number(line[1], path), training) for line in lines]
    paths, labels, train = zip(*rows, strict=True) if rows else ((), (), ())
    images = ImageSet(name, folder, paths, np.array(labels, np.int64), np.array(train, bool))
    _check_disjoint(images, "in both listings")
    return images


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
    train = labels < len(classes) // 2
    if split:
        train = np.array([path.startswith("train/") for path in paths])
    images = ImageSet(folder.name, folder, tuple(paths), labels.astype(np.int64), train)
    _check_disjoint(
        images,
        "below both train/ and test/, and the test must be of classes never seen in training",
        classes,
    )
    return images


def _check_disjoint(images: ImageSet, where: str, names: NDArray[np.str_] | None = None) -> None:
    """Raise InputError if a class is on both sides of the split."""
    both = np.intersect1d(images.labels[images.train], images.labels[~images.train])
    if len(both):
        label = both[0] if names is None else repr(str(names[both[0]]))
        raise InputError(f"{images.root}: class {label} is {where}")


def _make_set(name: str, root: Path, rows: Sequence[tuple[str, int]], split: Counts) -> ImageSet:
    """Build a collection from (path, class) rows; the first classes, from 1, are for training."""
    labels = np.array([label for _, label in rows], np.int64)
    paths = tuple(path for path, _ in rows)
    return ImageSet(name, root, paths, labels, labels <= split.train_classes)


def _find_root(root: str | Path, marker: str, usual: str, name: str) -> Path:
    """Return the folder that holds `marker`: the root, or the usual folder inside it."""
    for folder in (Path(root), Path(root, usual)):
        if (folder / marker).exists():
            return folder
    raise InputError(
        f"{Path(root)} does not hold {name}: {marker} is missing there and in {usual}/ inside it"
    )


def _read_lines(path: Path, columns: int) -> list[list[str]]:
    """Read the rows of a text file; fields are separated by blanks, which the last may contain."""
    rows = []
    for number, line in enumerate(text_lines(path), start=1):
        parts = line.strip().split(maxsplit=columns - 1)
        if parts and len(parts) != columns:
            raise InputError(f"{path}: line {number} must have {columns} columns, got {line!r}")
        if parts:
            rows.append(parts)
    return rows


def _as_number(text: str, path: Path) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{path}: {text!r} should be a number") from None
