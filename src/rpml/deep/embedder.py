"""From activations to the embedding: upper blocks, pooling, a fixed whitening, a projection.

Also the linear RPML that it starts from, and descriptors of images and views without gradients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from rpml.estimator import RPML
from rpml.evaluation.metrics.label_free import neighbor_overlap
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.whitening.linear_map import Preprocessing
from rpml.runtime.context import Context, Progress
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, Floats, Indices, slices, unit_rows
from rpml.vision.extract import Failure

POOLINGS = ("mac", "average", "gem")
_GEM_POWER = 3.0
_BLOCK = 256  # images per forward pass
_SAMPLE = 500  # images for the label-free score


@dataclass(frozen=True)
class MultiViewDataset:
    """The inputs of training: `n_views` views per image, the first being the image itself."""

    n_images: int
    n_views: int
    load: Callable[[Indices, Indices], torch.Tensor]
    """(rows, views) -> a batch: view ``views[i]`` of image ``rows[i]``."""
    ids: Sequence[str] = ()
    failures: Sequence[Failure] = ()
    """Images that were skipped."""

    def __len__(self) -> int:
        return self.n_images


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
        projection: Array,
        bf16: bool = False,
    ) -> None:
        super().__init__()
        if pool not in POOLINGS:
            raise InputError(f"pooling must be one of {', '.join(POOLINGS)}, got {pool!r}")
        self.upper, self.pool, self.bf16 = upper, pool, bf16
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
        return pool_maps(out.float(), self.pool)

    def whiten(self, pooled: torch.Tensor) -> torch.Tensor:
        return normalize((normalize(pooled) - self.mean) @ self.matrix)

    def features(self, maps: torch.Tensor) -> torch.Tensor:
        """Return whitened unit rows (the x of the method)."""
        return self.whiten(self.pooled(maps))

    def embed(self, features: torch.Tensor) -> torch.Tensor:
        return normalize(features @ self.projection)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.embed(self.features(maps))


def pool_maps(maps: torch.Tensor, kind: str) -> torch.Tensor:
    """Maximum, mean or generalized mean of feature maps; vectors are returned unchanged."""
    if maps.ndim == 2:
        return maps
    if kind == "mac":
        return maps.amax((2, 3))
    if kind == "average":
        return maps.mean((2, 3))
    return maps.clamp(min=1e-6).pow(_GEM_POWER).mean((2, 3)).pow(1 / _GEM_POWER)


def has_bf16() -> bool:
    """Whether the device computes in bfloat16; emulating it takes ten times as long."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def linear_start(frozen: Array, dim: int, seed: int) -> RPML:
    """Fit the linear RPML whose whitening and projection all methods start from.

    `frozen` (n_images, n_views, n_channels) are the descriptors before training. The views of an
    image are a group: how they differ says which directions to whiten.
    """
    n_images, n_views, n_channels = frozen.shape
    groups = np.repeat(np.arange(n_images), n_views) if n_views > 1 else None
    return RPML(dim, random_state=seed).fit(frozen.reshape(-1, n_channels), groups=groups)


def descriptors(
    embedder: Embedder,
    inputs: MultiViewDataset,
    view: int = 0,
    stage: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Floats:
    """Return the embedding of one view of every image, or the output of an earlier stage of it."""
    outputs = []
    with torch.inference_mode():
        for part in slices(len(inputs), _BLOCK):
            rows = np.arange(part.start, part.stop)
            maps = inputs.load(rows, np.full(len(rows), view)).to(embedder.mean.device)
            outputs.append((stage or embedder)(maps).float().cpu().numpy())
    return np.concatenate(outputs)


def frozen_descriptors(
    embedder: Embedder, inputs: MultiViewDataset, context: Context | None = None
) -> Floats:
    """Return pooled descriptors of all views before training, (n_images, n_views, n_channels)."""
    context, views = context or Context(), []
    with context.reporting("frozen"):
        if saved := context.load("frozen", context.key()):
            return saved[0]["frozen"]
        for view in range(inputs.n_views):
            context.report(Progress("frozen", view, inputs.n_views))
            views.append(descriptors(embedder, inputs, view, embedder.pooled))
        frozen = np.stack(views, axis=1)
        context.save("frozen", {"frozen": frozen}, key=context.key())
    return frozen


def mean_features(embedder: Embedder, frozen: Array) -> Floats:
    """Return whitened features of each image, averaged over its views; unit rows."""
    n, n_views, d = frozen.shape
    with torch.no_grad():
        rows = torch.from_numpy(np.asarray(frozen, np.float32).reshape(n * n_views, d))
        x = embedder.whiten(rows.to(embedder.mean.device)).cpu().numpy()
    return np.asarray(unit_rows(x.reshape(n, n_views, -1).mean(1)), np.float32)


def view_agreement(embedder: Embedder, inputs: MultiViewDataset) -> float:
    """Return the share of the ten nearest images that two views of an image have in common.

    This label-free score falls if the features forget what images share, if they collapse, and if
    every image is pushed away from all others.
    """
    if inputs.n_views < 2:
        return 0.0
    neighbors = []
    sample = np.linspace(0, len(inputs) - 1, min(_SAMPLE, len(inputs))).astype(np.intp)
    k = min(10, len(sample) - 1)
    for view in (0, 1):
        with torch.inference_mode():
            maps = inputs.load(sample, np.full(len(sample), view))
            Z = embedder(maps.to(embedder.mean.device)).cpu().numpy()
        neighbors.append(nearest_neighbors(Z, k, metric="cosine").indices)
    return float(neighbor_overlap(neighbors[0], neighbors[1], k).mean())
