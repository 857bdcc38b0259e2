"""The interface of a deep method: a batch sampler and a loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from rpml.deep.methods.batches import BatchSampler, FeatureBank


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

    def begin_epoch(self, sampler: BatchSampler) -> None:
        """Called before the first batch of an epoch."""

    @abstractmethod
    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch, a scalar."""


class FunctionLoss(Loss):
    """A loss without parameters: a function from a batch to a scalar."""

    def __init__(self, function: Callable[[Batch], torch.Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, batch: Batch) -> torch.Tensor:
        return self._function(batch)


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


def stateless(function: Callable[[Batch], torch.Tensor]) -> Callable[[LossSpec], Loss]:
    """Return the constructor of a `FunctionLoss`, which needs no sizes."""
    return lambda spec: FunctionLoss(function)


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
