"""LRN as fast operators gives the maps of onnxruntime's own LRN."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from rpml.vision.backbone import Backbone
from rpml.vision.normalization import with_fast_normalization
from tests.vision.conftest import save_network

IMAGES = np.random.default_rng(0).integers(0, 256, (2, 32, 40, 3), np.uint8)


def lrn_network(path: Path, channels: int | str = 3, **settings: Any) -> Path:
    """The pixels, normalized over their channels."""
    node = helper.make_node("LRN", ["image"], ["feature_map"], **settings)
    return save_network(path, node, ["n", channels, "h", "w"])


def run(network: bytes | str, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    return session.run(["feature_map"], {"image": x})[0]


@pytest.mark.parametrize("size", [1, 3, 5, 9])
@pytest.mark.parametrize("channels", [1, 3, 11])
def test_equals_the_operator(tmp_path: Path, size: int, channels: int) -> None:
    path = lrn_network(tmp_path / "n.onnx", channels, size=size, alpha=0.3, bias=1.7)
    x = np.random.default_rng(size).normal(size=(2, channels, 5, 7)).astype(np.float32)
    fast = with_fast_normalization(path)
    assert fast is not None
    assert not any(node.op_type == "LRN" for node in onnx.load_from_string(fast).graph.node)
    assert np.allclose(run(fast, x), run(str(path), x), rtol=1e-5, atol=1e-6)


def test_the_backbone_uses_it(tmp_path: Path) -> None:
    path = lrn_network(tmp_path / "n.onnx", size=3, alpha=2.0)
    plain = run(str(path), (IMAGES / 255).astype(np.float32).transpose(0, 3, 1, 2))
    assert np.allclose(Backbone(path)(IMAGES), plain.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)


def test_what_is_left_alone(tmp_path: Path, network: Path) -> None:
    assert with_fast_normalization(network) is None  # no LRN in it
    for name, channels, settings in (("beta", 3, {"beta": 0.5}), ("unknown", "c", {})):
        path = lrn_network(tmp_path / f"{name}.onnx", channels, size=3, **settings)
        kept = with_fast_normalization(path)
        assert kept is not None
        assert [n.op_type for n in onnx.load_from_string(kept).graph.node] == ["LRN"]
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    assert with_fast_normalization(tmp_path / "noise.onnx") is None
    assert with_fast_normalization(tmp_path / "absent.onnx") is None


def test_without_the_onnx_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lrn_network(tmp_path / "n.onnx", size=3, alpha=2.0)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert with_fast_normalization(path) is None
    assert Backbone(path)(IMAGES).shape == (2, 32, 40, 3)
