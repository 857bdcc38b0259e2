"""CUB-200-2011: images.txt, image_class_labels.txt and images/."""

from pathlib import Path

from rpml.io.datasets.image_sets import (
    PUBLISHED,
    ImageSet,
    as_number,
    find_root,
    make_set,
    read_lines,
)
from rpml.runtime.errors import InputError


def read_cub(root: str | Path) -> ImageSet:
    """Read CUB-200-2011: classes 1-100 for training, 101-200 for testing."""
    folder = find_root(root, "images.txt", "CUB_200_2011", "CUB-200-2011")
    images = dict(read_lines(folder / "images.txt", 2))
    listing = folder / "image_class_labels.txt"
    labels = {key: as_number(label, listing) for key, label in read_lines(listing, 2)}
    if images.keys() != labels.keys():
        odd = sorted(images.keys() ^ labels.keys())[0]
        raise InputError(f"{folder}: image {odd} is in only one of images.txt and {listing.name}")
    rows = [(f"images/{path}", labels[key]) for key, path in images.items()]
    return make_set("CUB-200-2011", folder, rows, PUBLISHED["cub"])
