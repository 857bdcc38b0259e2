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
    """What a batch sampler is made from."""

    features: NDArray[np.float32]
    """(n_images, n_features) whitened, a running mean over views and the epochs so far."""
    classes: Indices | None
    """(n_images,) true classes, for supervised methods only."""
    seed: int


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
    """As in `rpml.deep.schedule.Schedule`."""

    def generator(self) -> torch.Generator:
        """A random generator for initial parameters, independent of torch's global one."""
        return torch.Generator().manual_seed(self.seed)


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
    rng: np.random.Generator
    teacher_features: torch.Tensor | None = None
    """Features by the averaged network, for methods with `needs_teacher`."""
    weights: torch.Tensor | None = None
    """Weights of the terms of the loss, if the sampler gives them."""


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
    """A deep method; its last two fields come from `rpml.evaluation.registry.DEEP_METHODS`."""

    sampler: Callable[[FeatureBank], BatchSampler]
    """Makes the batches of an epoch."""
    loss: Callable[[LossSpec], Loss]
    needs_teacher: bool = False
    """Whether the loss reads the features of the averaged network."""
    mines_once: bool = False
    """Make the sampler once, from the features before training, instead of every few epochs."""
    learning_rate: float = 3e-4
    """Of the upper blocks unless the schedule has one; chosen for every method by the same rule
    (docs/results-deep.md)."""
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
