"""Activations on disk: right, resumed, refused when they belong to something else."""

import json
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from torch import nn

from rpml.deep import cache as module
from rpml.deep.backbones import open_network
from rpml.deep.cache import ImageSpec, TrunkCache, build_cache
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError
from rpml.vision.files import find_images
from rpml.vision.views import Views


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        blocks = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1))
    return open_network(blocks, "2")


SPEC = ImageSpec(16, Views(2))


def test_holds_what_the_trunk_gives(network, photos, tmp_path):
    files = find_images(photos / "train")
    cache = build_cache(files, network, SPEC, tmp_path / "cache")
    assert (len(cache), cache.n_views) == (24, 3)
    assert cache.ids == [file.id for file in files]
    tiles = SPEC.tiles(files[5])
    expected = network.trunk_maps(np.stack(tiles))
    found = cache.load(np.array([5, 5, 5]), np.arange(3)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert np.abs(found[0] - found[1]).max() > 0.01  # a view is not the image


def test_a_killed_run_goes_on(network, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 5)
    files = find_images(photos / "train")
    whole = build_cache(files, network, SPEC, tmp_path / "whole")
    told = []

    def kill(progress):
        told.append(progress.done)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_cache(files, network, SPEC, tmp_path / "cut", Context(report=kill))
    told.clear()
    again = build_cache(
        files, network, SPEC, tmp_path / "cut", Context(report=lambda p: told.append(p.done))
    )
    assert told[0] == 15  # two parts were there
    rows = np.arange(24)
    for view in range(3):
        one, other = (c.load(rows, np.full(24, view)) for c in (whole, again))
        assert torch.equal(one, other)


def test_a_finished_cache_is_not_computed_again(network, photos, tmp_path):
    files = find_images(photos / "train")
    build_cache(files, network, SPEC, tmp_path / "c")
    told = []
    build_cache(files, network, SPEC, tmp_path / "c", Context(report=told.append))
    assert told == []


def test_a_cache_of_something_else_is_refused(network, photos, tmp_path):
    files = find_images(photos / "train")
    build_cache(files, network, SPEC, tmp_path / "c")
    with pytest.raises(InputError, match="cache of images of another size"):
        build_cache(files, network, ImageSpec(24, Views(2)), tmp_path / "c")
    with pytest.raises(InputError, match="cache of other images"):
        build_cache(files[1:], network, SPEC, tmp_path / "c")
    os.utime(files[0].path, (0, 0))
    with pytest.raises(InputError, match="cache of images that have changed since"):
        build_cache(files, network, SPEC, tmp_path / "c")
    other = open_network(nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.ReLU()), "2")
    with pytest.raises(InputError, match="cache of another network"):
        build_cache(files, other, SPEC, tmp_path / "c")


def test_an_unreadable_image_is_left_out(network, photos, tmp_path):
    (photos / "train" / "a" / "0.png").write_bytes(b"no image")
    files = find_images(photos / "train")
    cache = build_cache(files, network, SPEC, tmp_path / "c")
    assert len(cache) == 23
    assert [failure.id for failure in cache.failures] == ["a/0.png"]
    assert cache.ids[0] == "a/1.png"
    expected = network.trunk_maps(np.stack(SPEC.tiles(files[1])))[0]
    np.testing.assert_allclose(cache.load(np.array([0]), np.array([0]))[0], expected, atol=2e-3)


def test_no_image_at_all(network, tmp_path):
    (tmp_path / "x.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="none of 1 image could"):
        build_cache(find_images(tmp_path / "x.png"), network, SPEC, tmp_path / "c")


def test_not_a_cache(tmp_path):
    with pytest.raises(InputError, match="not a finished cache"):
        TrunkCache(tmp_path)
    (tmp_path / "cache.json").write_text(json.dumps({"failures": []}))
    with pytest.raises(InputError, match="not a finished cache"):
        TrunkCache(tmp_path)


def test_too_little_space_is_said_before_anything_is_written(
    network, photos, tmp_path, monkeypatch
):
    usage = type(module.shutil.disk_usage(tmp_path))
    monkeypatch.setattr(module.shutil, "disk_usage", lambda folder: usage(9000, 0, 9000))
    with pytest.raises(InputError, match=r"24 images in 3 views need .* GB are free: take fewer"):
        build_cache(find_images(photos / "train"), network, SPEC, tmp_path / "cache")
    assert not any((tmp_path / "cache").iterdir())
