"""Supervised deep baselines: DDML, and triplets with synthetic negatives (DAML, HDML)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, normalize, softplus

from rpml.deep.methods.base import Batch, Loss, LossSpec, safe_mean, squared_distances
from rpml.deep.methods.baselines import TRIPLET_MARGIN, pair_masks
from rpml.method.triplets.sampling import mine_batch_triplets
from rpml.runtime.rows import Indices

MAX_TRIPLETS = 500
DDML_THRESHOLD = 1.5  # tau: squared distances of unit rows lie in [0, 4]
DDML_SHARPNESS = 10.0  # beta of the generalized logistic loss
DAML_REGULARIZER, DAML_ADVERSARIAL = 1.0, 50.0  # lambda_1 and lambda_2 of the paper
HDML_PULL = 0.1  # alpha; the paper's 7 is for the losses of unscaled GoogLeNet features
HDML_BALANCE = 1.0  # beta; the paper's 1e4, likewise
HDML_SOFTMAX = 0.5  # lambda


def ddml(batch: Batch) -> torch.Tensor:
    """g(1 - l (tau - d^2)), g(z) = log(1 + exp(beta z)) / beta, l = 1 for positive pairs, else -1.

    Hu, Lu and Tan, "Discriminative deep metric learning ..." (CVPR 2014). Positive and negative
    pairs are averaged separately: there are 30 times more negative ones.
    """
    gap = DDML_THRESHOLD - squared_distances(batch.embedding)
    same, other = pair_masks(batch.labels)
    near = softplus(DDML_SHARPNESS * (1 - gap[same])) / DDML_SHARPNESS
    far = softplus(DDML_SHARPNESS * (1 + gap[other])) / DDML_SHARPNESS
    return (safe_mean(near) + safe_mean(far)) / 2


def triplet_hinge(a: torch.Tensor, p: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """Mean of max(0, |a - p|^2 - |a - n|^2 + margin) over rows."""
    gap = (a - p).square().sum(1) - (a - n).square().sum(1)
    return safe_mean((gap + TRIPLET_MARGIN).clamp(min=0))


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


class DAML(Loss):
    """A generator makes negatives that are hard for the metric, which learns from them.

    Duan, Zheng, Lin, Lu and Zhou, "Deep adversarial metric learning" (CVPR 2018).
    J_gen = |n~ - a|^2 + l1 |n~ - n|^2 + l2 [d(n~, a) - d(p, a) - margin]_+ trains the generator;
    the triplet losses of (a, p, n~) and of (a, p, n) train the metric.
    """

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        width = spec.n_features
        with torch.random.fork_rng():
            torch.manual_seed(spec.seed)
            self.generator = nn.Sequential(
                nn.Linear(3 * width, width),
                nn.ReLU(),
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Linear(width, width),
            )

    def forward(self, batch: Batch) -> torch.Tensor:
        triplets = random_triplets(batch)
        a, p, n = (batch.features[i] for i in triplets)
        za, zp, zn = (batch.embedding[i] for i in triplets)
        fixed = (a.detach(), p.detach(), n.detach())
        synthetic = self.generate(*fixed)
        L = batch.projection
        metric = triplet_hinge(za, zp, zn)
        metric = metric + triplet_hinge(za, zp, normalize(synthetic.detach() @ L))
        return metric + generator_loss(*fixed, synthetic, L.detach())

    def generate(self, a: torch.Tensor, p: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        """One synthetic negative per triplet: the true negative plus the generator's output."""
        return normalize(n + self.generator(torch.cat([a, p, n], dim=1)))


def generator_loss(
    a: torch.Tensor, p: torch.Tensor, n: torch.Tensor, synthetic: torch.Tensor, L: torch.Tensor
) -> torch.Tensor:
    """J_gen: near the anchor, near the true negative, and misplaced by the metric."""
    za, zp, zs = (normalize(x @ L) for x in (a, p, synthetic))
    misplaced = (zs - za).square().sum(1) - (zp - za).square().sum(1) - TRIPLET_MARGIN
    terms = (
        (synthetic - a).square().sum(1)
        + DAML_REGULARIZER * (synthetic - n).square().sum(1)
        + DAML_ADVERSARIAL * misplaced.clamp(min=0)
    )
    return terms.mean()


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

    Zheng, Chen, Lu and Zhou, "Hardness-aware deep metric learning" (CVPR 2019). The level of the
    synthetic negatives is exp(-alpha / J_avg), J_avg the mean metric loss of the last epoch. The
    generator maps embeddings back to features; it is trained by the reconstruction of the real
    features and by the classification of the synthetic ones. The metric learns from
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

    def begin_epoch(self, labels: Indices | None) -> None:
        if self.epoch_losses[1] > 0:
            self.average.copy_(self.epoch_losses[0] / self.epoch_losses[1])
        self.epoch_losses.zero_()

    def forward(self, batch: Batch) -> torch.Tensor:
        a, p, n = random_triplets(batch)
        za, zp, zn = (batch.embedding[i] for i in (a, p, n))
        real = triplet_hinge(za, zp, zn)
        hard = hard_negatives(za, zp, zn, math.exp(-HDML_PULL / max(float(self.average), 1e-6)))
        synthetic = triplet_hinge(*(self.reconstruct(z, batch) for z in (za, zp, hard)))
        plausible = self.generator_loss(batch, hard.detach(), n)
        trust = math.exp(-HDML_BALANCE / max(float(plausible.detach()), 1e-6))
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
        reconstruction = (reconstructed - x).square().sum(1).mean()
        return reconstruction + HDML_SOFTMAX * cross_entropy(scores, labels)


def _detached(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach() for name, value in module.named_parameters()}
