"""Stanford Online Products: Ebay_train.txt, Ebay_test.txt and the product folders."""

from pathlib import Path

import numpy as np

from rpml.io.datasets.image_sets import ImageSet, as_number, find_root, read_lines
from rpml.runtime.errors import InputError

_FILES = (("Ebay_train.txt", True), ("Ebay_test.txt", False))


def read_sop(root: str | Path) -> ImageSet:
    """Read Stanford Online Products, split as in its listings (11,318 and 11,316 classes)."""
    folder = find_root(
        root, "Ebay_train.txt", "Stanford_Online_Products", "Stanford Online Products"
    )
    paths: list[str] = []
    labels: list[int] = []
    train: list[bool] = []
    for name, training in _FILES:
        header, *rows = read_lines(folder / name, 4) or [[]]
        if header != ["image_id", "class_id", "super_class_id", "path"]:
            raise InputError(
                f"{folder / name} must start with the line image_id class_id super_class_id path"
            )
        paths += [row[3] for row in rows]
        labels += [as_number(row[1], folder / name) for row in rows]
        train += [training] * len(rows)
    both = set(labels[: sum(train)]) & set(labels[sum(train) :])
    if both:
        raise InputError(f"{folder}: class {min(both)} is in both listings")
    return ImageSet(
        "Stanford Online Products",
        folder,
        tuple(paths),
        np.array(labels, np.int64),
        np.array(train, bool),
    )
