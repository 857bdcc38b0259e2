"""Affinities against their formulas, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from rpml.method.clustering.ascent import affinity_graph
from rpml.method.graph.neighbors import nearest_neighbors


def data(n=80, d=5, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def oracle(X, neighbors, affinity):
    """The formulas of the docstring, one edge after the other."""
    n, k = neighbors.indices.shape
    distance = np.linalg.norm(X[:, None] - X[None], axis=2)
    s = np.sort(distance, axis=1)[:, min(7, k)]
    W = np.zeros((n, n))
    for i in range(n):
        for j in neighbors.indices[i]:
            if affinity == "cosine":
                cosine = X[i] @ X[j] / np.linalg.norm(X[i]) / np.linalg.norm(X[j])
                W[i, j] = max(0.0, cosine)
            else:
                W[i, j] = np.exp(-(distance[i, j] ** 2) / (2 * s[i] * s[j]))
    return np.maximum(W, W.T)


def test_gaussian():
    X = data()
    near = nearest_neighbors(X, 9, metric="euclidean")
    graph = affinity_graph(near, affinity="gaussian")
    np.testing.assert_allclose(graph.toarray(), oracle(X, near, "gaussian"), rtol=1e-3, atol=1e-6)


def test_cosine_clipped_at_zero():
    X = data(30, 3)
    near = nearest_neighbors(X, 25, metric="cosine")
    graph = affinity_graph(near, affinity="cosine")
    expected = oracle(X, near, "cosine")
    np.testing.assert_allclose(graph.toarray(), expected, atol=1e-5)
    assert (expected == 0).sum() > 30  # some edges were clipped
    assert (graph.data > 0).all()


@pytest.mark.parametrize("affinity", ["cosine", "gaussian"])
def test_shape_of_the_graph(affinity):
    X = np.vstack([data(60), data(60)[:20]])  # with duplicates
    near = nearest_neighbors(X, 7, metric="cosine")
    before = near.indices.copy()
    graph = affinity_graph(near, affinity=affinity)
    np.testing.assert_array_equal(near.indices, before)
    assert isinstance(graph, sparse.csr_matrix)
    assert graph.dtype == np.float32
    assert graph.has_sorted_indices
    assert graph.diagonal().sum() == 0
    assert (graph.data > 0).all()
    assert (graph.data <= 1 + 1e-6).all()
    assert (graph != graph.T).nnz == 0


def test_points_buried_in_duplicates_keep_their_other_edges():
    X = np.vstack([np.zeros((9, 2)), data(40, 2)])
    near = nearest_neighbors(X, 20, metric="euclidean")
    graph = affinity_graph(near, affinity="gaussian")
    assert np.isfinite(graph.data).all()
    assert graph[0, 1] == 1.0
    assert graph[0, 9:].nnz > 0


def test_all_rows_identical():
    near = nearest_neighbors(np.ones((12, 3)), 5, metric="euclidean")
    graph = affinity_graph(near, affinity="gaussian")
    assert (graph.data == 1.0).all()


def test_cosines_need_cosine_neighbors():
    near = nearest_neighbors(data(10), 3, metric="euclidean")
    with pytest.raises(ValueError, match="metric='cosine'"):
        affinity_graph(near, affinity="cosine")
