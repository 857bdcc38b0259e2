"""Triplet: the hinge of Schroff, Kalenichenko and Philbin, "FaceNet" (CVPR 2015)."""

from functools import partial

import torch

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method, safe_mean
from rpml.deep.methods.labels import class_sampler
from rpml.method.triplets.batches import mine_batch_triplets
from rpml.runtime.extras import require

MARGIN = 0.2
MAX_TRIPLETS = 500


def triplet_hinge(a: torch.Tensor, p: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Mean of max(0, |a - p|^2 - |a - n|^2 + margin) over rows."""
    gap = (a - p).square().sum(1) - (a - n).square().sum(1)
    return safe_mean((gap + MARGIN).clamp(min=0))


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


class Triplet(Loss):
    """max(0, |a - p|^2 - |a - n|^2 + margin), the mean over all triplets of the batch, or over
    those whose negative lies between the positive and the margin (semi-hard)."""

    def __init__(self, spec: LossSpec, semi_hard: bool = False) -> None:
        super().__init__()
        losses = require("pytorch_metric_learning.losses", "deep", "the triplet losses")
        reducers = require("pytorch_metric_learning.reducers", "deep", "the triplet losses")
        miners = require("pytorch_metric_learning.miners", "deep", "the triplet losses")
        distances = require("pytorch_metric_learning.distances", "deep", "the triplet losses")
        squared = distances.LpDistance(power=2)
        self._loss = losses.TripletMarginLoss(
            MARGIN, distance=squared, reducer=reducers.MeanReducer()
        )
        self._miner = (
            miners.TripletMarginMiner(MARGIN, "semihard", distance=squared) if semi_hard else None
        )

    def forward(self, batch: Batch) -> torch.Tensor:
        Z, labels = batch.embedding, batch.labels
        mined = None if self._miner is None else self._miner(Z, labels)
        return torch.as_tensor(self._loss(Z, labels, mined))


METHOD = Method(class_sampler, Triplet)
SEMI_HARD = Method(class_sampler, partial(Triplet, semi_hard=True), learning_rate=1e-3)
