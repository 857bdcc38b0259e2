"""AAS against a literal transcription of the paper, on toy shapes, and at its edges."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score, homogeneity_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.ascent import (
    GraphAscent,
    affinity_graph,
    ascend,
    authority,
    choose_epsilon,
    follow,
)
from rpml.method.clustering.hierarchy import merge_basins
from rpml.method.graph.neighbors import nearest_neighbors


@parametrize_with_checks(
    [AuthorityAscentShift(), AuthorityAscentShift(n_neighbors=7, min_cluster_size=2)]
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="n_(neighbors|clusters)=")
        check(estimator)


def literal_aas(W, omega, gamma, epsilon):
    """The paper's definitions, one node after the other: psi, N_eps, the argmax, the walk up."""
    n = len(W)
    degree = W.sum(axis=1)
    P = np.array([W[i] / degree[i] if degree[i] > 0 else np.zeros(n) for i in range(n)])
    scaled = omega / (10 * omega.max())

    def psi(i, j):
        return degree[i] * P[i, j] * np.exp(-gamma * (scaled[j] - scaled[i]) ** 2)

    parents = []
    for i in range(n):
        relevant = [j for j in range(n) if W[i, j] > 0 and psi(i, j) > epsilon] + [i]
        gain = {j: P[i, j] * (scaled[j] - scaled[i]) for j in relevant}
        best = max(gain.values())
        parents.append(min(j for j in relevant if gain[j] == best))
    ends = []
    for i in range(n):
        while parents[i] != i:
            i = parents[i]
        ends.append(i)
    return np.array(parents), np.array(ends)


def random_graph(seed, n=25, density=0.3):
    rng = np.random.default_rng(seed)
    W = rng.random((n, n)) * (rng.random((n, n)) < density)
    W = np.round(W, 1) if seed % 2 else W  # every other graph has many ties
    np.fill_diagonal(W, 0)
    return np.maximum(W, W.T)


@pytest.mark.parametrize("seed", range(8))
def test_ascent_is_the_papers(seed):
    W = random_graph(seed)
    graph = sparse.csr_matrix(W)
    for gamma, epsilon in ((0.0, 1e-9), (100.0, 0.3), (1e4, 0.65)):
        result = GraphAscent(graph, gamma).run(epsilon)
        parents, ends = literal_aas(W, result.authority, gamma, epsilon)
        if seed % 2 == 0:  # without ties the gains compare alike in any arithmetic
            np.testing.assert_array_equal(result.parents, parents)
        np.testing.assert_array_equal(result.modes[result.labels], follow(result.parents))
        assert len(set(ends.tolist())) == len(result.modes) or seed % 2
        np.testing.assert_array_equal(np.unique(result.modes), result.modes)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 0.9), st.sampled_from([0.0, 100.0, 1e4]))
@example(91, 0.75, 0.0)
def test_every_step_gains_and_every_walk_ends(seed, epsilon, gamma):
    W = random_graph(seed)
    result = GraphAscent(sparse.csr_matrix(W), gamma).run(epsilon)
    height = result.authority / (10 * result.authority.max())  # as compared: rounding makes ties
    up = height[result.parents] - height
    me = np.arange(len(W))
    assert (up >= 0).all()
    assert ((up > 0) | (result.parents <= me)).all()  # a plateau is left downwards in rows
    moved = result.parents != me
    assert (W[me[moved], result.parents[moved]] > epsilon).all()
    assert (result.parents[result.modes] == result.modes).all()
    assert result.labels.max() + 1 == len(result.modes)


def test_authority_of_a_symmetric_graph_is_its_degree():
    W = random_graph(0)
    W[3] = W[:, 3] = 0  # an isolated node
    omega = authority(sparse.csr_matrix(W))
    np.testing.assert_allclose(omega, W.sum(axis=1) / W.sum(), rtol=1e-12)
    assert omega[3] == 0


def test_authority_is_stationary():
    W = random_graph(2, density=0.5)
    omega = authority(sparse.csr_matrix(W))
    np.testing.assert_allclose(omega @ (W / W.sum(axis=1, keepdims=True)), omega, atol=1e-12)


def test_authority_without_edges_is_uniform():
    np.testing.assert_allclose(authority(sparse.csr_matrix((4, 4))), 0.25)


