"""Contrastive: Hadsell, Chopra and LeCun, "Dimensionality reduction ..." (CVPR 2006)."""

from __future__ import annotations

import torch

from rpml.deep.methods.base import Batch, Loss, Method, Setup, distances, mean_of, pairs
from rpml.deep.methods.sources import true_classes

MARGIN = 1.0


class Contrastive(Loss):
    """d^2 of equal pairs, max(0, margin - d)^2 of the others, each averaged."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()

    def forward(self, batch: Batch) -> torch.Tensor:
        d = distances(batch.embedding)
        same, other = pairs(batch.labels)
        pulled, pushed = d[same].square(), (MARGIN - d[other]).clamp(min=0).square()
        return mean_of(pulled) + mean_of(pushed)


METHOD = Method("contrastive", "Contrastive", true_classes, Contrastive, uses_labels=True)
