"""Descriptors of images and views by a network, without gradients."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rpml.deep.embedder import Embedder
from rpml.deep.samplers import Indices
from rpml.evaluation.metrics.label_free import neighbor_overlap
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.context import Arrays, Context, Progress
from rpml.runtime.rows import slices, unit_rows
from rpml.runtime.schema import ArraySpec, Schema

_BLOCK = 256  # images per forward pass
_SAMPLE = 500  # images for the label-free score


class MultiViewDataset(Protocol):
    """The inputs of training: `n_views` views per image, the first being the image itself."""

    n_views: int

    def __len__(self) -> int: ...

    def load(self, rows: Indices, views: Indices) -> torch.Tensor:
        """Return a batch: view ``views[i]`` of image ``rows[i]``."""


def descriptors(
    embedder: Embedder,
    inputs: MultiViewDataset,
    view: int,
    stage: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> NDArray[np.float32]:
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
) -> NDArray[np.float32]:
    """Return pooled descriptors of all views before training, (n_images, n_views, n_channels)."""
    context = context or Context()

    def compute() -> Arrays:
        views = []
        for view in range(inputs.n_views):
            context.report(Progress("frozen", view, inputs.n_views))
            views.append(descriptors(embedder, inputs, view, embedder.pooled))
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
