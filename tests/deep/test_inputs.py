"""Images that are decoded while training: the same as cached ones, without a cache."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from torch import nn

from rpml.deep.backbones import open_network
from rpml.deep.cache import ImageSpec, TrunkCache, build_cache
from rpml.deep.inputs import DecodedImages, open_inputs, prefetched
from rpml.runtime.errors import InputError
from rpml.vision.files import find_images
from rpml.vision.views import Views

SPEC = ImageSpec(16, Views(2))


@pytest.fixture
def blocks():
    return nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1))


def test_equal_to_a_cache_of_the_pixels(blocks, photos, tmp_path):
    files = find_images(photos / "train")
    network = open_network(blocks, "all")
    cache = build_cache(files, network, SPEC, tmp_path / "cache")
    inputs = DecodedImages(files, network, SPEC)
    assert (len(inputs), inputs.n_views, inputs.ids) == (len(cache), cache.n_views, cache.ids)
    rows, views = np.array([5, 5, 0, 7]), np.array([0, 2, 1, 1])
    np.testing.assert_allclose(inputs.load(rows, views), cache.load(rows, views), atol=1e-3)


def test_a_network_without_a_trunk_needs_no_cache(blocks, photos, tmp_path):
    files = find_images(photos / "train")
    folder = tmp_path / "cache"
    whole, upper = open_network(blocks, "all"), open_network(blocks, "2")
    assert isinstance(open_inputs(files, whole, SPEC, folder), DecodedImages)
    assert not folder.exists()
    assert isinstance(open_inputs(files, upper, SPEC, folder), TrunkCache)


def test_unreadable_images_are_left_out(blocks, photos):
    (photos / "train" / "a" / "1.png").write_bytes(b"no image")
    files = find_images(photos / "train")
    inputs = DecodedImages(files, open_network(blocks, "all"), SPEC)
    assert [failure.id for failure in inputs.failures] == ["a/1.png"]
    assert inputs.ids == [file.id for file in files if file.id != "a/1.png"]
    with pytest.raises(InputError, match=r"a/1\.png"):
        DecodedImages([f for f in files if f.id == "a/1.png"], open_network(blocks, "all"), SPEC)


def test_prefetching_keeps_the_order_and_passes_errors_on():
    loaded = []
    for item, value in prefetched(range(4), lambda x: 10 * x):
        loaded.append((item, value))
    assert loaded == [(0, 0), (1, 10), (2, 20), (3, 30)]
    assert list(prefetched([], str)) == []
    with pytest.raises(ZeroDivisionError):
        list(prefetched([1, 0], lambda x: 1 / x))
