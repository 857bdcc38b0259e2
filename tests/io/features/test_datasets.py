"""The paper's datasets, as miniature trees of each layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from rpml.io.datasets.image_sets import (
    PUBLISHED,
    Counts,
    ImageSet,
    read_cars,
    read_cub,
    read_folders,
    read_sop,
)
from rpml.runtime.errors import InputError


def touch(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(b"x")


def make_cub(root: Path) -> Path:
    paths = ["001.Black footed/a b.jpg", "001.Black footed/c.jpg", "100.Pelican/d.jpg"]
    paths += ["101.White/e.jpg", "200.Last/f.jpg"]
    for path in paths:
        touch(root / "images", path)
    (root / "images.txt").write_text("".join(f"{i} {p}\n" for i, p in enumerate(paths, 1)))
    labels = "".join(f"{i} {int(p[:3])}\n" for i, p in enumerate(paths, 1))
    (root / "image_class_labels.txt").write_text(labels)
    return root


def test_cub(tmp_path: Path) -> None:
    (tmp_path / "CUB_200_2011").mkdir()
    make_cub(tmp_path / "CUB_200_2011")
    for root in (tmp_path, tmp_path / "CUB_200_2011"):
        birds = read_cub(root)
        birds.check_files()
        assert birds.paths[0] == "images/001.Black footed/a b.jpg"
        assert birds.labels.tolist() == [1, 1, 100, 101, 200]
        assert birds.train.tolist() == [True, True, True, False, False]
    assert birds.counts() == Counts(3, 2, 2, 2)


def test_cub_that_is_not_whole(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"images\.txt is missing there and in CUB_200_2011/"):
        read_cub(tmp_path)
    make_cub(tmp_path)
    birds = read_cub(tmp_path)
    with pytest.raises(InputError, match="5,864 training images of 100 classes"):
        birds.check_counts(PUBLISHED["cub"])
    (tmp_path / "images" / "101.White" / "e.jpg").unlink()
    with pytest.raises(InputError, match=r"1 of 5 images are missing .* images/101.White/e.jpg"):
        birds.check_files()
    wrong = {
        "1 1\n2 x\n": "'x' should be a number",
        "1 1\n": "image 2 is in only one",
        "1\n": "line 1 must have 2 columns",
    }
    for listing, message in wrong.items():
        (tmp_path / "image_class_labels.txt").write_text(listing)
        with pytest.raises(InputError, match=message):
            read_cub(tmp_path)
    (tmp_path / "image_class_labels.txt").unlink()
    with pytest.raises(InputError, match="cannot read"):
        read_cub(tmp_path)


def records(fields: dict[str, list[Any]]) -> np.ndarray:
    """A MATLAB struct array, as savemat writes it."""
    n = len(next(iter(fields.values())))
    array = np.empty((1, n), dtype=[(name, object) for name in fields])
    for name, values in fields.items():
        for i, value in enumerate(values):
            array[0, i][name] = value
    return array


CARS = [(f"{i:06d}.jpg", label) for i, label in enumerate((1, 98, 98, 99, 196, 150), 1)]


def test_cars_in_one_file(tmp_path: Path) -> None:
    paths = [f"car_ims/{name}" for name, _ in CARS]
    for path in paths:
        touch(tmp_path, path)
    labels = [label for _, label in CARS]
    annotations = {"relative_im_path": paths, "class": labels, "test": [0] * 6}
    savemat(tmp_path / "cars_annos.mat", {"annotations": records(annotations)})
    cars = read_cars(tmp_path)
    cars.check_files()
    assert cars.paths == tuple(paths)
    assert cars.labels.tolist() == labels
    assert cars.train.tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize("place", ["", "devkit"])
def test_cars_devkit(tmp_path: Path, place: str) -> None:
    halves = {"cars_train": CARS[::2], "cars_test": CARS[1::2]}
    names = {"cars_train": "cars_train_annos.mat", "cars_test": "cars_test_annos_withlabels.mat"}
    (tmp_path / place).mkdir(exist_ok=True)
    for folder, half in halves.items():
        for name, _ in half:
            touch(tmp_path / folder, name)
        fields = {"bbox_x1": [1] * 3, "class": [c for _, c in half], "fname": [n for n, _ in half]}
        savemat(tmp_path / place / names[folder], {"annotations": records(fields)})
    cars = read_cars(tmp_path)
    cars.check_files()
    assert cars.paths[0] == "cars_train/000001.jpg"
    assert cars.paths[3] == "cars_test/000002.jpg"
    assert cars.train.tolist() == [c <= 98 for _, c in CARS[::2] + CARS[1::2]]
    (tmp_path / place / names["cars_test"]).unlink()
    with pytest.raises(InputError, match="cars_test_annos_withlabels"):
        read_cars(tmp_path)


def test_cars_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not hold Cars-196"):
        read_cars(tmp_path)
    (tmp_path / "cars_annos.mat").write_bytes(b"junk")
    with pytest.raises(InputError, match="cannot read"):
        read_cars(tmp_path)
    savemat(tmp_path / "cars_annos.mat", {"annotations": records({"fname": ["a"]})})
    with pytest.raises(InputError, match="no field of name relative_im_path"):
        read_cars(tmp_path)


HEADER = "image_id class_id super_class_id path\n"


def make_sop(root: Path) -> None:
    root.mkdir(exist_ok=True)
    train = (
        "1 1 1 bicycle_final/1_0.JPG\n2 1 1 bicycle_final/1_1.JPG\n3 2 1 bicycle_final/2_0.JPG\n"
    )
    test = "4 11319 12 toaster_final/3_0.JPG\n"
    (root / "Ebay_train.txt").write_text(HEADER + train)
    (root / "Ebay_test.txt").write_text(HEADER + test)
    for line in (train + test).splitlines():
        touch(root, line.split()[3])


def test_sop(tmp_path: Path) -> None:
    make_sop(tmp_path / "Stanford_Online_Products")
    products = read_sop(tmp_path)
    products.check_files()
    assert products.labels.tolist() == [1, 1, 2, 11319]
    assert products.train.tolist() == [True, True, True, False]
    with pytest.raises(InputError, match="60,502 test images of 11,316"):
        products.check_counts(PUBLISHED["sop"])


def test_sop_that_is_not_whole(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not hold Stanford Online Products"):
        read_sop(tmp_path)
    make_sop(tmp_path)
    (tmp_path / "Ebay_test.txt").write_text(HEADER + "9 2 1 a.JPG\n")
    with pytest.raises(InputError, match="class 2 is in both"):
        read_sop(tmp_path)
    (tmp_path / "Ebay_test.txt").write_text("9 2 1 a.JPG\n")
    with pytest.raises(InputError, match="must start with the line"):
        read_sop(tmp_path)
    (tmp_path / "Ebay_test.txt").unlink()
    with pytest.raises(InputError, match="cannot read"):
        read_sop(tmp_path)


def test_folders_by_train_and_test(tmp_path: Path) -> None:
    for path in ("train/b/1.jpg", "train/a/1.JPEG", "test/c d/é.png", "test/c d/notes.txt"):
        touch(tmp_path, path)
    tree = read_folders(tmp_path)
    tree.check_files()
    assert tree.paths == ("test/c d/é.png", "train/a/1.JPEG", "train/b/1.jpg")
    assert tree.labels.tolist() == [2, 0, 1]
    assert tree.train.tolist() == [False, True, True]
    touch(tmp_path, "test/a/2.jpg")
    with pytest.raises(InputError, match="class 'a' is below both"):
        read_folders(tmp_path)


def test_folders_by_halves_of_the_classes(tmp_path: Path) -> None:
    for name in "dcba":
        touch(tmp_path, f"{name}/1.jpg")
        touch(tmp_path, f"{name}/2.jpg")
    tree = read_folders(tmp_path)
    assert tree.train.tolist() == [True] * 4 + [False] * 4
    assert tree.counts() == Counts(4, 4, 2, 2)


def test_folders_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_folders(tmp_path / "absent")
    with pytest.raises(InputError, match="holds no folders of images"):
        read_folders(tmp_path)


def test_published_counts_are_the_papers() -> None:
    assert PUBLISHED["cub"] == Counts(5864, 5924, 100, 100)
    assert PUBLISHED["cars"] == Counts(8054, 8131, 98, 98)
    assert PUBLISHED["sop"] == Counts(59551, 60502, 11318, 11316)
    whole = ImageSet(
        "CUB",
        Path(),
        ("x",) * 11788,
        np.r_[np.arange(5864) % 100, 100 + np.arange(5924) % 100],
        np.arange(11788) < 5864,
    )
    whole.check_counts(PUBLISHED["cub"])
