"""The rarer deep methods of the tables of the paper, label-free ones here; ALL has them all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from deep_synthetic import DAML, HDML, ddml
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import cg
from torch import nn
from torch.nn.functional import cross_entropy, logsigmoid, normalize

from rpml.deep.methods import METHODS
from rpml.deep.methods.base import (
    Batch,
    Batches,
    BatchIndices,
    FeatureBank,
    Loss,
    LossSpec,
    Method,
    class_sampler,
    group_batches,
    label_sampler,
    stateless,
)
from rpml.evaluation.metrics import kmeans
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.rows import Indices, sorted_sample, top_k

CLUSTERS = 300  # k-means; a multiple of the number of classes, as DeepCluster advises
INVARIANT_TEMPERATURE = 0.1
NCE_TEMPERATURE, NCE_NEGATIVES, NCE_MOMENTUM = 0.07, 4096, 0.5
MOM_NEIGHBORS = 30
MOM_POSITIVES = 50  # k of eq. (6) for positives: ranks that count as near, the anchor included
MOM_NEGATIVES = 100  # k of eq. (6) for negatives, as for CUB-200-2011
MOM_HARDEST = 10  # negatives are drawn from the nearest of the pool
MOM_POWER = 3.0  # of the similarities
MOM_DIFFUSION = 0.99  # alpha
MOM_CG_STEPS = 20
MOM_ANCHORS = 10_000  # a diffusion each: beyond, a random sample
MOM_MARGIN = 0.5

Pool = tuple[int, Indices, Indices, NDArray[np.floating]]
"""An anchor, its positives, its negatives and the weights of its positives."""


def instance_sampler(bank: FeatureBank) -> tuple[Batches, None]:
    """Two views per image; each image is its own label."""
    return partial(group_batches, np.arange(len(bank.features))[:, None]), None


def kmeans_labels(bank: FeatureBank, n_clusters: int = CLUSTERS) -> Indices:
    """k-means on the features."""
    n_clusters = min(n_clusters, max(2, len(bank.features) // 4))
    rng = np.random.default_rng([bank.seed, n_clusters])
    return np.asarray(kmeans(bank.features, n_clusters, rng).labels_, np.intp)


class Exemplar(Loss):
    """Softmax over one surrogate class per image; its views are the examples.

    Dosovitskiy et al., "Discriminative unsupervised feature learning ..." (NIPS 2014).
    """

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        start = spec.random(spec.n_images, spec.n_components)
        self.classifier = nn.Parameter(start / spec.n_components**0.5)
        self.bias = nn.Parameter(torch.zeros(spec.n_images))

    def forward(self, batch: Batch) -> torch.Tensor:
        scores = batch.embedding @ self.classifier.T + self.bias
        return cross_entropy(scores, batch.rows)


class MemoryNCE(Loss):
    """Noise-contrastive estimation of the softmax over a memory bank of all images.

    Wu, Xiong, Yu and Lin, "... non-parametric instance discrimination" (CVPR 2018). With the
    normalizer Z estimated from the first batch, p = exp(v.z / t) / Z and h = p / (p + m / n), the
    loss is -log h(own entry) - sum over m noise entries of log(1 - h).
    """

    memory: torch.Tensor
    partition: torch.Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        self.register_buffer("memory", normalize(spec.random(spec.n_images, spec.n_components)))
        self.register_buffer("partition", torch.zeros(()))

    def forward(self, batch: Batch) -> torch.Tensor:
        n = len(self.memory)
        m = min(NCE_NEGATIVES, n)
        noise = torch.from_numpy(batch.rng.integers(0, n, (len(batch.rows), m)))
        entries = torch.cat([batch.rows[:, None], noise.to(batch.rows.device)], dim=1)
        scores = torch.einsum("bd,bmd->bm", batch.embedding, self.memory[entries])
        scores = scores / NCE_TEMPERATURE
        if float(self.partition) == 0.0:
            self.partition.fill_(float(scores.detach().exp().mean()) * n)
        # log of p / (m / n): h = sigmoid of it
        ratio = scores - torch.log(self.partition) - math.log(m / n)
        self._update(batch)
        return -(logsigmoid(ratio[:, 0]) + logsigmoid(-ratio[:, 1:]).sum(1)).mean()

    def _update(self, batch: Batch) -> None:
        old, new = self.memory[batch.rows], batch.embedding.detach()
        self.memory[batch.rows] = normalize(NCE_MOMENTUM * old + (1 - NCE_MOMENTUM) * new)


class DeepCluster(Loss):
    """Softmax over the clusters; the classifier is reset with every new assignment.

    Caron, Bojanowski, Joulin and Douze, "Deep clustering ..." (ECCV 2018).
    """

    assigned: torch.Tensor

    def __init__(self, spec: LossSpec) -> None:
        super().__init__()
        self.classifier = nn.Parameter(torch.zeros(CLUSTERS, spec.n_components))
        self.register_buffer("assigned", torch.full((spec.n_images,), -1))
        self._start = spec.random(CLUSTERS, spec.n_components) / spec.n_components**0.5

    def begin_epoch(self, labels: Indices | None) -> None:
        assigned = torch.from_numpy(np.asarray(labels, np.int64)).to(self.assigned.device)
        if not torch.equal(assigned, self.assigned):
            self.assigned.copy_(assigned)
            with torch.no_grad():
                self.classifier.copy_(self._start)

    def forward(self, batch: Batch) -> torch.Tensor:
        return cross_entropy(batch.embedding @ self.classifier.T, batch.labels)


def invariant(batch: Batch) -> torch.Tensor:
    """Softmax over the images of the batch: each view is its own image, no image is another.

    Ye, Zhang, Yuen and Chang, "... invariant and spreading instance feature" (CVPR 2019). With
    P(i | z) = exp(f_i.z / t) / sum_k exp(f_k.z / t), the loss is the mean over the images of
    -log P(i | view of i) - sum over j != i of log(1 - P(i | f_j)).
    """
    image, view = batch.embedding.chunk(2)
    b = len(image)
    own = torch.log_softmax(view @ image.T / INVARIANT_TEMPERATURE, dim=1).diagonal()
    shares = torch.softmax(image @ image.T / INVARIANT_TEMPERATURE, dim=1)  # row j: P(. | f_j)
    others = ~torch.eye(b, dtype=torch.bool, device=image.device)
    spread = torch.log1p(-shares[others].clamp(max=1 - 1e-6))
    return -(own.sum() + spread.sum()) / b


def reciprocal_graph(features: NDArray[np.floating], k: int) -> sparse.csr_matrix:
    """D^-1/2 W D^-1/2 of the mutual k-NN graph with weights max(0, cosine)^3."""
    graph = nearest_neighbors(features, k, metric="cosine")
    n = len(features)
    rows = np.repeat(np.arange(n), graph.indices.shape[1])
    # cosine distances are chords of the unit sphere: d^2 = 2 - 2 cos
    cosine = 1 - graph.distances.ravel().astype(np.float64) ** 2 / 2
    weights = np.maximum(0.0, cosine) ** MOM_POWER
    W = sparse.csr_matrix((weights, (rows, graph.indices.ravel())), (n, n))
    W = W.minimum(W.T)
    scale = 1 / np.sqrt(np.maximum(np.asarray(W.sum(axis=1)).ravel(), 1e-12))
    return (sparse.diags(scale) @ W @ sparse.diags(scale)).tocsr()


def diffusion_system(graph: sparse.csr_matrix) -> sparse.csr_matrix:
    """I - alpha S."""
    return (sparse.identity(graph.shape[0]) - MOM_DIFFUSION * graph).tocsr()


def manifold_similarity(
    system: sparse.csr_matrix, query: int, max_iter: int = MOM_CG_STEPS
) -> NDArray[np.float64]:
    """f with (I - alpha S) f = e_query: the diffusion of Iscen et al. (CVPR 2017)."""
    start = np.zeros(system.shape[0])
    start[query] = 1.0
    return np.asarray(cg(system, start, rtol=1e-10, atol=0.0, maxiter=max_iter)[0])


def mine_pools(bank: FeatureBank) -> list[Pool]:
    """Every image (of at most `MOM_ANCHORS`) as anchor, with pools of positives and negatives.

    Iscen, Tolias, Avrithis and Chum, "Mining on manifolds" (CVPR 2018).

    Positives are neighbors on the manifold but not in Euclidean space, negatives are neighbors
    in Euclidean space but not on the manifold. A triplet weighs as much as the manifold similarity
    of its positive. Anchors with an empty pool are left out.
    """
    X = bank.features
    n = len(X)
    k_positive, k_negative = (min(k, -(-n // 2)) for k in (MOM_POSITIVES, MOM_NEGATIVES))
    system = diffusion_system(reciprocal_graph(X, min(MOM_NEIGHBORS, n - 2)))
    near = nearest_neighbors(X, max(k_positive, k_negative) - 1, metric="cosine").indices
    pools: list[Pool] = []
    for anchor in sorted_sample(n, MOM_ANCHORS, np.random.default_rng(bank.seed)).tolist():
        similarity = manifold_similarity(system, anchor)
        similarity[anchor] = np.inf  # the anchor is its own first neighbor in both rankings
        ranking = top_k(similarity, max(k_positive, k_negative))
        positive = np.setdiff1d(
            ranking[1:k_positive], near[anchor, : k_positive - 1], assume_unique=True
        )
        positive = positive[similarity[positive] > 0]
        close = near[anchor, : k_negative - 1]
        negative = close[~np.isin(close, ranking[:k_negative])][:MOM_HARDEST].astype(np.intp)
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
    return (batch.weights * (gap + MOM_MARGIN).clamp(min=0)).mean()


# Published budgets: Invariant, and the label-free methods that its paper compares with, from its
# authors' code (60 passes, 128 images per batch in two views, one for DeepCluster); MOM from its
# code (100 passes over the anchors, 42 triplets), HDML from its code (8,000 steps).
BASELINES: dict[str, Method] = {
    "exemplar": Method("Exemplar", instance_sampler, Exemplar, budget=(120, 256)),
    "nce": Method("NCE", instance_sampler, MemoryNCE, budget=(120, 256)),
    "deepcluster": Method(
        "DeepCluster",
        lambda bank: label_sampler(kmeans_labels(bank)),
        DeepCluster,
        budget=(60, 128),
    ),
    "mom": Method(
        "MOM", pool_sampler, stateless(weighted_triplet), mines_once=True, budget=(300, 126)
    ),
    "invariant": Method("Invariant", instance_sampler, stateless(invariant), budget=(120, 256)),
    "ddml": Method("DDML", class_sampler, stateless(ddml), 1e-3, uses_labels=True),
    "triplet-daml": Method("Triplet + DAML", class_sampler, DAML, 1e-3, uses_labels=True),
    "triplet-hdml": Method(
        "Triplet + HDML", class_sampler, HDML, uses_labels=True, budget=(175, 128)
    ),
}
_ORDER = (
    "exemplar nce deepcluster mom invariant stml srpml contrastive ddml triplet triplet-hard "
    "triplet-daml triplet-hdml lifted"
)
ALL = {name: (METHODS | BASELINES)[name] for name in _ORDER.split()}
"""In the order of the tables of the paper."""
