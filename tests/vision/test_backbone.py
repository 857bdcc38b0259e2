"""Backbones: conventions, sidecars, graphs that do not fit, and fast LRN."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from rpml.runtime.errors import InputError
from rpml.vision.backbone import Backbone, Convention, read_convention, with_fast_normalization
from tests.vision.conftest import CHANNELS, save_network, tiny_network

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 32, 48, 3), np.uint8)


def identity_network(path: Path, shape: list[int | str]) -> Path:
    """Gives back what it is given, so that the convention can be seen."""
    return save_network(path, helper.make_node("Identity", ["pixels"], ["same"]), shape)


def test_default_convention(network: Path) -> None:
    maps = Backbone(network)(IMAGES)
    assert maps.shape == (3, 4, 6, CHANNELS)
    kernel = onnx.numpy_helper.to_array(onnx.load(network).graph.initializer[0])
    patch = IMAGES[1, 8:16, 16:24] / 255
    expected = np.maximum(np.einsum("ocij,ijc->o", kernel, patch), 0)
    assert np.allclose(maps[1, 1, 2], expected, atol=1e-5)


def test_a_batch_equals_its_images_one_by_one(network: Path) -> None:
    backbone = Backbone(network)
    alone = np.concatenate([backbone(IMAGES[i : i + 1]) for i in range(3)])
    assert np.allclose(backbone(IMAGES), alone, atol=1e-6)


@pytest.mark.parametrize("kind", ["json", "toml"])
def test_sidecar(tmp_path: Path, kind: str) -> None:
    path = identity_network(tmp_path / "net.onnx", ["n", 3, "h", "w"])
    settings = {"input": "pixels", "output": "same", "color": "BGR", "white": 255.0}
    settings |= {"mean": [1.0, 2.0, 3.0], "std": [2.0, 2.0, 4.0]}
    lines = (f"{k} = {json.dumps(v)}" for k, v in settings.items())
    text = json.dumps(settings) if kind == "json" else "\n".join(lines)
    (tmp_path / f"net.{kind}").write_text(text)
    seen = Backbone(path)(IMAGES)
    assert np.allclose(seen, (IMAGES[..., ::-1] - np.array([1, 2, 3])) / [2, 2, 4], atol=1e-4)


def test_channels_last(tmp_path: Path) -> None:
    path = identity_network(tmp_path / "net.onnx", ["n", "h", "w", 3])
    (tmp_path / "net.toml").write_text('input="pixels"\noutput="same"\nlayout="NHWC"\n')
    assert np.allclose(Backbone(path)(IMAGES), IMAGES / 255, atol=1e-6)


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_fixed_sizes_are_found_and_batches_cut_or_filled(
    tmp_path: Path, network: Path, batch: int
) -> None:
    path = tiny_network(tmp_path / "fixed.onnx", size=(32, 48), batch=batch)
    backbone = Backbone(path)
    assert backbone.fixed_size == (48, 32)
    assert np.allclose(backbone(IMAGES), Backbone(network)(IMAGES), atol=1e-6)


def test_unknown_names_are_listed(tmp_path: Path) -> None:
    path = tiny_network(tmp_path / "other.onnx", names=("pixels", "maps"))
    with pytest.raises(InputError, match=r"it has 'pixels'.*other\.toml, input = \"pixels\""):
        Backbone(path)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Backbone(tmp_path / "absent.onnx")
    (tmp_path / "noise.onnx").write_bytes(b"not a network")
    with pytest.raises(InputError, match="not an ONNX network"):
        Backbone(tmp_path / "noise.onnx")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('colour = "RGB"', "no setting 'colour'"),
        ('color = "GBR"', "RGB or BGR"),
        ("std = [1, 0, 1]", "positive"),
        ("mean = [1, 2]", "three numbers"),
        ("mean = 3", "cannot use"),
        ("= nonsense", "cannot use"),
    ],
)
def test_bad_sidecars(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_convention(tmp_path / "a.toml")


def test_output_must_be_a_map(tmp_path: Path) -> None:
    path = identity_network(tmp_path / "flat.onnx", ["n", 3])
    (tmp_path / "flat.toml").write_text('input="pixels"\noutput="same"\n')
    with pytest.raises(InputError, match="four dimensions"):
        Backbone(path)


def test_fingerprint_changes_with_file_and_convention(tmp_path: Path, network: Path) -> None:
    same = Backbone(network).fingerprint()
    assert same == Backbone(network).fingerprint()
    (tmp_path / "bgr.onnx").write_bytes(network.read_bytes())
    assert Backbone(tmp_path / "bgr.onnx").fingerprint() == same
    (tmp_path / "bgr.toml").write_text('color = "BGR"')
    assert Backbone(tmp_path / "bgr.onnx").fingerprint() != same
    assert Convention().min_side == 32


def lrn_network(path: Path, channels: int | str = 3, **settings: Any) -> Path:
    """The pixels, normalized over their channels."""
    node = helper.make_node("LRN", ["image"], ["feature_map"], **settings)
    return save_network(path, node, ["n", channels, "h", "w"])


def run_network(network: bytes | str, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    return session.run(["feature_map"], {"image": x})[0]


@pytest.mark.parametrize("size", [1, 3, 5, 9])
@pytest.mark.parametrize("channels", [1, 3, 11, "c"])
def test_fast_normalization_equals_the_operator(tmp_path: Path, size: int, channels: Any) -> None:
    path = lrn_network(tmp_path / "n.onnx", channels, size=size, alpha=0.3, bias=1.7)
    shape = (2, 4 if channels == "c" else channels, 5, 7)
    x = np.random.default_rng(size).normal(size=shape).astype(np.float32)
    fast = with_fast_normalization(path)
    assert fast is not None
    assert not any(node.op_type == "LRN" for node in onnx.load_from_string(fast).graph.node)
    assert np.allclose(run_network(fast, x), run_network(str(path), x), rtol=1e-5, atol=1e-6)


def test_the_backbone_uses_fast_normalization(tmp_path: Path) -> None:
    path = lrn_network(tmp_path / "n.onnx", size=3, alpha=2.0)
    plain = run_network(str(path), (IMAGES / 255).astype(np.float32).transpose(0, 3, 1, 2))
    assert np.allclose(Backbone(path)(IMAGES), plain.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)


def test_normalization_that_is_left_alone(tmp_path: Path, network: Path) -> None:
    assert with_fast_normalization(network) is None  # no LRN in it
    assert with_fast_normalization(lrn_network(tmp_path / "b.onnx", size=3, beta=0.5)) is None
    old = onnx.load(lrn_network(tmp_path / "old.onnx", size=3))
    old.opset_import[0].version = 12
    onnx.save(old, tmp_path / "old.onnx")
    assert with_fast_normalization(tmp_path / "old.onnx") is None
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    assert with_fast_normalization(tmp_path / "noise.onnx") is None
    assert with_fast_normalization(tmp_path / "absent.onnx") is None


def test_without_the_onnx_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lrn_network(tmp_path / "n.onnx", size=3, alpha=2.0)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert with_fast_normalization(path) is None
    assert Backbone(path)(IMAGES).shape == IMAGES.shape
