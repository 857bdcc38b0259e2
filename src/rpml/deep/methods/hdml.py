"""HDML: Zheng, Chen, Lu and Zhou, "Hardness-aware deep metric learning" (CVPR 2019)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method, safe_mean
from rpml.deep.methods.daml import draw_triplets, hinge
from rpml.deep.methods.labels import class_sampler

PULL = 0.1  # alpha of the hardness level; the paper's 7 is for unscaled GoogLeNet features
BALANCE = 1.0  # beta: how soon synthetic triplets are trusted
SOFTMAX = 0.5  # lambda of the generator's classification term


def harder(a: torch.Tensor, p: torch.Tensor, n: torch.Tensor, level: float) -> torch.Tensor:
    """The negative moved towards the anchor, no nearer than the positive.

    n^ = a + (level d+ + (1 - level) d-) (n - a) / d- where d- > d+, else n itself.
    """
    far = (n - a).norm(dim=1, keepdim=True).clamp(min=1e-6)
    near = (p - a).norm(dim=1, keepdim=True)
    moved = a + (level * near + (1 - level) * far) * (n - a) / far
    return torch.where(far > near, moved, n)


class HDML(Loss):
    """Negatives are made as hard as the metric can bear, and a generator keeps them plausible.

    The level of hardness is exp(-alpha / J_avg), J_avg the last epoch's metric loss. The
    generator maps an embedding back to a feature of the negative's class; the metric learns from
    exp(-beta / J_gen) J(real) + (1 - exp(-beta / J_gen)) J(synthetic).
    """

    average: torch.Tensor

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
        self.register_buffer("average", torch.tensor(1.0))

    def forward(self, batch: Batch) -> torch.Tensor:
        (a, p, n), L = draw_triplets(batch), batch.projection
        za, zp, zn = (normalize(x @ L) for x in (a, p, n))
        real = hinge(za, zp, zn)
        level = math.exp(-PULL / max(float(self.average), 1e-6))
        self.average.mul_(0.95).add_(0.05 * real.detach())
        made = normalize(self.generator(harder(za, zp, zn, level).detach()))
        synthetic = hinge(za, zp, normalize(made.detach() @ L))
        plausible = self.generator_loss(batch)
        trust = math.exp(-BALANCE / max(float(plausible.detach()), 1e-6))
        return trust * real + (1 - trust) * synthetic + plausible

    def generator_loss(self, batch: Batch) -> torch.Tensor:
        """Features given back from their embedding, and of the right class."""
        x = batch.features.detach()
        made = normalize(self.generator(normalize(x @ batch.projection.detach())))
        right = cross_entropy(self.classifier(made), batch.labels)
        return safe_mean((made - x).square().sum(1)) + SOFTMAX * right


METHOD = Method("triplet-hdml", "Triplet + HDML", class_sampler, HDML, uses_labels=True)
