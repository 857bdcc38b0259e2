"""The trained network and its embedding as one ONNX file that `rpml features` accepts."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from rpml.deep.backbones import Network
from rpml.deep.embedder import Embedder
from rpml.runtime.atomic import atomic_output
from rpml.runtime.extras import require
from rpml.vision.backbone import Convention

OPSET = 17


class _Whole(nn.Module):
    """Image -> embedding as a 1 x 1 feature map, which every pooling leaves unchanged."""

    def __init__(self, trunk: nn.Module, embedder: Embedder) -> None:
        super().__init__()
        self.trunk, self.embedder = trunk, embedder

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        embedding: torch.Tensor = self.embedder(self.trunk(image))
        return embedding[:, :, None, None]


def write_onnx(network: Network, embedder: Embedder, size: int, path: str | Path) -> None:
    """Write the ONNX file, and a sidecar with the input convention if it is not the default.

    Parameters
    ----------
    network : Network
        The network whose trunk the embedder was trained on.
    embedder : Embedder
        The trained embedder.
    size : int
        Height and width of the images in training.
    path : str or Path
        The .onnx file.
    """
    require("onnx", "vision", "ONNX export")
    whole = _Whole(network.trunk, embedder.cpu()).eval()
    bf16, embedder.bf16 = embedder.bf16, False
    try:
        with atomic_output(path) as temporary, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter about itself
            torch.onnx.export(
                whole,
                (torch.zeros(1, 3, size, size),),
                str(temporary),
                input_names=["image"],
                output_names=["feature_map"],
                dynamic_axes={"image": {0: "images"}, "feature_map": {0: "images"}},
                opset_version=OPSET,
                dynamo=False,  # the other exporter needs one more package
            )
    finally:
        embedder.bf16 = bf16
    sidecar = Path(path).with_suffix(".json")
    if network.convention != Convention():
        written = {**asdict(network.convention), "input": "image", "output": "feature_map"}
        with atomic_output(sidecar) as temporary:
            temporary.write_text(json.dumps(written, indent=2) + "\n", encoding="utf8")
