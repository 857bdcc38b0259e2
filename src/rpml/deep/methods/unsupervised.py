"""Label-free methods that tell images, or clusters of images, apart."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, logsigmoid, normalize

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method, stateless
from rpml.deep.methods.batches import CLUSTERS, BatchSampler, instance_sampler, kmeans_sampler

INVARIANT_TEMPERATURE = 0.1
NCE_TEMPERATURE, NCE_NEGATIVES, NCE_MOMENTUM = 0.07, 4096, 0.5


class Exemplar(Loss):
    """Softmax over one surrogate class per image; its views are the examples.

    Dosovitskiy et al., "Discriminative unsupervised feature learning ..." (NIPS 2014).
    """

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        start = torch.randn(spec.n_images, spec.n_components, generator=spec.generator())
        self.classifier = nn.Parameter(start / spec.n_components**0.5)
        self.bias = nn.Parameter(torch.zeros(spec.n_images))

    def forward(self, batch: Batch) -> torch.Tensor:
        scores = batch.embedding @ self.classifier.T + self.bias
        return cross_entropy(scores, batch.rows)


class MemoryNCE(Loss):
    """Noise-contrastive estimation of the softmax over a memory bank of all images.

    Wu, Xiong, Yu and Lin, "... non-parametric instance discrimination" (CVPR 2018). With the
    normalizer Z estimated from the first batch, p = exp(v.z / t) / Z and h = p / (p + m / n), the
    loss is -log h(own entry) - sum over m noise entries of log(1 - h).
    """

    memory: torch.Tensor
    partition: torch.Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        start = torch.randn(spec.n_images, spec.n_components, generator=spec.generator())
        self.register_buffer("memory", normalize(start))
        self.register_buffer("partition", torch.zeros(()))

    def forward(self, batch: Batch) -> torch.Tensor:
        n = len(self.memory)
        m = min(NCE_NEGATIVES, n)
        noise = torch.from_numpy(batch.rng.integers(0, n, (len(batch.rows), m)))
        entries = torch.cat([batch.rows[:, None], noise.to(batch.rows.device)], dim=1)
        scores = torch.einsum("bd,bmd->bm", batch.embedding, self.memory[entries])
        scores = scores / NCE_TEMPERATURE
        if float(self.partition) == 0.0:
            self.partition.fill_(float(scores.detach().exp().mean()) * n)
        # log of p / (m / n): h = sigmoid of it
        ratio = scores - torch.log(self.partition) - math.log(m / n)
        self._update(batch)
        return -(logsigmoid(ratio[:, 0]) + logsigmoid(-ratio[:, 1:]).sum(1)).mean()

    def _update(self, batch: Batch) -> None:
        old, new = self.memory[batch.rows], batch.embedding.detach()
        self.memory[batch.rows] = normalize(NCE_MOMENTUM * old + (1 - NCE_MOMENTUM) * new)


class DeepCluster(Loss):
    """Softmax over the clusters; the classifier is reset with every new assignment.

    Caron, Bojanowski, Joulin and Douze, "Deep clustering ..." (ECCV 2018).
    """

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


def invariant(batch: Batch) -> torch.Tensor:
    """Softmax over the images of the batch: each view is its own image, no image is another.

    Ye, Zhang, Yuen and Chang, "... invariant and spreading instance feature" (CVPR 2019). With
    P(i | z) = exp(f_i.z / t) / sum_k exp(f_k.z / t), the loss is the mean over the images of
    -log P(i | view of i) - sum over j != i of log(1 - P(i | f_j)).
    """
    image, view = batch.embedding.chunk(2)
    b = len(image)
    own = torch.log_softmax(view @ image.T / INVARIANT_TEMPERATURE, dim=1).diagonal()
    shares = torch.softmax(image @ image.T / INVARIANT_TEMPERATURE, dim=1)  # row j: P(. | f_j)
    others = ~torch.eye(b, dtype=torch.bool, device=image.device)
    spread = torch.log1p(-shares[others].clamp(max=1 - 1e-6))
    return -(own.sum() + spread.sum()) / b


EXEMPLAR = Method(instance_sampler, Exemplar)
NCE = Method(instance_sampler, MemoryNCE)
DEEPCLUSTER = Method(kmeans_sampler, DeepCluster)
INVARIANT = Method(instance_sampler, stateless(invariant))
