"""DDML: Hu, Lu and Tan, "Discriminative deep metric learning ..." (CVPR 2014)."""

import torch
from torch.nn.functional import softplus

from rpml.deep.methods.base import (
    Batch,
    Loss,
    Method,
    pair_masks,
    safe_mean,
    squared_distances,
)
from rpml.deep.methods.labels import class_sampler

THRESHOLD = 1.5  # tau: distances squared of unit rows lie in [0, 4]
SHARPNESS = 10.0  # beta of the generalized logistic loss


class DDML(Loss):
    """g(1 - l (tau - d^2)), g(z) = log(1 + exp(beta z)) / beta, l = 1 for positive pairs, else -1.

    Positive and negative pairs are averaged separately: there are 30 times more negative ones.
    """

    def forward(self, batch: Batch) -> torch.Tensor:
        d2 = squared_distances(batch.embedding)
        same, other = pair_masks(batch.labels)
        near = softplus(SHARPNESS * (1 - (THRESHOLD - d2[same]))) / SHARPNESS
        far = softplus(SHARPNESS * (1 + (THRESHOLD - d2[other]))) / SHARPNESS
        return (safe_mean(near) + safe_mean(far)) / 2


METHOD = Method(class_sampler, DDML, learning_rate=1e-3)
