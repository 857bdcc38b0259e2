"""From activations to the embedding: upper blocks, pooling, a fixed whitening, the projection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import normalize

from rpml.deep.cache import Inputs
from rpml.estimator import RPML
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.errors import InputError

POOLINGS = ("mac", "average", "gem")
_GEM_POWER = 3.0
_BLOCK = 256  # images in a forward pass without gradients


class Pool(nn.Module):
    """A feature map's maximum, mean or generalised mean; vectors stay as they are."""

    def __init__(self, kind: str = "mac") -> None:
        super().__init__()
        if kind not in POOLINGS:
            raise InputError(f"pooling must be one of {', '.join(POOLINGS)}, got {kind!r}")
        self.kind = kind

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        if maps.ndim == 2:
            return maps
        if self.kind == "mac":
            return maps.amax((2, 3))
        if self.kind == "average":
            return maps.mean((2, 3))
        power = maps.clamp(min=1e-6).pow(_GEM_POWER).mean((2, 3))
        return power.pow(1 / _GEM_POWER)


class Embedder(nn.Module):
    """x = l2((l2(pool(upper(maps))) - mean) @ matrix), embedded as l2(x @ projection).

    Parameters
    ----------
    upper : nn.Module
        The blocks that train.
    pool : str
        "mac", "average" or "gem".
    whitening : Preprocessing
        Learned from the frozen features and kept.
    projection : (p, l) array
        Where L starts.
    mixed : bool
        Convolutions in bfloat16: twice as fast where the processor has it.
    """

    mean: torch.Tensor
    matrix: torch.Tensor

    def __init__(
        self,
        upper: nn.Module,
        pool: str,
        whitening: Preprocessing,
        projection: NDArray[np.floating],
        mixed: bool = False,
    ) -> None:
        super().__init__()
        self.upper, self.pool, self.mixed = upper, Pool(pool), mixed
        self.register_buffer("mean", torch.as_tensor(whitening.mean, dtype=torch.float32))
        self.register_buffer("matrix", torch.as_tensor(whitening.matrix, dtype=torch.float32))
        self.projection = nn.Parameter(torch.tensor(projection, dtype=torch.float32))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def pooled(self, maps: torch.Tensor) -> torch.Tensor:
        """The network's own descriptors, before whitening."""
        if maps.ndim == 4:
            maps = maps.contiguous(memory_format=torch.channels_last)
        with torch.autocast(maps.device.type, torch.bfloat16, enabled=self.mixed):
            out = self.upper(maps)
        return torch.as_tensor(self.pool(out.float()))

    def features(self, maps: torch.Tensor) -> torch.Tensor:
        """Whitened unit rows: what the method calls x."""
        return self.whiten(self.pooled(maps))

    def whiten(self, pooled: torch.Tensor) -> torch.Tensor:
        """Whitened unit rows of descriptors."""
        return normalize((normalize(pooled) - self.mean) @ self.matrix)

    def embed(self, features: torch.Tensor) -> torch.Tensor:
        """Unit rows of the embedding."""
        return normalize(features @ self.projection)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.embed(self.features(maps))


class Descriptors(nn.Module):
    """An embedder's descriptors before the whitening, as a network of its own."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.embedder.pooled(maps)


def descriptors(
    network: nn.Module, inputs: Inputs, view: int, device: str = "cpu"
) -> NDArray[np.float32]:
    """What a network gives for one view of every image, without gradients."""
    found = []
    with torch.inference_mode():
        for rows in _blocks(len(inputs)):
            maps = inputs.load(rows, np.full(len(rows), view)).to(device)
            found.append(network(maps).float().cpu().numpy())
    return np.concatenate(found)


def _blocks(n: int) -> Iterator[NDArray[np.intp]]:
    for start in range(0, n, _BLOCK):
        yield np.arange(start, min(n, start + _BLOCK))


def linear_start(pooled: NDArray[Any], dim: int, seed: int) -> RPML:
    """The frozen linear RPML: every method starts from its whitening and its projection."""
    return RPML(dim, random_state=seed).fit(pooled)
