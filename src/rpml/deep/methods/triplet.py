"""Triplet: the hinge of Schroff, Kalenichenko and Philbin, "FaceNet" (CVPR 2015)."""

from __future__ import annotations

from typing import Any

import torch

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.labels import class_sampler
from rpml.runtime.extras import require

MARGIN = 0.2


def squared() -> Any:
    """Squared Euclidean distances, as pytorch-metric-learning calls them."""
    distances = require("pytorch_metric_learning.distances", "deep", "the triplet losses")
    return distances.LpDistance(power=2)


class Triplet(Loss):
    """max(0, d(a, p)^2 - d(a, n)^2 + margin), the mean over all triplets of the batch, or over
    those whose negative lies between the positive and the margin (semi-hard)."""

    def __init__(self, spec: LossSpec, semi_hard: bool = False) -> None:
        super().__init__()
        losses = require("pytorch_metric_learning.losses", "deep", "the triplet losses")
        reducers = require("pytorch_metric_learning.reducers", "deep", "the triplet losses")
        miners = require("pytorch_metric_learning.miners", "deep", "the triplet losses")
        self._loss = losses.TripletMarginLoss(
            MARGIN, distance=squared(), reducer=reducers.MeanReducer()
        )
        self._miner = (
            miners.TripletMarginMiner(MARGIN, "semihard", distance=squared()) if semi_hard else None
        )

    def forward(self, batch: Batch) -> torch.Tensor:
        Z, labels = batch.embedding, batch.labels
        mined = None if self._miner is None else self._miner(Z, labels)
        return torch.as_tensor(self._loss(Z, labels, mined))


def semi_hard(spec: LossSpec) -> Triplet:
    return Triplet(spec, semi_hard=True)


METHOD = Method("triplet", "Triplet", class_sampler, Triplet, uses_labels=True)
SEMI_HARD = Method("triplet-hard", "Triplet + hard", class_sampler, semi_hard, uses_labels=True)
