"""From activations to the embedding: upper blocks, pooling, a fixed whitening, a projection."""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import normalize

from rpml.estimator import RPML
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.errors import InputError

POOLINGS = ("mac", "average", "gem")
_GEM_POWER = 3.0


class Pool(nn.Module):
    """Maximum, mean or generalized mean of a feature map; vectors are returned unchanged."""

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

    The blocks `upper` and the projection, which starts at L, are trained; the whitening (mean,
    matrix) is that of the descriptors before training. `bf16` computes the convolutions in
    bfloat16, about twice as fast on processors that support it.
    """

    mean: torch.Tensor
    matrix: torch.Tensor

    def __init__(
        self,
        upper: nn.Module,
        pool: str,
        whitening: Preprocessing,
        projection: NDArray[np.floating],
        bf16: bool = False,
    ) -> None:
        super().__init__()
        self.upper, self.pool, self.bf16 = upper, Pool(pool), bf16
        self.register_buffer("mean", torch.as_tensor(whitening.mean, dtype=torch.float32))
        self.register_buffer("matrix", torch.as_tensor(whitening.matrix, dtype=torch.float32))
        self.projection = nn.Parameter(torch.tensor(projection, dtype=torch.float32))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def pooled(self, maps: torch.Tensor) -> torch.Tensor:
        """Return descriptors before whitening."""
        if maps.ndim == 4:
            maps = maps.contiguous(memory_format=torch.channels_last)
        with torch.autocast(maps.device.type, torch.bfloat16, enabled=self.bf16):
            out = self.upper(maps)
        return torch.as_tensor(self.pool(out.float()))

    def features(self, maps: torch.Tensor) -> torch.Tensor:
        """Return whitened unit rows (the x of the method)."""
        return self.whiten(self.pooled(maps))

    def whiten(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return the whitened unit rows of descriptors."""
        return normalize((normalize(pooled) - self.mean) @ self.matrix)

    def embed(self, features: torch.Tensor) -> torch.Tensor:
        """Return unit rows of the embedding."""
        return normalize(features @ self.projection)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.embed(self.features(maps))


def has_bf16() -> bool:
    """Whether the device computes in bfloat16; emulating it takes ten times as long."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def warn_if_emulated(bf16: bool) -> None:
    """Warn if bfloat16 would be emulated."""
    if bf16 and not has_bf16():
        warnings.warn(
            "this processor has no arithmetic in bfloat16: training is faster without --bf16",
            stacklevel=2,
        )


def linear_start(frozen: NDArray[np.floating], dim: int, seed: int) -> RPML:
    """Fit the linear RPML whose whitening and projection all methods start from.

    `frozen` (n_images, n_views, n_channels) are the descriptors before training. The views of an
    image are a group: how they differ says which directions to whiten.
    """
    n_images, n_views, n_channels = frozen.shape
    groups = np.repeat(np.arange(n_images), n_views)
    return RPML(dim, random_state=seed).fit(frozen.reshape(-1, n_channels), groups=groups)
