"""Scores of an embedding: retrieval (Recall@K) and clustering (NMI, pairwise F)."""

from rpml.evaluation.metrics.clustering import (
    bounded_scores,
    clustering_scores,
    kmeans,
    kmeans_labels,
    nmi_interval,
    pair_scores,
)
from rpml.evaluation.metrics.retrieval import first_hit_rank, ndcg_at_10, recall_at_k

__all__ = [
    "bounded_scores",
    "clustering_scores",
    "first_hit_rank",
    "kmeans",
    "kmeans_labels",
    "ndcg_at_10",
    "nmi_interval",
    "pair_scores",
    "recall_at_k",
]
