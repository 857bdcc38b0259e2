"""Augmented views: seeded, switchable, independent of the other images."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from rpml.runtime.errors import InputError
from rpml.vision.views import AUGMENTATIONS, Views
from tests.vision.conftest import noise_image

PICTURE = noise_image(0, (60, 40))


def pixels(views: Views, image: Image.Image = PICTURE, name: str = "a") -> list[np.ndarray]:
    return [np.asarray(v) for v in views.all(image, name)]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(x.shape == y.shape and (x == y).all() for x, y in zip(a, b, strict=True))


def test_the_image_itself_comes_first() -> None:
    first, *views = pixels(Views(3))
    assert (first == np.asarray(PICTURE)).all()
    assert len(views) == 3
    assert not same(views[:1], views[1:2])


def test_no_views_by_default() -> None:
    assert len(pixels(Views())) == 1


def test_views_depend_on_seed_name_and_number_only() -> None:
    assert same(pixels(Views(2)), pixels(Views(3))[:3])
    assert not same(pixels(Views(2)), pixels(Views(2, seed=1)))
    assert not same(pixels(Views(2)), pixels(Views(2), name="b"))


@pytest.mark.parametrize("augmentation", sorted(AUGMENTATIONS))
def test_each_augmentation_can_be_used_alone(augmentation: str) -> None:
    results = pixels(Views(8, (augmentation,)))[1:]
    changed = [r for r in results if r.shape != (40, 60, 3) or (r != np.asarray(PICTURE)).any()]
    assert len(changed) >= (1 if augmentation == "flip" else 8)
    if augmentation == "crop":
        for r in results:
            height, width = r.shape[:2]
            assert 0.35 <= height * width / 2400 <= 1
    else:
        assert all(r.shape == (40, 60, 3) for r in results)


def test_flip_only_flips() -> None:
    flipped = np.asarray(PICTURE)[:, ::-1]
    for view in pixels(Views(6, ("flip",))):
        assert (view == np.asarray(PICTURE)).all() or (view == flipped).all()


def test_one_pixel_survives_every_augmentation() -> None:
    for view in pixels(Views(20), Image.new("RGB", (1, 1), (9, 9, 9))):
        assert view.shape == (1, 1, 3)


def test_wrong_augmentations_are_named() -> None:
    with pytest.raises(InputError, match="'zoom'"):
        Views(1, ("zoom",))
    with pytest.raises(InputError, match="repeat the image"):
        Views(1, ())
