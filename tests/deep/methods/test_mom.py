"""MOM: the graph, the pools and the loss against their definitions, written out slowly."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

import deep_baselines as mom
from deep_baselines import ALL as METHODS

from rpml.deep.methods.base import Batch, FeatureBank, LossSpec


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def angles(*degrees):
    t = np.radians(degrees)
    return np.stack([np.cos(t), np.sin(t)], axis=1)


def test_graph_of_five_points_by_hand():
    """On a circle at 0, 10, 30, 60 and 180 degrees, with two neighbors each.

    0: {10, 30}, 10: {0, 30}, 30: {10, 0 or 60}, 60: {30, 10}, 180: {60, 30}. The mutual edges are
    0-10, 10-30, 0-30 (30 and 0 are 30 degrees apart, as are 30 and 60: the test moves 60 to 61).
    """
    graph = mom.reciprocal_graph(angles(0, 10, 30, 61, 180), 2).toarray()
    W = np.zeros((5, 5))
    for i, j, degrees in ((0, 1, 10), (1, 2, 20), (0, 2, 30)):
        W[i, j] = W[j, i] = np.cos(np.radians(degrees)) ** 3
    degree = np.where(W.sum(1) > 0, W.sum(1), np.inf)
    np.testing.assert_allclose(graph, W / np.sqrt(np.outer(degree, degree)), atol=1e-6)


def test_opposite_points_have_no_edge():
    assert not mom.reciprocal_graph(angles(0, 180), 1).toarray().any()


def test_manifold_similarity_solves_the_diffusion():
    graph = mom.reciprocal_graph(np.random.default_rng(0).standard_normal((40, 6)), 8)
    exact = np.linalg.inv(np.eye(40) - mom.MOM_DIFFUSION * graph.toarray())
    for query in (3, 7):
        found = mom.manifold_similarity(mom.diffusion_system(graph), query, max_iter=400)
        np.testing.assert_allclose(found, exact[query], atol=1e-6)


def slow_pools(X, graph):
    """Eq. (6) of the paper, ranks by sorting all images; the anchor has rank 0 in both."""
    n = len(X)
    pools = {}
    for q in range(n):
        manifold = mom.manifold_similarity(mom.diffusion_system(graph), q)
        manifold[q] = np.inf
        euclidean = X @ X[q]
        euclidean[q] = np.inf
        by_manifold = sorted(range(n), key=lambda i: -manifold[i])
        by_euclid = sorted(range(n), key=lambda i: -euclidean[i])
        positive = {
            i for i in by_manifold[: mom.MOM_POSITIVES]
            if i not in by_euclid[: mom.MOM_POSITIVES] and manifold[i] > 0
        }  # fmt: skip
        negative = [
            i for i in by_euclid[: mom.MOM_NEGATIVES]
            if i not in by_manifold[: mom.MOM_NEGATIVES]
        ]  # fmt: skip
        if positive and negative:
            pools[q] = positive, negative[: mom.MOM_HARDEST], manifold
    return pools


def test_pools(monkeypatch):
    monkeypatch.setattr(mom, "MOM_POSITIVES", 12)
    monkeypatch.setattr(mom, "MOM_NEGATIVES", 20)
    monkeypatch.setattr(mom, "MOM_NEIGHBORS", 6)
    rng = np.random.default_rng(1)
    t = rng.uniform(0, np.pi, 90)
    X = unit(np.stack([np.cos(t), np.sin(t), np.repeat([0.0, 0.25, 0.5], 30)], axis=1))
    expected = slow_pools(X, mom.reciprocal_graph(X, 6))
    pools = mom.mine_pools(FeatureBank(X, None, 0))
    assert len(expected) > 20
    assert [pool[0] for pool in pools] == sorted(expected)
    for anchor, positives, negatives, weights in pools:
        positive, negative, manifold = expected[anchor]
        assert set(positives.tolist()) == positive
        assert negatives.tolist() == negative
        np.testing.assert_allclose(weights, manifold[positives])


def test_two_arcs():
    """Far along the same arc is a positive, near on the other arc a negative."""
    t = np.tile(np.linspace(0, 1.2, 150), 2)
    height = np.repeat([0.0, 0.16], 150)
    X = unit(np.stack([np.cos(t), np.sin(t), height], axis=1))
    pools = mom.mine_pools(FeatureBank(X, None, 0))
    arc = np.repeat([0, 1], 150)
    assert len(pools) > 100
    for anchor, positives, negatives, _ in pools:
        assert (arc[positives] == arc[anchor]).all()
        assert (arc[negatives] != arc[anchor]).all()


def test_at_most_so_many_anchors(monkeypatch):
    monkeypatch.setattr(mom, "MOM_ANCHORS", 20)
    X = unit(np.random.default_rng(0).standard_normal((200, 8)))
    anchors = [pool[0] for pool in mom.mine_pools(FeatureBank(X, None, 0))]
    assert 0 < len(anchors) <= 20
    assert (np.diff(anchors) > 0).all()


def test_weighted_triplet_loss():
    rng = np.random.default_rng(0)
    Z, w = unit(rng.standard_normal((12, 3))), rng.random(4)
    expected = np.mean([
        w[i] * max(0, ((a - p) ** 2).sum() - ((a - n) ** 2).sum() + 0.5)
        for i, (a, p, n) in enumerate(Z.reshape(4, 3, 3))
    ])  # fmt: skip
    z = torch.from_numpy(Z).requires_grad_()
    rows, L = torch.arange(12), torch.nn.Parameter(torch.eye(3))
    loss = METHODS["mom"].loss(LossSpec(12, 3, 3, 0, seed=0))

    def f(z):
        return loss(Batch(z, z, rows, rows, L, rng, None, torch.from_numpy(w)))

    assert float(f(z)) == pytest.approx(expected)
    assert torch.autograd.gradcheck(f, (z,))
