"""MOM: Iscen, Tolias, Avrithis and Chum, "Mining on manifolds" (CVPR 2018)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from rpml.deep.batches import ByTriplet
from rpml.deep.methods.base import Batch, Indices, Knowledge, Loss, Method, Setup
from rpml.method.graph.neighbors import nearest_neighbors

NEIGHBORS = 30  # of the reciprocal graph
NEAREST = 50  # how far either ranking is looked at
WALK = 0.99  # the walk goes on with this probability
POWER = 3.0  # of the cosine similarities
ANCHORS = 1000
MARGIN = 0.5


def reciprocal_graph(features: NDArray[np.floating], k: int) -> sparse.csr_matrix:
    """Mutual k-nearest-neighbour graph with weights max(0, cosine)^3, symmetrically normalised."""
    found = nearest_neighbors(features, k, metric="cosine")
    n = len(features)
    rows = np.repeat(np.arange(n), found.indices.shape[1])
    weights = np.maximum(0.0, 1 - found.distances.ravel().astype(np.float64)) ** POWER
    W = sparse.csr_matrix((weights, (rows, found.indices.ravel())), (n, n))
    W = W.minimum(W.T)
    scale = 1 / np.sqrt(np.maximum(np.asarray(W.sum(axis=1)).ravel(), 1e-12))
    return (sparse.diags(scale) @ W @ sparse.diags(scale)).tocsr()


def stationary(graph: sparse.csr_matrix, degrees_from: int = 30) -> NDArray[np.float64]:
    """Authority of each node under the random walk, by a few power iterations."""
    v = np.full(graph.shape[0], 1 / graph.shape[0])
    for _ in range(degrees_from):
        v = graph.T @ v
        v /= max(float(v.sum()), 1e-12)
    return np.asarray(v)


def manifold_ranking(
    graph: sparse.csr_matrix, queries: Indices, iterations: int = 30
) -> NDArray[np.float64]:
    """(I - c S)^-1 y of each query: random walk with restart, by its power series."""
    start = np.zeros((graph.shape[0], len(queries)))
    start[queries, np.arange(len(queries))] = 1.0
    f = start.copy()
    for _ in range(iterations):
        f = WALK * (graph @ f) + (1 - WALK) * start
    return np.asarray(f.T)


def mine_pools(known: Knowledge) -> ByTriplet:
    """Anchors of high authority, each with a pool of hard positives and of hard negatives.

    Positives are near on the manifold but not among the Euclidean neighbours; negatives are
    Euclidean neighbours that are not near on the manifold.
    """
    X = known.features
    k = min(NEAREST, len(X) - 2)
    graph = reciprocal_graph(X, min(NEIGHBORS, len(X) - 2))
    anchors = np.sort(np.argsort(-stationary(graph), kind="stable")[:ANCHORS])
    near = nearest_neighbors(X, k, metric="cosine").indices[anchors]
    ranked = manifold_ranking(graph, anchors)
    ranked[np.arange(len(anchors)), anchors] = -1.0
    order = np.argsort(-ranked, axis=1, kind="stable")[:, :k]
    kept, positives, negatives = [], [], []
    for i, anchor in enumerate(anchors):
        on_manifold = order[i][ranked[i, order[i]] > 0]
        far = np.setdiff1d(on_manifold, near[i])
        close = np.setdiff1d(near[i], on_manifold)
        if len(far) and len(close):
            kept.append(anchor)
            positives.append(far)
            negatives.append(close)
    return ByTriplet(np.array(kept, np.intp), positives, negatives)


class PoolTriplet(Loss):
    """The triplet hinge on (anchor, positive, negative) rows that follow each other."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()

    def forward(self, batch: Batch) -> torch.Tensor:
        Z = batch.embedding
        a, p, n = Z[0::3], Z[1::3], Z[2::3]
        gap = (a - p).square().sum(1) - (a - n).square().sum(1)
        return (gap + MARGIN).clamp(min=0).mean()


METHOD = Method("mom", "MOM", mine_pools, PoolTriplet)
