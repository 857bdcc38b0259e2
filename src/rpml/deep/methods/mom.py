"""MOM: Iscen, Tolias, Avrithis and Chum, "Mining on manifolds" (CVPR 2018)."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import cg

from rpml.deep.methods.base import Batch, Batches, BatchIndices, FeatureBank, Indices
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.rows import sorted_sample, top_k

GRAPH_NEIGHBORS = 30
POSITIVE_RANKS = 50  # k of eq. (6) for positives: ranks that count as near, the anchor included
NEGATIVE_RANKS = 100  # k of eq. (6) for negatives, as for CUB-200-2011
HARDEST = 10  # negatives are drawn from the nearest of the pool
POWER = 3.0  # of the similarities
DIFFUSION = 0.99  # alpha
CG_STEPS = 20
MAX_ANCHORS = 10_000  # a diffusion each: beyond, a random sample
MARGIN = 0.5

Pool = tuple[int, Indices, Indices, NDArray[np.floating]]
"""An anchor, its positives, its negatives and the weights of its positives."""


def reciprocal_graph(features: NDArray[np.floating], k: int) -> sparse.csr_matrix:
    """D^-1/2 W D^-1/2 of the mutual k-NN graph with weights max(0, cosine)^3."""
    graph = nearest_neighbors(features, k, metric="cosine")
    n = len(features)
    rows = np.repeat(np.arange(n), graph.indices.shape[1])
    # cosine distances are chords of the unit sphere: d^2 = 2 - 2 cos
    cosine = 1 - graph.distances.ravel().astype(np.float64) ** 2 / 2
    weights = np.maximum(0.0, cosine) ** POWER
    W = sparse.csr_matrix((weights, (rows, graph.indices.ravel())), (n, n))
    W = W.minimum(W.T)
    scale = 1 / np.sqrt(np.maximum(np.asarray(W.sum(axis=1)).ravel(), 1e-12))
    return (sparse.diags(scale) @ W @ sparse.diags(scale)).tocsr()


def diffusion_system(graph: sparse.csr_matrix) -> sparse.csr_matrix:
    """I - alpha S."""
    return (sparse.identity(graph.shape[0]) - DIFFUSION * graph).tocsr()


def manifold_similarity(
    system: sparse.csr_matrix, query: int, max_iter: int = CG_STEPS
) -> NDArray[np.float64]:
    """f with (I - alpha S) f = e_query: the diffusion of Iscen et al. (CVPR 2017)."""
    start = np.zeros(system.shape[0])
    start[query] = 1.0
    return np.asarray(cg(system, start, rtol=1e-10, atol=0.0, maxiter=max_iter)[0])


def mine_pools(bank: FeatureBank) -> list[Pool]:
    """Every image (of at most `MAX_ANCHORS`) as anchor, with pools of positives and negatives.

    Positives are neighbors on the manifold but not in Euclidean space, negatives are neighbors
    in Euclidean space but not on the manifold. A triplet weighs as much as the manifold similarity
    of its positive. Anchors with an empty pool are left out.
    """
    X = bank.features
    n = len(X)
    k_positive, k_negative = (min(k, -(-n // 2)) for k in (POSITIVE_RANKS, NEGATIVE_RANKS))
    system = diffusion_system(reciprocal_graph(X, min(GRAPH_NEIGHBORS, n - 2)))
    near = nearest_neighbors(X, max(k_positive, k_negative) - 1, metric="cosine").indices
    pools: list[Pool] = []
    for anchor in sorted_sample(n, MAX_ANCHORS, np.random.default_rng(bank.seed)).tolist():
        similarity = manifold_similarity(system, anchor)
        similarity[anchor] = np.inf  # the anchor is its own first neighbor in both rankings
        ranking = top_k(similarity, max(k_positive, k_negative))
        positive = np.setdiff1d(
            ranking[1:k_positive], near[anchor, : k_positive - 1], assume_unique=True
        )
        positive = positive[similarity[positive] > 0]
        close = near[anchor, : k_negative - 1]
        negative = close[~np.isin(close, ranking[:k_negative])][:HARDEST].astype(np.intp)
        if len(positive) and len(negative):
            pools.append((anchor, positive, negative, similarity[positive]))
    return pools


def triplet_batches(
    pools: Sequence[Pool], rng: Generator, n_views: int, batch_size: int
) -> Iterator[BatchIndices]:
    """Yield batches with one (anchor, positive, negative) of each anchor, in random order."""
    order = rng.permutation(len(pools))
    per_batch = max(1, batch_size // 3)
    for start in range(0, len(order), per_batch):
        selected = [pools[i] for i in order[start : start + per_batch]]
        drawn = [rng.integers(len(positives)) for _, positives, _, _ in selected]
        triplets = [
            (anchor, positives[i], rng.choice(negatives))
            for (anchor, positives, negatives, _), i in zip(selected, drawn, strict=True)
        ]
        rows = np.array(triplets).ravel()
        weights = np.array([pool[3][i] for pool, i in zip(selected, drawn, strict=True)])
        yield BatchIndices(rows, rng.integers(0, n_views, len(rows)), rows, weights)


def pool_sampler(bank: FeatureBank) -> tuple[Batches, None]:
    """Batches of triplets from the pools of every anchor."""
    return partial(triplet_batches, mine_pools(bank)), None


def weighted_triplet(batch: Batch) -> torch.Tensor:
    """w max(0, |a - p|^2 - |a - n|^2 + margin) of consecutive (anchor, positive, negative) rows."""
    assert batch.weights is not None
    a, p, n = (batch.embedding[i::3] for i in range(3))
    gap = (a - p).square().sum(1) - (a - n).square().sum(1)
    return (batch.weights * (gap + MARGIN).clamp(min=0)).mean()
