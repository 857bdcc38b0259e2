"""Lifted structure: Oh Song, Xiang, Jegelka, Savarese, "Deep metric learning ..." (CVPR 2016)."""

import torch

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.labels import class_sampler
from rpml.runtime.extras import require

MARGIN = 1.0


class Lifted(Loss):
    """Squared hinge of each positive pair against all negatives of both of its ends."""

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        losses = require("pytorch_metric_learning.losses", "deep", "the lifted structure loss")
        self._loss = losses.LiftedStructureLoss(neg_margin=MARGIN, pos_margin=0)

    def forward(self, batch: Batch) -> torch.Tensor:
        return torch.as_tensor(self._loss(batch.embedding, batch.labels))


METHOD = Method(class_sampler, Lifted)
