"""DeepCluster: Caron, Bojanowski, Joulin and Douze, "Deep clustering ..." (ECCV 2018)."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rpml.deep.batches import ByLabel, Plan
from rpml.deep.methods.base import Batch, Knowledge, Loss, Method, Setup
from rpml.deep.methods.sources import kmeans_labels

CLUSTERS = 300  # several times the number of classes, as the paper advises


def clusters(known: Knowledge) -> ByLabel:
    """k-means assignments as pseudo-labels."""
    return ByLabel(kmeans_labels(known, CLUSTERS))


class DeepCluster(Loss):
    """Softmax over the clusters; the classifier starts anew with every assignment."""

    assigned: torch.Tensor

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.classifier = nn.Parameter(torch.zeros(CLUSTERS, setup.dim))
        self.register_buffer("assigned", torch.full((setup.images,), -1))
        self._generator = setup.generator

    def begin_epoch(self, plan: Plan) -> None:
        labels = torch.from_numpy(np.asarray(plan.labels, np.int64)).to(self.assigned.device)
        if torch.equal(labels, self.assigned):
            return
        self.assigned.copy_(labels)
        with torch.no_grad():
            start = torch.randn(self.classifier.shape, generator=self._generator())
            self.classifier.copy_(start / self.classifier.shape[1] ** 0.5)

    def forward(self, batch: Batch) -> torch.Tensor:
        return cross_entropy(batch.embedding @ self.classifier.T, batch.labels)


METHOD = Method("deepcluster", "DeepCluster", clusters, DeepCluster)
