"""The supervised losses of pairs and triplets."""

from functools import partial
from types import ModuleType

import torch
from torch.nn.functional import softplus

from rpml.deep.methods.base import (
    Batch,
    FunctionLoss,
    Loss,
    LossSpec,
    Method,
    distances,
    safe_mean,
    squared_distances,
    stateless,
)
from rpml.deep.methods.batches import class_sampler
from rpml.method.triplets.batches import mine_batch_triplets
from rpml.runtime.extras import require

CONTRASTIVE_MARGIN = LIFTED_MARGIN = 1.0
TRIPLET_MARGIN = 0.2
MAX_TRIPLETS = 500
DDML_THRESHOLD = 1.5  # tau: squared distances of unit rows lie in [0, 4]
DDML_SHARPNESS = 10.0  # beta of the generalized logistic loss


def contrastive(batch: Batch) -> torch.Tensor:
    """d^2 of positive pairs and max(0, margin - d)^2 of negative pairs, averaged separately.

    Hadsell, Chopra and LeCun, "Dimensionality reduction ..." (CVPR 2006).
    """
    d = distances(batch.embedding)
    same, other = pair_masks(batch.labels)
    pulled, pushed = d[same].square(), (CONTRASTIVE_MARGIN - d[other]).clamp(min=0).square()
    return safe_mean(pulled) + safe_mean(pushed)


def ddml(batch: Batch) -> torch.Tensor:
    """g(1 - l (tau - d^2)), g(z) = log(1 + exp(beta z)) / beta, l = 1 for positive pairs, else -1.

    Hu, Lu and Tan, "Discriminative deep metric learning ..." (CVPR 2014). Positive and negative
    pairs are averaged separately: there are 30 times more negative ones.
    """
    gap = DDML_THRESHOLD - squared_distances(batch.embedding)
    same, other = pair_masks(batch.labels)
    near = softplus(DDML_SHARPNESS * (1 - gap[same])) / DDML_SHARPNESS
    far = softplus(DDML_SHARPNESS * (1 + gap[other])) / DDML_SHARPNESS
    return (safe_mean(near) + safe_mean(far)) / 2


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
    return FunctionLoss(lambda batch: torch.as_tensor(loss(batch.embedding, batch.labels)))


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

    return FunctionLoss(forward)


def _library(part: str) -> ModuleType:
    return require(f"pytorch_metric_learning.{part}", "deep", "the triplet and lifted losses")


def triplet_hinge(a: torch.Tensor, p: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Mean of max(0, |a - p|^2 - |a - n|^2 + margin) over rows."""
    gap = (a - p).square().sum(1) - (a - n).square().sum(1)
    return safe_mean((gap + TRIPLET_MARGIN).clamp(min=0))


def random_triplets(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Indices of random anchors, positives and negatives of the batch."""
    triplets = mine_batch_triplets(
        batch.embedding.detach().cpu().numpy(),
        batch.labels.cpu().numpy(),
        batch.rng,
        mining="all",
        limit=MAX_TRIPLETS,
    )
    a, p, n = torch.from_numpy(triplets).to(batch.features.device).T
    return a, p, n


CONTRASTIVE = Method(class_sampler, stateless(contrastive), learning_rate=1e-3)
DDML = Method(class_sampler, stateless(ddml), learning_rate=1e-3)
TRIPLET = Method(class_sampler, triplet)
SEMI_HARD = Method(class_sampler, partial(triplet, semi_hard=True), learning_rate=1e-3)
LIFTED = Method(class_sampler, lifted)
