"""HDML: Zheng, Chen, Lu and Zhou, "Hardness-aware deep metric learning" (CVPR 2019)."""

import math

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, normalize

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.labels import class_sampler
from rpml.deep.methods.triplet import random_triplets, triplet_hinge
from rpml.deep.samplers import BatchSampler

PULL = 0.1  # alpha; the paper's 7 is for the losses of unscaled GoogLeNet features
BALANCE = 1.0  # beta; the paper's 1e4, likewise
SOFTMAX = 0.5  # lambda


def hard_negatives(a: torch.Tensor, p: torch.Tensor, n: torch.Tensor, level: float) -> torch.Tensor:
    """Negatives pulled towards the anchor, no nearer than the positive.

    a + [level + (1 - level) d+ / d-] (n - a) where d- > d+, else n: level 1 is the negative
    itself, level 0 is as hard as possible.
    """
    far = (n - a).norm(dim=1, keepdim=True).clamp(min=1e-6)
    near = (p - a).norm(dim=1, keepdim=True)
    pulled = a + (level + (1 - level) * near / far) * (n - a)
    return torch.where(far > near, pulled, n)


class HDML(Loss):
    """Triplets that become harder as the metric improves, kept plausible by a generator.

    The level of the synthetic negatives is exp(-alpha / J_avg), J_avg the mean metric loss of the
    last epoch. The generator maps embeddings back to features; it is trained by the reconstruction
    of the real features and by the classification of the synthetic ones. The metric learns from
    exp(-beta / J_gen) J(real) + (1 - exp(-beta / J_gen)) J(synthetic).
    """

    average: torch.Tensor
    epoch_losses: torch.Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(spec.seed)
            self.generator = nn.Sequential(
                nn.Linear(spec.n_components, spec.n_features),
                nn.ReLU(),
                nn.Linear(spec.n_features, spec.n_features),
            )
            self.classifier = nn.Linear(spec.n_features, max(2, spec.n_classes))
        self.register_buffer("average", torch.tensor(math.inf))
        self.register_buffer("epoch_losses", torch.zeros(2))  # sum and count

    def begin_epoch(self, sampler: BatchSampler) -> None:
        if self.epoch_losses[1] > 0:
            self.average.copy_(self.epoch_losses[0] / self.epoch_losses[1])
        self.epoch_losses.zero_()

    def forward(self, batch: Batch) -> torch.Tensor:
        a, p, n = random_triplets(batch)
        za, zp, zn = (batch.embedding[i] for i in (a, p, n))
        real = triplet_hinge(za, zp, zn)
        hard = hard_negatives(za, zp, zn, math.exp(-PULL / max(float(self.average), 1e-6)))
        synthetic = triplet_hinge(*(self.reconstruct(z, batch) for z in (za, zp, hard)))
        plausible = self.generator_loss(batch, hard.detach(), n)
        trust = math.exp(-BALANCE / max(float(plausible.detach()), 1e-6))
        self.epoch_losses += torch.stack([real.detach(), torch.ones_like(real)])
        classified = cross_entropy(self.classifier(batch.features.detach()), batch.labels)
        return trust * real + (1 - trust) * synthetic + plausible + classified

    def reconstruct(self, z: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Embedding -> generated feature -> embedding; the generator itself is fixed."""
        feature = normalize(functional_call(self.generator, _detached(self.generator), (z,)))
        return normalize(feature @ batch.projection)

    def generator_loss(
        self, batch: Batch, hard: torch.Tensor, negatives: torch.Tensor
    ) -> torch.Tensor:
        """J_gen = J_recon + lambda J_soft; features, metric and classifier are fixed."""
        x = batch.features.detach()
        reconstructed = normalize(self.generator(batch.embedding.detach()))
        generated = torch.cat([reconstructed, normalize(self.generator(hard))])
        labels = torch.cat([batch.labels, batch.labels[negatives]])
        scores = functional_call(self.classifier, _detached(self.classifier), (generated,))
        return (reconstructed - x).square().sum(1).mean() + SOFTMAX * cross_entropy(scores, labels)


def _detached(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in module.named_parameters()}


METHOD = Method(class_sampler, HDML)
