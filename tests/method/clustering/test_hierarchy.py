"""The merge tree, its cuts and what becomes of the rows, on random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.cluster.hierarchy import dendrogram, is_monotonic, is_valid_linkage
from scipy.sparse.csgraph import connected_components
from sklearn.datasets import make_blobs

from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.ascent import follow
from rpml.method.clustering.hierarchy import (
    average_linkage,
    join_small,
    merge_basins,
    refine,
    shrink,
)


def random_graph(seed, n=30, density=0.15):
    rng = np.random.default_rng(seed)
    W = rng.random((n, n)) * (rng.random((n, n)) < density)
    W = np.round(W, 1) if seed % 2 else W  # every other graph has many ties
    W = np.maximum(W, W.T)
    np.fill_diagonal(W, 0)
    return sparse.csr_matrix(W)


def greedy_merges(W, sizes):
    """Mean affinities at which the best pair of clusters is joined, pair by pair."""
    clusters = [[i] for i in range(len(sizes))]
    W = W.toarray()

    def mean(a, b):
        return W[np.ix_(a, b)].sum() / (sizes[a].sum() * sizes[b].sum())

    affinities = []
    while len(clusters) > 1:
        pairs = [(mean(a, b), i, j) for i, a in enumerate(clusters) for j, b in
                 enumerate(clusters[:i])]  # fmt: skip
        best, i, j = max(pairs)
        affinities.append(best)
        clusters[j] = clusters[j] + clusters.pop(i)
    return np.array(affinities)


@pytest.mark.parametrize("seed", [0, 2, 4, 6])  # without ties the greedy order is unique
def test_rounds_find_the_greedy_merges(seed):
    W = random_graph(seed)
    sizes = np.random.default_rng(seed).integers(1, 9, 30)
    tree = average_linkage(W, sizes)
    np.testing.assert_allclose(tree.affinities, greedy_merges(W, sizes), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.0, 0.4), st.integers(1, 40))
def test_tree_is_valid_and_every_cut_has_its_number(seed, density, n):
    W = random_graph(seed, n, density)
    tree = average_linkage(W, np.ones(n, np.int64))
    assert tree.n_leaves == n
    assert (np.diff(tree.distances) >= 0).all()
    assert (tree.distances >= 0).all()
    assert sorted(tree.children.ravel().tolist()) == list(range(2 * n - 2))
    assert (tree.children < n + np.arange(n - 1)[:, None]).all()
    assert tree.counts[-1] == n
    finer = np.arange(n)
    for k in range(n, 0, -1):
        labels = tree.cut(k)
        assert np.unique(labels).tolist() == list(range(k))
        assert len(np.unique(np.stack([finer, labels]), axis=1).T) == min(n, max(k + 1, len(
            np.unique(finer))))  # fmt: skip
        finer = labels


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 6))
def test_clusters_keep_their_least_size(seed, least, n_clusters):
    W = random_graph(seed, 60, 0.08)
    basins = np.random.default_rng(seed).integers(0, 25, 60)
    basins = np.unique(basins, return_inverse=True)[1]
    leaves = join_small(W, basins, least)
    parts = connected_components(shrink(W, basins), directed=False)[1]
    for leaf in np.unique(leaves):
        inside = leaves == leaf
        whole = np.isin(parts[basins], parts[basins][inside]) == inside
        assert inside.sum() >= least or whole.all()
    if n_clusters > leaves.max() + 1:
        with pytest.warns(UserWarning, match=f"n_clusters={n_clusters}, but"):
            merge_basins(W, basins, n_clusters, least)
        return
    labels, found, _ = merge_basins(W, basins, n_clusters, least)
    np.testing.assert_array_equal(found, leaves)
    sizes = np.bincount(labels)
    assert len(sizes) == n_clusters
    assert sizes.min() >= min(least, np.bincount(leaves).min())
    assert merge_basins(W, basins, None, least)[0].max() + 1 >= min(2, leaves.max() + 1)


@pytest.mark.parametrize("d", [3, 20])
def test_eight_blobs_are_eight_clusters(d):
    centers = 10 * np.random.default_rng(0).permutation(np.vstack([np.eye(8), -np.eye(8)]))[:8]
    X, y = make_blobs(800, centers=centers @ np.eye(8, max(d, 8)), random_state=0)
    model = AuthorityAscentShift(20).fit(X)
    assert model.n_clusters_ == 8
    pairs = np.unique(np.stack([model.labels_, y]), axis=1)
    assert pairs.shape[1] == 8


def test_the_tree_is_scipys():
    X, _ = make_blobs(300, centers=5, n_features=4, random_state=1)
    model = AuthorityAscentShift(15, n_clusters=4).fit(X)
    linkage = np.column_stack([model.children_, model.distances_, model.counts_])
    assert is_valid_linkage(linkage)
    assert is_monotonic(linkage)
    drawn = dendrogram(linkage, no_plot=True)
    assert sorted(drawn["leaves"]) == list(range(len(model.children_) + 1))
    assert model.leaves_.max() == len(model.children_)
    assert model.counts_[-1] == len(model.children_) + 1
    assert np.unique(model.labels_).tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(model.modes_[model.labels_], follow(model.parents_))
    assert (np.diff(model.modes_) > 0).all()


def test_without_merging_there_is_no_tree():
    X, _ = make_blobs(60, centers=3, random_state=1)
    assert not hasattr(AuthorityAscentShift(10, merge=None).fit(X), "children_")


@pytest.mark.parametrize(("other", "moves"), [(0.6, False), (0.8, False), (0.9, True)])
def test_a_row_moves_where_its_affinity_over_the_root_of_the_size_is_larger(other, moves):
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    W = np.zeros((8, 8))
    for group in (slice(0, 4), slice(4, 7)):
        W[group, group] = 1
    W[7, 3], W[7, 4] = other, 0.8  # equal ones leave it where it is
    np.fill_diagonal(W, 0)
    found = refine(sparse.csr_matrix(np.maximum(W, W.T)), labels, 1)
    np.testing.assert_array_equal(found, [*labels[:7], 0 if moves else 1])