def shapes(kind, n, seed):
    """X, labels, and labels with the noise counted to the nearest blob."""
    if kind == "moons":
        return make_moons(n, noise=0.05, random_state=seed)
    if kind == "rings":
        return make_circles(n, noise=0.05, factor=0.4, random_state=seed)
    rng = np.random.default_rng(seed)
    centers = np.array([[-8, 0], [0, 7], [8, 0], [0, -7.0]])
    X, y = make_blobs(n, centers=centers, cluster_std=1.0, random_state=seed)
    noise = rng.uniform(X.min(axis=0), X.max(axis=0), (n // 20, 2))
    nearest = np.argmin(((noise[:, None] - centers) ** 2).sum(axis=2), axis=1)
    return np.vstack([X, noise]), np.concatenate([y, nearest])


@pytest.mark.parametrize("n", [500, 1500])
@pytest.mark.parametrize("kind", ["moons", "rings", "blobs"])
def test_basins_are_pure_and_merge_to_shapes(kind, n):
    for seed in range(2):
        X, y = shapes(kind, n, seed)
        plain = AuthorityAscentShift(merge=None).fit(X)
        assert homogeneity_score(y, plain.labels_) >= 0.98
        merged = AuthorityAscentShift().fit(X)
        assert adjusted_rand_score(y, merged.labels_) >= 0.9
        # joining only joins: every printed cluster lies in one leaf of the tree
        assert homogeneity_score(merged.leaves_, plain.labels_) == pytest.approx(1.0)
        np.testing.assert_array_equal(merged.modes_[merged.labels_], follow(merged.parents_))
        assert set(merged.modes_) <= set(plain.modes_)


def high_dimensional(seed=0, classes=40, size=20, d=60):
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((classes, d))
    y = np.repeat(np.arange(classes), size)
    return (centers[y] + 0.9 * rng.standard_normal((len(y), d))).astype(np.float32), y


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_auto_follows_the_affinities_in_high_dimension(metric):
    X, y = high_dimensional()
    for offset in (0.0, 5.0):  # all cosines move towards 1
        model = AuthorityAscentShift(metric=metric, merge=None).fit(X + np.float32(offset))
        sizes = np.bincount(model.labels_)
        assert (sizes == 1).sum() < 0.5 * len(X)
        assert homogeneity_score(y, model.labels_) > 0.9


def test_auto_scales_with_the_graph():
    X, _ = make_moons(300, noise=0.05, random_state=0)
    near = nearest_neighbors(X, 30, metric="euclidean")
    graph = affinity_graph(near, affinity="gaussian")
    assert choose_epsilon(graph * 7.0) == pytest.approx(7 * choose_epsilon(graph), rel=1e-5)
    assert choose_epsilon(sparse.csr_matrix((5, 5))) > 0


def test_auto_is_above_the_median_affinity_of_the_7th_strongest_edge():
    rng = np.random.default_rng(0)
    W = np.triu(rng.random((80, 80)) ** 3 * (rng.random((80, 80)) < 0.15), 1).astype(np.float32)
    W += W.T
    seventh = [sorted(row[row > 0], reverse=True)[:7][-1] for row in W]
    found = choose_epsilon(sparse.csr_matrix(W))
    assert found == pytest.approx(1.2 * np.median(seventh), rel=1e-6)


def test_a_given_epsilon_is_the_papers_threshold():
    X, _ = make_moons(200, noise=0.05, random_state=0)
    model = AuthorityAscentShift(n_neighbors=20, epsilon=0.65, merge=None).fit(X)
    near = nearest_neighbors(X, 20, metric="euclidean")
    W = affinity_graph(near, affinity="gaussian").toarray().astype(float)
    parents, ends = literal_aas(W, W.sum(axis=1) / W.sum(), 100.0, 0.65)
    np.testing.assert_array_equal(model.parents_, parents)
    assert model.epsilon_ == 0.65
    assert model.n_clusters_ == len(set(ends.tolist())) == len(model.modes_)


def test_given_neighbors():
    X, _ = make_moons(150, noise=0.05, random_state=1)
    near = nearest_neighbors(X, 15, metric="euclidean")
    wanted = AuthorityAscentShift(n_neighbors=15).fit_predict(X)
    assert wanted.max() >= 1
    np.testing.assert_array_equal(AuthorityAscentShift().fit_predict(near), wanted)


def test_rows_in_another_order_give_the_same_clusters():
    X, _ = make_blobs(300, centers=4, random_state=0)
    order = np.random.default_rng(0).permutation(300)
    a = AuthorityAscentShift(n_neighbors=20).fit_predict(X)
    b = AuthorityAscentShift(n_neighbors=20).fit_predict(X[order])
    assert adjusted_rand_score(a[order], b) == pytest.approx(1.0)


def test_duplicated_points_share_a_cluster():
    X = np.repeat(10 * np.eye(5), 8, axis=0)
    labels = AuthorityAscentShift(n_neighbors=7).fit_predict(X)
    assert adjusted_rand_score(np.repeat(np.arange(5), 8), labels) == 1.0
    assert set(AuthorityAscentShift(n_neighbors=4).fit_predict(np.ones((9, 3)))) == {0}


def test_equal_affinities_everywhere():
    ring = sparse.csr_matrix(np.roll(np.eye(12), 1, axis=1) + np.roll(np.eye(12), -1, axis=1))
    result = GraphAscent(ring).run()
    assert len(result.modes) < 12


def test_isolated_nodes_are_their_own_cluster():
    W = np.zeros((6, 6))
    W[0, 1] = W[1, 0] = W[1, 2] = W[2, 1] = 1.0
    result = GraphAscent(sparse.csr_matrix(W), 100.0).run(0.1)
    assert result.modes.tolist() == [1, 3, 4, 5]
    assert result.labels.tolist() == [0, 0, 0, 1, 2, 3]


def test_zero_rows_under_cosine_are_alone():
    X = np.vstack([np.zeros((3, 4)), np.random.default_rng(0).random((40, 4)) + 0.5])
    model = AuthorityAscentShift(10, metric="cosine", affinity="cosine", merge=None).fit(X)
    assert np.bincount(model.labels_)[model.labels_[:3]].tolist() == [1, 1, 1]


def test_no_edges_at_all():
    empty = sparse.csr_matrix((5, 5))
    assert GraphAscent(empty).run().labels.tolist() == [0, 1, 2, 3, 4]
    merged = GraphAscent(empty, merge=partial(merge_basins, empty, n_clusters=3)).run()
    assert len(merged.modes) == 3


def test_a_threshold_that_cuts_all_or_nothing_warns():
    X, _ = make_blobs(60, centers=1, random_state=0)
    with pytest.warns(UserWarning, match="every row its own cluster") as caught:
        model = AuthorityAscentShift(n_neighbors=10, epsilon=5.0, merge=None).fit(X)
    assert caught[0].filename == __file__
    assert model.n_clusters_ == 60
    with pytest.warns(UserWarning, match="a single cluster"):
        AuthorityAscentShift(59, epsilon=1e-30, gamma=0, merge=None).fit(X)


def test_a_number_that_cannot_be_had_warns():
    X, _ = make_blobs(60, centers=2, random_state=0)
    with pytest.warns(UserWarning, match="n_clusters=50, but the ascent finds only") as caught:
        model = AuthorityAscentShift(10, n_clusters=50).fit(X)
    assert caught[0].filename == __file__
    assert model.n_clusters_ == len(model.children_) + 1


def test_fewer_rows_than_neighbors():
    X, _ = make_blobs(12, centers=2, random_state=0)
    with pytest.warns(UserWarning, match="11 neighbors are used"):
        model = AuthorityAscentShift().fit(X)
    assert len(model.labels_) == 12


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_neighbors", 0),
        ("n_neighbors", 2.5),
        ("gamma", -1),
        ("gamma", "high"),
        ("epsilon", 0),
        ("epsilon", "best"),
        ("metric", "hamming"),
        ("affinity", "linear"),
        ("merge", "all"),
        ("n_clusters", 0),
        ("n_clusters", 2.5),
        ("min_cluster_size", 0),
        ("method", "guess"),
    ],
)
def test_bad_parameters_are_named_with_their_value(name, value):
    X, _ = make_blobs(60, centers=2, random_state=0)
    sentence = f"'{name}' parameter of AuthorityAscentShift must be .*Got {value!r}"
    with pytest.raises(ValueError, match=sentence):
        AuthorityAscentShift(**{"n_neighbors": 5, name: value}).fit(X)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epsilon": True}, "epsilon=True"),
        ({"affinity": "cosine"}, "metric='cosine'"),
        ({"n_clusters": 3, "merge": None}, "n_clusters=3 with merge=None"),
    ],
)
def test_parameters_that_do_not_fit_each_other(options, sentence):
    X, _ = make_blobs(60, centers=2, random_state=0)
    with pytest.raises(ValueError, match=sentence):
        AuthorityAscentShift(n_neighbors=5, **options).fit(X)


def test_the_estimator_can_be_cloned_and_fitted_again():
    X, _ = make_moons(100, noise=0.05, random_state=0)
    model = AuthorityAscentShift(n_neighbors=10).fit(X)
    again = clone(model).fit(X)
    np.testing.assert_array_equal(model.labels_, again.labels_)
    assert model.n_features_in_ == 2
    model.set_params(merge=None).fit(X)
    assert not any(hasattr(model, name) for name in ("leaves_", "children_", "counts_"))
    assert not hasattr(model, "distances_")


def test_ascent_takes_both_index_widths():
    graph = sparse.csr_matrix(random_graph(4))
    wide = sparse.csr_matrix(graph, copy=True)
    wide.indptr, wide.indices = wide.indptr.astype(np.int64), wide.indices.astype(np.int64)
    omega = authority(graph)
    np.testing.assert_array_equal(ascend(graph, omega, 1.0, 0.2), ascend(wide, omega, 1.0, 0.2))
