"""Invariant: Ye, Zhang, Yuen, Chang, "... invariant and spreading instance feature" (CVPR 2019)."""

import torch

from rpml.deep.methods.base import Batch, Loss, Method
from rpml.deep.methods.labels import instance_sampler

TEMPERATURE = 0.1


class Invariant(Loss):
    """Softmax over the images of the batch: each view is its own image, no image is another.

    P(i | z) = exp(f_i.z / t) / sum_k exp(f_k.z / t); the loss is the mean over the images of
    -log P(i | view of i) - sum over j != i of log(1 - P(i | f_j)).
    """

    def forward(self, batch: Batch) -> torch.Tensor:
        image, view = batch.embedding.chunk(2)
        b = len(image)
        own = torch.log_softmax(view @ image.T / TEMPERATURE, dim=1).diagonal()
        shares = torch.softmax(image @ image.T / TEMPERATURE, dim=1)  # row j: P(. | f_j)
        others = ~torch.eye(b, dtype=torch.bool, device=image.device)
        spread = torch.log1p(-shares[others].clamp(max=1 - 1e-6))
        return -(own.sum() + spread.sum()) / b


METHOD = Method(instance_sampler, Invariant)
