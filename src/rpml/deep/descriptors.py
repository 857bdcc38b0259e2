"""Descriptors of images and views by a network, without gradients."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rpml.deep.embedder import Embedder
from rpml.evaluation.metrics.label_free import neighbor_overlap
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.context import Arrays, Context, Progress
from rpml.runtime.rows import unit_rows
from rpml.runtime.schema import ArraySpec, Schema

Indices = NDArray[np.intp]
_BLOCK = 256  # images per forward pass
_SAMPLE = 500  # images for the label-free score


class MultiViewDataset(Protocol):
    """The inputs of training: `n_views` views per image, the first being the image itself."""

    n_views: int

    def __len__(self) -> int: ...

    def load(self, rows: Indices, views: Indices) -> torch.Tensor:
        """Return a batch: view ``views[i]`` of image ``rows[i]``."""


class PooledDescriptors(nn.Module):
    """The descriptors of an embedder before the whitening."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.embedder.pooled(maps)


def descriptors(network: nn.Module, inputs: MultiViewDataset, view: int) -> NDArray[np.float32]:
    """Return the output of a network for one view of every image, on the network's device."""
    device, outputs = next(network.parameters()).device, []
    with torch.inference_mode():
        for rows in _blocks(len(inputs)):
            maps = inputs.load(rows, np.full(len(rows), view)).to(device)
            outputs.append(network(maps).float().cpu().numpy())
    return np.concatenate(outputs)


def _blocks(n: int) -> Iterator[Indices]:
    for start in range(0, n, _BLOCK):
        yield np.arange(start, min(n, start + _BLOCK))


def frozen_descriptors(
    embedder: Embedder, inputs: MultiViewDataset, context: Context | None = None
) -> NDArray[np.float32]:
    """Return pooled descriptors of all views before training, (n_images, n_views, n_channels)."""
    context = context or Context()

    def compute() -> Arrays:
        views = []
        for view in range(inputs.n_views):
            context.report(Progress("frozen", view, inputs.n_views))
            views.append(descriptors(PooledDescriptors(embedder), inputs, view))
        return {"frozen": np.stack(views, axis=1)}

    shape = (len(inputs), inputs.n_views, "channels")
    return context.stage("frozen", Schema({"frozen": ArraySpec("f", shape)}), compute)["frozen"]


def mean_features(embedder: Embedder, frozen: NDArray[np.floating]) -> NDArray[np.float32]:
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
