"""Contrastive: Hadsell, Chopra and LeCun, "Dimensionality reduction ..." (CVPR 2006)."""

import torch

from rpml.deep.methods.base import Batch, Loss, Method, distances, pair_masks, safe_mean
from rpml.deep.methods.labels import class_sampler

MARGIN = 1.0


class Contrastive(Loss):
    """d^2 of positive pairs and max(0, margin - d)^2 of negative pairs, averaged separately."""

    def forward(self, batch: Batch) -> torch.Tensor:
        d = distances(batch.embedding)
        same, other = pair_masks(batch.labels)
        pulled, pushed = d[same].square(), (MARGIN - d[other]).clamp(min=0).square()
        return safe_mean(pulled) + safe_mean(pushed)


METHOD = Method(class_sampler, Contrastive, learning_rate=1e-3)
