"""A deep method: how its mini-batches are sampled, and the loss of a mini-batch."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from torch import nn

from rpml.method.clustering.pseudo_labels import as_clusterer, pseudo_labels
from rpml.method.triplets.sampling import batch_sampler
from rpml.method.whitening.groups import group_means
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, Floats, Indices, unit_rows

AAS_NEIGHBORS = 50
PER_LABEL = 4  # images
SUPERVISED = (437, 128)
"""Epochs and rows per batch: 20,000 steps on CUB-200-2011, the protocol of Oh Song et al. that
supervised methods follow."""


@dataclass(frozen=True)
class FeatureBank:
    """What the batches of an epoch are made from."""

    features: Floats
    """(n_images, n_features) whitened, a running mean over views and the epochs so far."""
    classes: Indices | None
    """(n_images,) true classes, for supervised methods only."""
    seed: int


@dataclass(frozen=True)
class BatchIndices:
    """One mini-batch: image, view and label of each row, and weights for losses that use them."""

    rows: Indices
    views: Indices
    labels: Indices
    weights: Array | None = None


Batches = Callable[[Generator, int, int], Iterator[BatchIndices]]
"""The mini-batches of an epoch, from a random generator, the number of views and the batch size."""
Sampler = Callable[[FeatureBank], tuple[Batches, Indices | None]]
"""Also returns the (pseudo-)labels of the images, if the batches are made from them."""


@dataclass(frozen=True)
class LossSpec:
    """The sizes from which a loss makes its own parameters."""

    n_images: int
    n_features: int
    """Before the projection."""
    n_components: int
    n_classes: int
    """0 for label-free methods."""
    seed: int
    ema_decay: float = 0.95
    """As in `rpml.deep.trainer.Schedule`."""

    def random(self, *shape: int) -> torch.Tensor:
        """Normal initial values, independent of torch's global random state."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(self.seed))


@dataclass(frozen=True)
class Batch:
    """A mini-batch as a loss sees it."""

    features: torch.Tensor
    """(batch_size, n_features) whitened unit rows."""
    embedding: torch.Tensor
    """(batch_size, n_components) unit rows of ``features @ projection``."""
    labels: torch.Tensor
    rows: torch.Tensor
    """Indices of the images."""
    projection: nn.Parameter
    """(n_features, n_components)."""
    rng: Generator
    teacher_features: torch.Tensor | None = None
    """Features by the averaged network, for methods with `needs_teacher`."""
    weights: torch.Tensor | None = None
    """Weights of the terms of the loss, if the sampler gives them."""


class Loss(nn.Module):
    """The loss of a batch; parameters and buffers of a subclass are trained and saved with it."""

    learns_projection = False
    """True if the loss updates the projection itself; False if the optimizer does."""

    def __init__(self, function: Callable[[Batch], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.function = function

    def begin_epoch(self, labels: Indices | None) -> None:
        """Called with the labels of the images before the first batch of an epoch."""

    def forward(self, batch: Batch) -> torch.Tensor:
        assert self.function is not None  # or the method is overridden
        return self.function(batch)


@dataclass(frozen=True)
class Method:
    """A deep method: how its batches are sampled, and their loss."""

    title: str
    sampler: Sampler
    loss: Callable[[LossSpec], Loss]
    learning_rate: float = 3e-4
    """Of the upper blocks unless the schedule has one; chosen for every method by the same rule
    (docs/results-deep-details.md)."""
    needs_teacher: bool = False
    """Whether the loss reads the features of the averaged network."""
    mines_once: bool = False
    """Sample once, from the features before training, instead of every epoch."""
    uses_labels: bool = False
    budget: tuple[int, int] = SUPERVISED
    """Published epochs and rows per batch on CUB-200-2011; an epoch has as many rows as there are
    images."""


def stateless(function: Callable[[Batch], torch.Tensor]) -> Callable[[LossSpec], Loss]:
    return lambda spec: Loss(function)


def label_sampler(labels: Indices) -> tuple[Batches, Indices]:
    """`PER_LABEL` images per label; labels with a single image are skipped."""

    def batches(rng: Generator, n_views: int, batch_size: int) -> Iterator[BatchIndices]:
        for rows in batch_sampler(labels, rng, batch_size, PER_LABEL):
            yield BatchIndices(rows, rng.integers(0, n_views, len(rows)), labels[rows])

    return batches, labels


def class_sampler(bank: FeatureBank) -> tuple[Batches, Indices]:
    """Batches by true class, for supervised methods."""
    if bank.classes is None:
        raise InputError("a supervised method needs the classes of the training images")
    return label_sampler(bank.classes)


def group_batches(
    groups: Indices, rng: Generator, n_views: int, batch_size: int
) -> Iterator[BatchIndices]:
    """Yield two views of each image of a few groups, given as rows, in random order.

    The views differ, unless there is only one.
    """
    per_batch = max(1, batch_size // (2 * groups.shape[1]))
    order = rng.permutation(len(groups))
    for start in range(0, len(groups), per_batch):
        images = groups[order[start : start + per_batch]].ravel()
        if len(images) < 2:
            return
        yield in_two_views(images, n_views, rng)


def in_two_views(images: Indices, n_views: int, rng: Generator) -> BatchIndices:
    """Return two different views of each image; the same view twice if there is only one."""
    rows, first = np.tile(images, 2), rng.integers(0, n_views, len(images))
    step = rng.integers(1, n_views, len(images)) if n_views > 1 else 0
    return BatchIndices(rows, np.concatenate([first, (first + step) % n_views]), rows)


def aas_labels(bank: FeatureBank, n_levels: int = 2) -> Indices:
    """Authority Ascent Shift on the features, then on the means of its clusters, level by level.

    The first level joins few of the images of a class: on CUB-200-2011 two thirds of its pairs are
    correct and 3% of the pairs of a class are joined; the second level joins five times as many.
    """
    labels, rows = np.arange(len(bank.features)), bank.features
    for _ in range(n_levels):
        # a retuned threshold, every few epochs
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            clusters = pseudo_labels(rows, as_clusterer("aas", AAS_NEIGHBORS))
        labels = clusters[labels]
        rows = unit_rows(group_means(bank.features, labels))
    return labels


def squared_distances(Z: torch.Tensor) -> torch.Tensor:
    """|z_i - z_j|^2 between all rows, never negative."""
    norms = Z.square().sum(1)
    return (norms[:, None] + norms[None] - 2 * Z @ Z.T).clamp(min=0)


def distances(Z: torch.Tensor) -> torch.Tensor:
    """|z_i - z_j| between all rows, with a finite gradient where two rows are equal."""
    return (squared_distances(Z) + 1e-12).sqrt()


def safe_mean(values: torch.Tensor) -> torch.Tensor:
    """The mean; zero if there are no values."""
    return values.sum() / max(1, values.numel())
