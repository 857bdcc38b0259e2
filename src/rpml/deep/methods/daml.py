"""DAML: Duan, Zheng, Lin, Lu and Zhou, "Deep adversarial metric learning" (CVPR 2018)."""

import torch
from torch import nn
from torch.nn.functional import normalize

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method
from rpml.deep.methods.labels import class_sampler
from rpml.deep.methods.triplet import MARGIN, random_triplets, triplet_hinge

REGULARIZER, ADVERSARIAL = 1.0, 50.0  # lambda_1 and lambda_2 of the paper


class DAML(Loss):
    """A generator makes negatives that are hard for the metric, which learns from them.

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
    misplaced = (zs - za).square().sum(1) - (zp - za).square().sum(1) - MARGIN
    terms = (
        (synthetic - a).square().sum(1)
        + REGULARIZER * (synthetic - n).square().sum(1)
        + ADVERSARIAL * misplaced.clamp(min=0)
    )
    return terms.mean()


METHOD = Method(class_sampler, DAML, learning_rate=1e-3)
