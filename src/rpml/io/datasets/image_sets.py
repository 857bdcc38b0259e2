"""Labeled image collections with a zero-shot split, as in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.text_files import text_lines
from rpml.runtime.errors import InputError
from rpml.runtime.wording import counted

VIEW_MARK = "#view"  # ids of augmented views: the id of the image, this mark, and a number
IMAGE_SUFFIXES = (
    *(".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm"),
    *(".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)


@dataclass(frozen=True)
class ImageSet:
    """Images, their classes, and which of them are for training; no class is in both parts."""

    name: str
    root: Path
    paths: tuple[str, ...]
    """Relative to `root`, with ``/`` as the separator."""
    labels: NDArray[np.int64]
    train: NDArray[np.bool_]
    """True for images of training classes."""

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
        actual = counts(self)
        if actual != expected:
            raise InputError(
                f"{self.name} at {self.root} is not complete: the published split has {expected}, "
                f"this has {actual} (--incomplete to go on nevertheless)"
            )


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


def counts(images: ImageSet) -> Counts:
    """Count the images and classes of a collection."""
    train = images.train
    return Counts(
        int(train.sum()),
        int((~train).sum()),
        len(np.unique(images.labels[train])),
        len(np.unique(images.labels[~train])),
    )


PUBLISHED = {
    "cub": Counts(5_864, 5_924, 100, 100),
    "cars": Counts(8_054, 8_131, 98, 98),
    "sop": Counts(59_551, 60_502, 11_318, 11_316),
}
"""The splits in the paper's section on fine-grained categorization."""


def make_set(name: str, root: Path, rows: Sequence[tuple[str, int]], split: Counts) -> ImageSet:
    """Build a collection from (path, class) rows; the first classes, from 1, are for training."""
    labels = np.array([label for _, label in rows], np.int64)
    paths = tuple(path for path, _ in rows)
    return ImageSet(name, root, paths, labels, labels <= split.train_classes)


def find_root(root: str | Path, marker: str, usual: str, name: str) -> Path:
    """Return the folder that holds `marker`: the root, or the usual folder inside it."""
    user_root = Path(root)
    for folder in (user_root, user_root / usual):
        if (folder / marker).exists():
            return folder
    raise InputError(
        f"{user_root} does not hold {name}: {marker} is missing there and in {usual}/ inside it"
    )


def read_lines(path: Path, columns: int) -> list[list[str]]:
    """Read the rows of a text file; fields are separated by blanks, which the last may contain."""
    rows = []
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        parts = line.strip().split(maxsplit=columns - 1)
        if len(parts) != columns:
            raise InputError(f"{path}: line {number} must have {columns} columns, got {line!r}")
        rows.append(parts)
    return rows


def as_number(text: str | int, path: Path) -> int:
    """Parse an integer of a listing."""
    try:
        return int(text)
    except ValueError:
        raise InputError(f"{path}: {text!r} should be a number") from None
