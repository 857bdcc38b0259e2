"""Passes between basins, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from rpml.method.clustering.saddle import join_basins


def chain(heights):
    """A path of nodes, every edge of affinity 1."""
    n = len(heights)
    W = sparse.diags([np.ones(n - 1), np.ones(n - 1)], [-1, 1], shape=(n, n), format="csr")
    return sparse.csr_matrix(W), np.asarray(heights, dtype=float)


def oracle_level(W, omega, labels, a, b):
    """Mean height of the pass against the lower of the two basins, edge by edge."""

    def mean(inside):
        mass = lifted = 0.0
        for i, j, w in zip(*sparse.find(W), strict=True):
            if inside(labels[i], labels[j]):
                mass += w
                lifted += w * min(omega[i], omega[j])
        return lifted / mass

    across = mean(lambda x, y: {x, y} == {a, b})
    return across / min(mean(lambda x, y: x == y == a), mean(lambda x, y: x == y == b))


@pytest.mark.parametrize("dip", [0.2, 0.5, 0.8])
def test_the_depth_decides(dip):
    W, omega = chain([1.0, 1.0, 1.0, dip, 1.0, 1.0, 1.0])
    labels = np.array([0, 0, 0, 0, 1, 1, 1])
    level = oracle_level(W, omega, labels, 0, 1)
    for depth, joined in ((level - 1e-9, True), (level + 1e-9, False)):
        out = join_basins(W, omega, labels, 0.0, depth)
        assert (len(set(out.tolist())) == 1) == joined
        assert out.tolist() == ([0] * 7 if joined else labels.tolist())


def test_edges_below_epsilon_are_no_pass():
    W, omega = chain(np.ones(6))
    W = W.tolil()
    W[2, 3] = W[3, 2] = 0.1
    W = sparse.csr_matrix(W)
    labels = np.array([0, 0, 0, 1, 1, 1])
    assert join_basins(W, omega, labels, 0.2).tolist() == labels.tolist()
    assert join_basins(W, omega, labels, 0.05).tolist() == [0] * 6


def test_many_rounds_join_a_long_chain():
    W, omega = chain(np.ones(60))
    assert set(join_basins(W, omega, np.arange(60), 0.0).tolist()) == {0}


def test_scale_of_the_authority_does_not_matter():
    rng = np.random.default_rng(0)
    A = sparse.random(40, 40, 0.1, random_state=0)
    W, omega = sparse.csr_matrix(A + A.T), rng.random(40)
    labels = np.arange(40) // 4
    np.testing.assert_array_equal(
        join_basins(W, omega, labels, 0.1), join_basins(W, 1e-9 * omega, labels, 0.1)
    )


def test_no_edges():
    empty = sparse.csr_matrix((4, 4))
    assert join_basins(empty, np.full(4, 0.25), np.arange(4), 0.5).tolist() == [0, 1, 2, 3]
