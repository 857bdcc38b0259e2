"""Exemplar: Dosovitskiy et al., "Discriminative unsupervised feature learning ..." (NIPS 2014)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rpml.deep.methods.base import Batch, Loss, Method, Setup
from rpml.deep.methods.sources import instances


class Exemplar(Loss):
    """Softmax over one surrogate class an image, its views being the examples."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        start = torch.randn(setup.images, setup.dim, generator=setup.generator())
        self.classifier = nn.Parameter(start / setup.dim**0.5)
        self.bias = nn.Parameter(torch.zeros(setup.images))

    def forward(self, batch: Batch) -> torch.Tensor:
        scores = batch.embedding @ self.classifier.T + self.bias
        return cross_entropy(scores, batch.rows)


METHOD = Method("exemplar", "Exemplar", instances, Exemplar)
