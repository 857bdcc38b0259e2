"""DAML: Duan, Zheng, Lin, Lu and Zhou, "Deep adversarial metric learning" (CVPR 2018)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import normalize

from rpml.deep.methods.base import Batch, Loss, LossSpec, Method, safe_mean
from rpml.deep.methods.labels import class_sampler
from rpml.deep.methods.triplet import MARGIN
from rpml.method.triplets.sampling import mine_batch_triplets

HARD, NEAR_TRUTH, ADVERSARIAL = 1.0, 1.0, 1.0
MAX_TRIPLETS = 500


def draw_triplets(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features of random (anchor, positive, negative) of the batch."""
    found = mine_batch_triplets(
        batch.embedding.detach().cpu().numpy(),
        batch.labels.cpu().numpy(),
        batch.rng,
        mining="all",
        limit=MAX_TRIPLETS,
    )
    a, p, n = torch.from_numpy(found).to(batch.features.device).T
    return batch.features[a], batch.features[p], batch.features[n]


def hinge(a: torch.Tensor, p: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """The triplet loss of embedded rows."""
    gap = (a - p).square().sum(1) - (a - n).square().sum(1)
    return safe_mean((gap + MARGIN).clamp(min=0))


class DAML(Loss):
    """A generator makes negatives hard for the metric, which learns from them.

    J_gen = |n~ - a|^2 + |n~ - n|^2 + [d(n~, a) - d(p, a) - margin]_+ trains the generator, the
    triplet loss on (a, p, n~) and on (a, p, n) the metric.
    """

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        width = spec.n_features
        with torch.random.fork_rng():
            torch.manual_seed(spec.seed)
            self.generator = nn.Sequential(
                nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, width)
            )

    def forward(self, batch: Batch) -> torch.Tensor:
        a, p, n = draw_triplets(batch)
        fixed = (a.detach(), p.detach(), n.detach())
        made = self.generate(*fixed)
        L = batch.projection
        truth = hinge(*(normalize(x @ L) for x in (a, p, n)))
        hard = hinge(*(normalize(x @ L) for x in (a, p, made.detach())))
        return truth + hard + generator_loss(*fixed, made, L.detach())

    def generate(self, a: torch.Tensor, p: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        """A synthetic negative a triplet: the true one and what the generator adds to it."""
        return normalize(n + self.generator(torch.cat([a, p, n], dim=1)))


def generator_loss(
    a: torch.Tensor, p: torch.Tensor, n: torch.Tensor, made: torch.Tensor, L: torch.Tensor
) -> torch.Tensor:
    """J_gen: near the anchor, near the true negative, and misplaced by the metric."""
    za, zp, zm = (normalize(x @ L) for x in (a, p, made))
    misplaced = (zm - za).square().sum(1) - (zp - za).square().sum(1) - MARGIN
    return (
        HARD * safe_mean((made - a).square().sum(1))
        + NEAR_TRUTH * safe_mean((made - n).square().sum(1))
        + ADVERSARIAL * safe_mean(misplaced.clamp(min=0))
    )


METHOD = Method("triplet-daml", "Triplet + DAML", class_sampler, DAML, uses_labels=True)
