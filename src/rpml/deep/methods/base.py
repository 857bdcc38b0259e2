"""The interface of a deep method: a batch sampler and a loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rpml.deep.samplers import BatchSampler, Indices


@dataclass(frozen=True)
class FeatureBank:
    """What a batch sampler is made from.

    Parameters
    ----------
    features : ndarray of shape (n_images, n_features)
        Whitened features of every image: a running mean over its views and the epochs so far.
    classes : ndarray of shape (n_images,) or None
        True classes, for supervised methods only.
    seed : int
    """

    features: NDArray[np.float32]
    classes: Indices | None
    seed: int


@dataclass(frozen=True)
class LossSpec:
    """The sizes from which a loss makes its own parameters.

    Parameters
    ----------
    n_images, n_features, n_components, n_classes : int
        Training images, features before the projection, size of the embedding, true classes (0
        for label-free methods).
    seed : int
    ema_decay : float, default=0.95
        Decay of the moving averages of the weights (see `rpml.deep.schedule.Schedule`).
    """

    n_images: int
    n_features: int
    n_components: int
    n_classes: int
    seed: int
    ema_decay: float = 0.95

    def generator(self) -> torch.Generator:
        """A random generator for initial parameters, independent of torch's global one."""
        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True)
class Batch:
    """A mini-batch as a loss sees it.

    Parameters
    ----------
    features : tensor of shape (batch_size, n_features)
        Whitened unit rows.
    embedding : tensor of shape (batch_size, n_components)
        Unit rows of ``features @ projection``.
    labels, rows : tensor of shape (batch_size,)
        Labels and indices of the images.
    projection : nn.Parameter of shape (n_features, n_components)
    rng : numpy.random.Generator
    teacher_features : tensor of shape (batch_size, n_features), default=None
        Features by the averaged network, for methods with `needs_teacher`.
    weights : tensor, default=None
        Weights of the terms of the loss, if the sampler gives them.
    """

    features: torch.Tensor
    embedding: torch.Tensor
    labels: torch.Tensor
    rows: torch.Tensor
    projection: nn.Parameter
    rng: np.random.Generator
    teacher_features: torch.Tensor | None = None
    weights: torch.Tensor | None = None


class Loss(nn.Module, ABC):
    """The loss of a method; its parameters and buffers are trained and saved with it."""

    learns_projection = False
    """True if the loss updates the projection itself; False if the optimizer does."""

    def __init__(self, spec: LossSpec | None = None) -> None:
        super().__init__()  # a loss without parameters of its own needs no sizes

    def begin_epoch(self, sampler: BatchSampler) -> None:
        """Called before the first batch of an epoch."""

    @abstractmethod
    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch, a scalar."""


@dataclass(frozen=True)
class Method:
    """A deep method.

    Parameters
    ----------
    sampler : callable
        Makes the batch sampler of an epoch from the features.
    loss : callable
        Makes the loss for given sizes.
    needs_teacher : bool, default=False
        Whether the loss reads the features of the averaged network.
    mines_once : bool, default=False
        Make the sampler once, from the features before training, instead of every few epochs.
    learning_rate : float, default=3e-4
        Learning rate of the upper blocks unless the schedule has one; chosen for every method by
        the same rule (docs/results-deep.md).
    key, title : str, default=""
        As in `rpml.evaluation.registry.DEEP_METHODS`.
    uses_labels : bool, default=False
    """

    sampler: Callable[[FeatureBank], BatchSampler]
    loss: Callable[[LossSpec], Loss]
    needs_teacher: bool = False
    mines_once: bool = False
    learning_rate: float = 3e-4
    key: str = ""
    title: str = ""
    uses_labels: bool = False


def squared_distances(Z: torch.Tensor) -> torch.Tensor:
    """|z_i - z_j|^2 between all rows, never negative."""
    norms = Z.square().sum(1)
    return (norms[:, None] + norms[None] - 2 * Z @ Z.T).clamp(min=0)


def distances(Z: torch.Tensor) -> torch.Tensor:
    """|z_i - z_j| between all rows, with a finite gradient where two rows are equal."""
    return (squared_distances(Z) + 1e-12).sqrt()


def pair_masks(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(b, b) masks of the pairs i < j with equal labels, and with different labels."""
    same = labels[:, None] == labels[None]
    upper = torch.ones_like(same).triu(1)
    return same & upper, ~same & upper


def safe_mean(values: torch.Tensor) -> torch.Tensor:
    """The mean; zero if there are no values."""
    return values.sum() / max(1, values.numel())
