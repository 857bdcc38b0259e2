"""The one interface behind all methods: where labels come from, and a loss with its own miner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from rpml.deep.batches import Plan

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Knowledge:
    """What a source of labels may look at.

    `features` are the whitened features of every image, a running mean over its views and the
    epochs so far. `classes` are the true classes, there only for methods that are marked so.
    """

    features: NDArray[np.float32]
    classes: Indices | None
    seed: int


@dataclass(frozen=True)
class Setup:
    """Sizes that a loss needs to make its own parameters."""

    images: int
    features: int
    dim: int
    classes: int
    seed: int

    def generator(self) -> torch.Generator:
        """A random stream for initial parameters, which the global one does not disturb."""
        return torch.Generator().manual_seed(self.seed)


@dataclass(frozen=True)
class Batch:
    """What a loss sees of a mini-batch.

    `features` (b, p) are whitened unit rows, `embedding` (b, l) the unit rows of
    features @ projection, `teacher` the embedding by the averaged network (where the method asks
    for it), `rows` the numbers of the images.
    """

    features: torch.Tensor
    embedding: torch.Tensor
    labels: torch.Tensor
    rows: torch.Tensor
    projection: nn.Parameter
    rng: np.random.Generator
    teacher: torch.Tensor | None = None


class Loss(nn.Module, ABC):
    """A method's loss. Parameters and buffers of its own are trained and saved with it."""

    learns_projection = False
    """True if the loss moves the projection itself, False if its gradient does."""

    def begin_epoch(self, plan: Plan) -> None:
        """Called when the (new) plan of an epoch is known."""

    @abstractmethod
    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch, one number."""


@dataclass(frozen=True)
class Method:
    """A row of the tables.

    Parameters
    ----------
    key, title : str
        On the command line, and in a table.
    source : callable
        From what is known to the plan of an epoch.
    loss : callable
        Makes the loss for the sizes at hand.
    uses_labels : bool
        Whether it sees the classes of the training images.
    teacher : bool
        Whether the loss needs the averaged network's embedding.
    """

    key: str
    title: str
    source: Callable[[Knowledge], Plan]
    loss: Callable[[Setup], Loss]
    uses_labels: bool = False
    teacher: bool = False


def squared_distances(Z: torch.Tensor) -> torch.Tensor:
    """|z_i - z_j|^2 between all rows, never below zero."""
    norms = Z.square().sum(1)
    return (norms[:, None] + norms[None] - 2 * Z @ Z.T).clamp(min=0)


def distances(Z: torch.Tensor) -> torch.Tensor:
    """|z_i - z_j|; its gradient is finite where two rows are equal."""
    return (squared_distances(Z) + 1e-12).sqrt()


def pairs(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(b, b) masks of the pairs i < j with equal labels, and with different ones."""
    same = labels[:, None] == labels[None]
    upper = torch.ones_like(same).triu(1)
    return same & upper, ~same & upper


def mean_of(values: torch.Tensor) -> torch.Tensor:
    """The mean, zero of nothing."""
    return values.sum() / max(1, values.numel())
