"""Tiny ONNX networks and image folders, made on the spot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

CHANNELS = 6


def save_network(path: Path, node: onnx.NodeProto, shape: list[int | str]) -> Path:
    """A network of one operator that keeps the shape."""
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name in (node.input[0], node.output[0])
    ]
    graph = helper.make_graph([node], "one", *ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, path)
    return path


def tiny_network(
    path: Path,
    *,
    names: tuple[str, str] = ("image", "feature_map"),
    size: tuple[int | str, int | str] = ("h", "w"),
    batch: int | str = "n",
    stride: int = 8,
) -> Path:
    """One convolution and a ReLU: image -> (n, 6, h / stride, w / stride)."""
    weights = np.random.default_rng(0).standard_normal((CHANNELS, 3, stride, stride))
    graph = helper.make_graph(
        [
            helper.make_node("Conv", [names[0], "kernel"], ["c"], strides=[stride, stride]),
            helper.make_node("Relu", ["c"], [names[1]]),
        ],
        "tiny",
        [helper.make_tensor_value_info(names[0], TensorProto.FLOAT, [batch, 3, *size])],
        [helper.make_tensor_value_info(names[1], TensorProto.FLOAT, [batch, CHANNELS, "a", "b"])],
        [numpy_helper.from_array((weights / stride).astype(np.float32), "kernel")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, path)
    return path


def noise_image(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_network(tmp_path_factory.mktemp("network") / "tiny.onnx")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two folders of small pictures in several shapes."""
    shapes = [(40, 30), (30, 40), (40, 40), (64, 20), (41, 30)]
    for folder in ("train/a", "train/b", "test/c"):
        (tmp_path / "photos" / folder).mkdir(parents=True)
        for i, size in enumerate(shapes):
            seed = len(folder) * 100 + ord(folder[-1]) + i
            noise_image(seed, size).save(tmp_path / "photos" / folder / f"{i}.png")
    return tmp_path / "photos"
