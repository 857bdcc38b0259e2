"""STML: Kim, Kim, Cho and Kwak, "Self-taught metric learning without labels" (CVPR 2022)."""

from __future__ import annotations

import numpy as np
import torch

from rpml.deep.batches import ByNeighbours
from rpml.deep.methods.base import Batch, Knowledge, Loss, Method, Setup, squared_distances
from rpml.method.graph.neighbors import nearest_neighbors

PER_QUERY = 4  # neighbours that join each image of a batch
CONTEXT = 10  # k of the contextual similarity
SIGMA = 3.0
MARGIN = 1.0


def neighbourhoods(known: Knowledge) -> ByNeighbours:
    """Batches of images with their nearest neighbours."""
    k = min(PER_QUERY, len(known.features) - 1)
    found = nearest_neighbors(known.features, k, metric="cosine").indices
    return ByNeighbours(found.astype(np.intp))


def contextual_similarity(Z: torch.Tensor) -> torch.Tensor:
    """Mean of the pairwise similarity exp(-d^2 / sigma) and of the overlap of neighbourhoods."""
    pairwise = torch.exp(-squared_distances(Z) / SIGMA)
    b = len(Z)
    k = min(CONTEXT, b)
    near = torch.zeros_like(pairwise)
    near.scatter_(1, pairwise.topk(k, dim=1).indices, 1.0)
    mutual = near * near.T  # k-reciprocal neighbours
    overlap = mutual @ mutual.T / mutual.sum(1, keepdim=True).clamp(min=1)
    # query expansion over the nearer half of the neighbourhood
    half = torch.zeros_like(pairwise)
    half.scatter_(1, pairwise.topk(max(1, k // 2), dim=1).indices, 1.0)
    expanded = half @ overlap / half.sum(1, keepdim=True)
    context = (expanded + expanded.T) / 2
    return (pairwise + context) / 2


class STML(Loss):
    """Relaxed contrastive loss: pairs are pulled and pushed by the teacher's similarity."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()

    def forward(self, batch: Batch) -> torch.Tensor:
        assert batch.teacher is not None
        similar = contextual_similarity(batch.teacher)
        d = (squared_distances(batch.embedding) + 1e-12).sqrt()
        d = d / d.mean(1, keepdim=True).clamp(min=1e-6)
        pulled = similar * d.square()
        pushed = (1 - similar) * (MARGIN - d).clamp(min=0).square()
        others = ~torch.eye(len(d), dtype=torch.bool, device=d.device)
        return (pulled + pushed)[others].mean()


METHOD = Method("stml", "STML (relaxed contrastive)", neighbourhoods, STML, teacher=True)
