"""Affinities against their formulas, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from rpml.method.clustering.ascent import affinity_graph, check_graph
from rpml.method.graph.neighbors import Neighbors, nearest_neighbors


def data(n=80, d=5, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def oracle(X, neighbors, affinity, bandwidth, symmetric):
    """The formulas of the docstring, one edge after the other."""
    n, k = neighbors.indices.shape
    distance = np.linalg.norm(X[:, None] - X[None], axis=2)
    seventh = np.sort(distance, axis=1)[:, min(7, k)]
    scales = {
        "local": seventh,
        "balanced": np.sqrt(seventh * np.median(seventh)),
        "global": np.full(n, np.median(seventh)),
    }
    s = scales[bandwidth] if isinstance(bandwidth, str) else np.full(n, bandwidth)
    W = np.zeros((n, n))
    for i in range(n):
        for j in neighbors.indices[i]:
            if affinity == "cosine":
                cosine = X[i] @ X[j] / np.linalg.norm(X[i]) / np.linalg.norm(X[j])
                W[i, j] = max(0.0, cosine)
            else:
                W[i, j] = np.exp(-(distance[i, j] ** 2) / (2 * s[i] * s[j]))
    return np.maximum(W, W.T) if symmetric else W


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bandwidth", ["local", "balanced", "global", 0.7])
def test_gaussian(bandwidth, symmetric):
    X = data()
    near = nearest_neighbors(X, 9, metric="euclidean")
    graph = affinity_graph(near, affinity="gaussian", bandwidth=bandwidth, symmetric=symmetric)
    expected = oracle(X, near, "gaussian", bandwidth, symmetric)
    np.testing.assert_allclose(graph.toarray(), expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
def test_cosine_clipped_at_zero(symmetric):
    X = data(30, 3)
    near = nearest_neighbors(X, 25, metric="cosine")
    graph = affinity_graph(near, affinity="cosine", symmetric=symmetric)
    expected = oracle(X, near, "cosine", "local", symmetric)
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
    graph = affinity_graph(near, affinity="gaussian", bandwidth="local")
    assert np.isfinite(graph.data).all()
    assert graph[0, 1] == 1.0
    assert graph[0, 9:].nnz > 0


def test_all_rows_identical():
    near = nearest_neighbors(np.ones((12, 3)), 5, metric="euclidean")
    graph = affinity_graph(near, affinity="gaussian")
    assert (graph.data == 1.0).all()


def test_a_given_graph_loses_its_diagonal_and_its_zeros():
    graph = check_graph(np.array([[3.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    np.testing.assert_array_equal(graph.toarray(), [[0, 1, 0], [2, 0, 0], [0, 0, 0]])
    assert graph.nnz == 2


def test_a_given_graph_is_not_changed():
    entries = np.array([0.5, 0.0, 0.25, 1.0]), np.array([2, 1, 2, 0]), np.array([0, 3, 4, 4])
    for part in entries:
        part.setflags(write=False)
    graph = check_graph(sparse.csr_matrix(entries, shape=(3, 3), copy=False))
    np.testing.assert_array_equal(graph.toarray(), [[0, 0, 0.75], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(entries[1], [2, 1, 2, 0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: check_graph(np.ones((2, 3))), "square"),
        (lambda: check_graph(np.array([[0, -1.0], [1, 0]])), "non-negative, got -1"),
        (lambda: check_graph(np.array([[0, np.inf], [1, 0]])), "finite"),
        (lambda: affinity_graph(euclidean(), affinity="cosine"), "metric='cosine'"),
    ],
)
def test_bad_input_gets_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def euclidean() -> Neighbors:
    return nearest_neighbors(data(10), 3, metric="euclidean")
