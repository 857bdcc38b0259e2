"""GoogLeNet in torch as named blocks, with the weights of an ONNX file."""

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from rpml.runtime.errors import InputError
from rpml.runtime.extras import require

Weights = Mapping[str, NDArray[np.floating]]

# 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection
_INCEPTIONS = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
_POOL_BEFORE = ("4a", "5a")


class Convolution(nn.Conv2d):
    """A convolution that preserves the size (at stride 1), followed by ReLU."""

    def __init__(self, in_channels: int, out_channels: int, size: int, stride: int = 1) -> None:
        super().__init__(in_channels, out_channels, size, stride, padding=size // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(super().forward(x))


class Inception(nn.Module):
    """Four parallel branches: 1x1, 3x3, 5x5 and a projected max-pool."""

    def __init__(self, in_channels: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        one, reduce3, three, reduce5, five, projection = widths
        self.branch_1x1 = Convolution(in_channels, one, 1)
        self.branch_3x3_reduce = Convolution(in_channels, reduce3, 1)
        self.branch_3x3 = Convolution(reduce3, three, 3)
        self.branch_5x5_reduce = Convolution(in_channels, reduce5, 1)
        self.branch_5x5 = Convolution(reduce5, five, 5)
        self.branch_pool_proj = Convolution(in_channels, projection, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branches = [
            self.branch_1x1(x),
            self.branch_3x3(self.branch_3x3_reduce(x)),
            self.branch_5x5(self.branch_5x5_reduce(x)),
            self.branch_pool_proj(F.max_pool2d(x, 3, stride=1, padding=1)),
        ]
        return torch.cat(branches, dim=1)


class CaffeInput(nn.Module):
    """Converts RGB in 0..1 to BGR in 0..255 and subtracts the mean of the training images."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(1) * 255.0 - self.mean


class ResponseNorm(nn.Module):
    """x / (1 + alpha/5 * sum of x^2 over 5 neighboring channels)^(3/4), with alpha = 1e-4.

    torch's LocalResponseNorm would take most of the network's time on a CPU.
    """

    ALPHA = 1e-4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squares = F.pad(x * x, (0, 0, 0, 0, 2, 2))
        channels = x.shape[1]
        total = squares[:, :channels].clone()
        for shift in range(1, 5):
            total += squares[:, shift : shift + channels]
        root = total.mul_(self.ALPHA / 5).add_(1.0).rsqrt_()
        return x * root * root.sqrt()


def halve() -> nn.Module:
    """Return the 3x3 max-pool between the stages, which rounds sizes up as in Caffe."""
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)


def googlenet() -> nn.Sequential:
    """Return the untrained network up to its last feature map, (n, 1024, h / 32, w / 32)."""
    blocks: dict[str, nn.Module] = {
        "input": CaffeInput(),
        "conv1": nn.Sequential(Convolution(3, 64, 7, 2), halve(), ResponseNorm()),
        "conv2": nn.Sequential(
            Convolution(64, 64, 1), Convolution(64, 192, 3), ResponseNorm(), halve()
        ),
    }
    channels = 192
    for name, widths in _INCEPTIONS.items():
        if name in _POOL_BEFORE:
            blocks[f"pool_{name}"] = halve()
        blocks[f"inception_{name}"] = Inception(channels, widths)
        one, _, three, _, five, projection = widths
        channels = one + three + five + projection
    return nn.Sequential(OrderedDict(blocks))


def load_googlenet(path: str | Path) -> nn.Sequential:
    """Return GoogLeNet with the weights of an ONNX file that uses Caffe's names."""
    return fill(googlenet(), read_weights(path), path)


def read_weights(path: str | Path) -> dict[str, NDArray[np.floating]]:
    """Return the initializers of an ONNX file by name, with ``_`` for ``/``."""
    onnx = require("onnx", "vision", "reading an ONNX backbone")
    numpy_helper = require("onnx.numpy_helper", "vision", "reading an ONNX backbone")
    try:
        graph = onnx.load(str(path)).graph
    except FileNotFoundError:
        raise InputError(f"cannot read the backbone {path}: there is no such file") from None
    except Exception as error:  # protobuf's errors share no public base
        raise InputError(f"{path} is not an ONNX network") from error
    return {i.name.replace("/", "_"): numpy_helper.to_array(i) for i in graph.initializer}


def fill(network: nn.Sequential, weights: Weights, path: str | Path) -> nn.Sequential:
    """Copy the weights into the network; InputError for missing weights and other shapes."""
    for key, tensor in network.state_dict().items():
        name = _onnx_name(key)
        weight = weights.get(name)
        if weight is None and name == "mean":
            continue  # the input convention subtracts the mean
        if weight is None or weight.shape != tuple(tensor.shape):
            shape = "missing" if weight is None else f"of shape {weight.shape}"
            raise InputError(
                f"{path} does not hold GoogLeNet: the weight {name} is {shape}, not of shape "
                f"{tuple(tensor.shape)}"
            )
        tensor.copy_(torch.from_numpy(weight.astype(np.float32)))
    return network.eval()


_STEM = {"conv1.0": "conv1_7x7_s2", "conv2.0": "conv2_3x3_reduce", "conv2.1": "conv2_3x3"}


def _onnx_name(key: str) -> str:
    """Convert inception_3a.branch_1x1.weight to inception_3a_1x1_w."""
    owner, _, kind = key.rpartition(".")
    if kind == "mean":
        return kind
    owner = _STEM.get(owner, owner.replace(".branch_", "_"))
    return f"{owner}_{kind[0]}"
