"""Activations on disk: right, resumed, refused when they belong to something else.

Images that are decoded while training are the same as cached ones, without a cache.
"""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from torch import nn

from rpml.deep import inputs as module
from rpml.deep.backbones import open_network
from rpml.deep.inputs import ImageSpec, decoded_images, open_inputs
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError
from rpml.vision.images import Views, find_images


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        blocks = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1))
    return open_network(blocks, "2")


SPEC = ImageSpec(16, Views(2))


def test_holds_what_the_trunk_gives(network, photos, tmp_path):
    files = find_images(photos / "train")
    cache = open_inputs(files, network, SPEC, tmp_path / "cache")
    assert (len(cache), cache.n_views) == (24, 3)
    assert cache.ids == [file.id for file in files]
    tiles = SPEC.tiles(files[5])
    expected = network.trunk_maps(np.stack(tiles))
    found = cache.load(np.array([5, 5, 5]), np.arange(3)).numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert np.abs(found[0] - found[1]).max() > 0.01  # a view is not the image


def test_a_killed_run_goes_on(network, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PART", 5)
    files = find_images(photos / "train")
    whole = open_inputs(files, network, SPEC, tmp_path / "whole")
    reported = []

    def kill(progress):
        reported.append(progress.done)
        if len(reported) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_inputs(files, network, SPEC, tmp_path / "cut", Context(report=kill))
    reported.clear()
    again = open_inputs(
        files, network, SPEC, tmp_path / "cut", Context(report=lambda p: reported.append(p.done))
    )
    assert reported[0] == 15  # two parts were there
    rows = np.arange(24)
    for view in range(3):
        one, other = (c.load(rows, np.full(24, view)) for c in (whole, again))
        assert torch.equal(one, other)


def test_a_finished_cache_is_not_computed_again(network, photos, tmp_path):
    files = find_images(photos / "train")
    open_inputs(files, network, SPEC, tmp_path / "c")
    reported = []
    open_inputs(files, network, SPEC, tmp_path / "c", Context(report=reported.append))
    assert reported == []


def test_a_cache_of_something_else_is_refused(network, photos, tmp_path):
    files = find_images(photos / "train")
    open_inputs(files, network, SPEC, tmp_path / "c")
    with pytest.raises(InputError, match="cache of other images, of another network"):
        open_inputs(files, network, ImageSpec(24, Views(2)), tmp_path / "c")
    with pytest.raises(InputError, match="cache of other images, of another network"):
        open_inputs(files[1:], network, SPEC, tmp_path / "c")
    os.utime(files[0].path, (0, 0))
    with pytest.raises(InputError, match="choose another folder, or remove it"):
        open_inputs(files, network, SPEC, tmp_path / "c")
    other = open_network(nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.ReLU()), "2")
    with pytest.raises(InputError, match="cache of other images, of another network"):
        open_inputs(files, other, SPEC, tmp_path / "c")


def test_an_unreadable_image_is_left_out(network, photos, tmp_path):
    (photos / "train" / "a" / "0.png").write_bytes(b"no image")
    files = find_images(photos / "train")
    cache = open_inputs(files, network, SPEC, tmp_path / "c")
    assert len(cache) == 23
    assert [name for name, _ in cache.failures] == ["a/0.png"]
    assert cache.ids[0] == "a/1.png"
    expected = network.trunk_maps(np.stack(SPEC.tiles(files[1])))[0]
    np.testing.assert_allclose(cache.load(np.array([0]), np.array([0]))[0], expected, atol=2e-3)


def test_no_image_at_all(network, tmp_path):
    (tmp_path / "x.png").write_bytes(b"no image")
    with pytest.raises(InputError, match="none of 1 image could"):
        open_inputs(find_images(tmp_path / "x.png"), network, SPEC, tmp_path / "c")


def test_a_damaged_part_is_computed_again(network, photos, tmp_path):
    files = find_images(photos / "train")
    cache = open_inputs(files, network, SPEC, tmp_path / "c")
    rows, views = np.arange(24), np.full(24, 1)
    before = cache.load(rows, views)
    (part,) = (tmp_path / "c").iterdir()
    part.write_bytes(part.read_bytes()[:-100])
    again = open_inputs(files, network, SPEC, tmp_path / "c")
    assert torch.equal(again.load(rows, views), before)


@pytest.fixture
def blocks():
    return nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1))


def test_decoded_images_are_what_the_network_takes(blocks, photos):
    files = find_images(photos / "train")
    network = open_network(blocks, "all")
    inputs = decoded_images(files, network, SPEC)
    assert (len(inputs), inputs.n_views, inputs.ids) == (24, 3, [file.id for file in files])
    rows, views = np.array([5, 5, 0, 7]), np.array([0, 2, 1, 1])
    tiles = [SPEC.tiles(files[i])[view] for i, view in zip(rows, views, strict=True)]
    np.testing.assert_array_equal(inputs.load(rows, views), network.trunk_maps(np.stack(tiles)))


def test_a_network_without_a_trunk_needs_no_cache(blocks, photos, tmp_path):
    files = find_images(photos / "train")
    folder = tmp_path / "cache"
    whole, upper = open_network(blocks, "all"), open_network(blocks, "2")
    assert len(open_inputs(files, whole, SPEC, folder)) == len(files)
    assert not folder.exists()
    assert len(open_inputs(files, upper, SPEC, folder)) == len(files)
    assert (folder / "trunk-000000000.safetensors").is_file()


def test_unreadable_images_are_left_out(blocks, photos):
    (photos / "train" / "a" / "1.png").write_bytes(b"no image")
    files = find_images(photos / "train")
    inputs = decoded_images(files, open_network(blocks, "all"), SPEC)
    assert [name for name, _ in inputs.failures] == ["a/1.png"]
    assert inputs.ids == [file.id for file in files if file.id != "a/1.png"]
    with pytest.raises(InputError, match=r"a/1\.png"):
        decoded_images([f for f in files if f.id == "a/1.png"], open_network(blocks, "all"), SPEC)
