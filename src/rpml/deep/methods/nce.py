"""NCE: Wu, Xiong, Yu and Lin, "... non-parametric instance discrimination" (CVPR 2018)."""

import math

import torch
from torch.nn.functional import normalize

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.labels import instance_sampler

TEMPERATURE = 0.07
NEGATIVES = 4096
MOMENTUM = 0.5


class MemoryNCE(Loss):
    """Noise-contrastive estimation of the softmax over a memory bank of all images.

    With the normalizer Z estimated from the first batch, p = exp(v.z / t) / Z and
    h = p / (p + m / n), the loss is -log h(own entry) - sum over m noise entries of log(1 - h).
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
        m = min(NEGATIVES, n)
        noise = torch.from_numpy(batch.rng.integers(0, n, (len(batch.rows), m)))
        entries = torch.cat([batch.rows[:, None], noise.to(batch.rows.device)], dim=1)
        scores = torch.einsum("bd,bmd->bm", batch.embedding, self.memory[entries]) / TEMPERATURE
        if float(self.partition) == 0.0:
            self.partition.fill_(float(scores.detach().exp().mean()) * n)
        # log of p / (m / n): h = sigmoid of it
        ratio = scores - torch.log(self.partition) - math.log(m / n)
        data = torch.nn.functional.logsigmoid(ratio[:, 0])
        other = torch.nn.functional.logsigmoid(-ratio[:, 1:]).sum(1)
        self._update(batch)
        return -(data + other).mean()

    def _update(self, batch: Batch) -> None:
        with torch.no_grad():
            mixed = MOMENTUM * self.memory[batch.rows] + (1 - MOMENTUM) * batch.embedding.detach()
            self.memory[batch.rows] = normalize(mixed)


METHOD = Method(instance_sampler, MemoryNCE)
