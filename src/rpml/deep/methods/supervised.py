"""The supervised losses of pairs and triplets."""

from types import ModuleType

import torch

from rpml.deep.methods.base import Batch, Loss, LossSpec, distances, safe_mean
from rpml.runtime.errors import require

CONTRASTIVE_MARGIN = LIFTED_MARGIN = 1.0
TRIPLET_MARGIN = 0.2


def contrastive(batch: Batch) -> torch.Tensor:
    """d^2 of positive pairs and max(0, margin - d)^2 of negative pairs, averaged separately.

    Hadsell, Chopra and LeCun, "Dimensionality reduction ..." (CVPR 2006).
    """
    d = distances(batch.embedding)
    same, other = pair_masks(batch.labels)
    pulled, pushed = d[same].square(), (CONTRASTIVE_MARGIN - d[other]).clamp(min=0).square()
    return safe_mean(pulled) + safe_mean(pushed)


def pair_masks(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(b, b) masks of the pairs i < j with equal labels, and with different labels."""
    same = labels[:, None] == labels[None]
    upper = torch.ones_like(same).triu(1)
    return same & upper, ~same & upper


def lifted(spec: LossSpec) -> Loss:
    """Squared hinge of each positive pair against all negatives of both of its ends.

    Oh Song, Xiang, Jegelka and Savarese, "Deep metric learning ..." (CVPR 2016).
    """
    loss = _library("losses").LiftedStructureLoss(neg_margin=LIFTED_MARGIN, pos_margin=0)
    return Loss(lambda batch: torch.as_tensor(loss(batch.embedding, batch.labels)))


def triplet(spec: LossSpec, semi_hard: bool = False) -> Loss:
    """max(0, |a - p|^2 - |a - n|^2 + margin), the mean over all triplets of the batch, or over
    those whose negative lies between the positive and the margin (semi-hard).

    Schroff, Kalenichenko and Philbin, "FaceNet" (CVPR 2015).
    """
    squared = _library("distances").LpDistance(power=2)
    mean = _library("reducers").MeanReducer()
    loss = _library("losses").TripletMarginLoss(TRIPLET_MARGIN, distance=squared, reducer=mean)
    mine = _library("miners").TripletMarginMiner(TRIPLET_MARGIN, "semihard", distance=squared)

    def forward(batch: Batch) -> torch.Tensor:
        Z, labels = batch.embedding, batch.labels
        return torch.as_tensor(loss(Z, labels, mine(Z, labels) if semi_hard else None))

    return Loss(forward)


def _library(part: str) -> ModuleType:
    return require(f"pytorch_metric_learning.{part}", "deep", "the triplet and lifted losses")
