"""The methods that sRPML is compared with: supervised losses, and STML.

STML learns from the similarities of an averaged network.
"""

from functools import partial
from types import ModuleType

import numpy as np
import torch
from torch import nn
from torch.nn.functional import log_softmax, normalize, softmax

from rpml.deep.methods.base import (
    Batch,
    Batches,
    FeatureBank,
    Loss,
    LossSpec,
    distances,
    group_batches,
    safe_mean,
    squared_distances,
)
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.errors import require
from rpml.runtime.rows import Indices

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


STML_QUERY = 5  # images per query in a batch, the query included
STML_NEIGHBORS = 10  # k of the contextual similarity: STML_QUERY images in two views
STML_SIGMA = 3.0
STML_MARGIN = 1.0  # delta of the relaxed contrastive loss


def nearest_images(bank: FeatureBank) -> Indices:
    """(n_images, STML_QUERY): each image and its nearest neighbors."""
    k = min(STML_QUERY, len(bank.features)) - 1
    neighbors = nearest_neighbors(bank.features, k, metric="cosine").indices
    return np.hstack([np.arange(len(neighbors))[:, None], neighbors])


def neighbor_sampler(bank: FeatureBank) -> tuple[Batches, None]:
    """Batches of images with their nearest neighbors."""
    return partial(group_batches, nearest_images(bank)), None


def contextual_similarity(Z: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Contextualized semantic similarity of the paper, (b, b), of unit rows of the teacher.

    `rows` are the images of the rows; views of the same image are always neighbors.
    """
    pairwise = torch.exp(-squared_distances(Z) / STML_SIGMA)
    k = min(STML_NEIGHBORS, len(Z))
    ranked = torch.where(rows[:, None] == rows[None], 1.0, pairwise)
    order = ranked.topk(k, dim=1).indices
    neighbor = torch.zeros_like(pairwise).scatter_(1, order, 1.0)
    reciprocal = neighbor * neighbor.T  # row i: the k-reciprocal neighbors R(i)
    overlap = reciprocal @ reciprocal / reciprocal.sum(1, keepdim=True).clamp(min=1)
    overlap = overlap * reciprocal  # |R(i) & R(j)| / |R(i)| if j is in R(i), else 0
    expanded = overlap[order[:, : max(1, round(k / 2))]].mean(1)  # query expansion
    return (pairwise + (expanded + expanded.T) / 2) / 2


def relative_distances(Z: torch.Tensor) -> torch.Tensor:
    """Distances divided by their mean over each row."""
    d = distances(Z)
    return d / d.mean(1, keepdim=True).clamp(min=1e-6)


def relaxed_contrastive(Z: torch.Tensor, similarity: torch.Tensor) -> torch.Tensor:
    """w d^2 + (1 - w) max(0, delta - d)^2 of relative distances, mean over the pairs i != j."""
    d = relative_distances(Z)
    pairs = similarity * d.square() + (1 - similarity) * (STML_MARGIN - d).clamp(min=0).square()
    others = ~torch.eye(len(d), dtype=torch.bool, device=d.device)
    return pairs[others].mean()


def distillation(small: torch.Tensor, wide_head: torch.Tensor) -> torch.Tensor:
    """KL divergence from the softmax of the wide head's negative relative distances."""
    target = -relative_distances(wide_head).detach()
    log_p = log_softmax(-relative_distances(small), dim=1)
    return (softmax(target, dim=1) * (log_softmax(target, dim=1) - log_p)).sum(1).mean()


class STML(Loss):
    """Self-taught metric learning: the averaged network teaches through a second, wider head.

    Kim, Kim, Cho and Kwak, "Self-taught metric learning without labels" (CVPR 2022).
    The student has two heads on the same features, the projection (f) and a wide head (g) of the
    features' own size, which starts as the identity. The similarities come from the wide head of
    the teacher, an exponential moving average of the student. The loss is the mean of the relaxed
    contrastive losses of f and g, and the KL divergence of f from g.
    """

    teacher_head: torch.Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        self.head = nn.Parameter(torch.eye(spec.n_features))
        self.register_buffer("teacher_head", torch.eye(spec.n_features))
        self._ema_rate = 1 - spec.ema_decay

    def forward(self, batch: Batch) -> torch.Tensor:
        assert batch.teacher_features is not None
        with torch.no_grad():
            self.teacher_head.lerp_(self.head, self._ema_rate)
            teacher = normalize(batch.teacher_features @ self.teacher_head)
            similarity = contextual_similarity(teacher, batch.rows)
        small, wide_head = batch.features @ batch.projection, batch.features @ self.head
        heads = (small, wide_head)
        contrastive = sum(relaxed_contrastive(head, similarity) for head in heads)
        return contrastive / 2 + distillation(small, wide_head)
