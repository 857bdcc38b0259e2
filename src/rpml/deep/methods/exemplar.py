"""Exemplar: Dosovitskiy et al., "Discriminative unsupervised feature learning ..." (NIPS 2014)."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.labels import instance_sampler


class Exemplar(Loss):
    """Softmax over one surrogate class per image; its views are the examples."""

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        start = torch.randn(spec.n_images, spec.n_components, generator=spec.generator())
        self.classifier = nn.Parameter(start / spec.n_components**0.5)
        self.bias = nn.Parameter(torch.zeros(spec.n_images))

    def forward(self, batch: Batch) -> torch.Tensor:
        scores = batch.embedding @ self.classifier.T + self.bias
        return cross_entropy(scores, batch.rows)


METHOD = Method(instance_sampler, Exemplar)
