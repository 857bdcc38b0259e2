"""DeepCluster: Caron, Bojanowski, Joulin and Douze, "Deep clustering ..." (ECCV 2018)."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rpml.deep.methods.base import Batch, FeatureBank, Loss, LossSpec, Method
from rpml.deep.methods.labels import kmeans_labels
from rpml.deep.samplers import BatchSampler, LabelSampler

CLUSTERS = 300  # a multiple of the number of classes, as the paper advises


def kmeans_sampler(bank: FeatureBank) -> LabelSampler:
    """Batches by k-means cluster."""
    return LabelSampler(kmeans_labels(bank, CLUSTERS))


class DeepCluster(Loss):
    """Softmax over the clusters; the classifier is reset with every new assignment."""

    assigned: torch.Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        self.classifier = nn.Parameter(torch.zeros(CLUSTERS, spec.n_components))
        self.register_buffer("assigned", torch.full((spec.n_images,), -1))
        self._generator = spec.generator

    def begin_epoch(self, sampler: BatchSampler) -> None:
        labels = torch.from_numpy(np.asarray(sampler.labels, np.int64)).to(self.assigned.device)
        if torch.equal(labels, self.assigned):
            return
        self.assigned.copy_(labels)
        with torch.no_grad():
            start = torch.randn(self.classifier.shape, generator=self._generator())
            self.classifier.copy_(start / self.classifier.shape[1] ** 0.5)

    def forward(self, batch: Batch) -> torch.Tensor:
        return cross_entropy(batch.embedding @ self.classifier.T, batch.labels)


METHOD = Method(kmeans_sampler, DeepCluster)
