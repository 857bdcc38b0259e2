"""A small batch for the tests of the losses: twelve rows of four classes."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from rpml.deep.methods.base import Batch, LossSpec

LOSS_SPEC = LossSpec(12, 5, 3, 4, seed=0)
LABELS = torch.arange(12) // 3


def point(seed=0):
    """Features (12, 5) and an orthonormal projection (5, 3), in double precision."""
    rng = np.random.default_rng(seed)
    x = normalize(torch.tensor(rng.standard_normal((12, 5))))
    L = nn.Parameter(torch.tensor(np.linalg.qr(rng.standard_normal((5, 3)))[0]))
    return x, L


def batch_of(x, L, seed=0):
    teacher = normalize(torch.sin(3 * x.detach()))
    rng = np.random.default_rng(seed)
    weights = torch.ones(4, dtype=x.dtype)  # of four triplets
    return Batch(x, normalize(x @ L), LABELS, torch.arange(12), L, rng, teacher, weights)


def unit(X):
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


def hinge(a, p, n, margin=0.2):
    return max(0.0, ((a - p) ** 2).sum() - ((a - n) ** 2).sum() + margin)


def layers(network, x):
    """A sequence of linear layers with ReLU between them, on one row, by numpy."""
    for layer in network:
        if isinstance(layer, nn.Linear):
            x = layer.weight.detach().numpy() @ x + layer.bias.detach().numpy()
        else:
            x = np.maximum(x, 0)
    return x
