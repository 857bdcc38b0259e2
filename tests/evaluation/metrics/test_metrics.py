"""Metrics against slow literal counts, against scikit-learn, and against their own invariances."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import normalized_mutual_info_score

from rpml.evaluation.metrics import (
    clustering_scores,
    first_hit_rank,
    kmeans,
    kmeans_labels,
    ndcg_at_10,
    nmi_interval,
    pair_scores,
    recall_at_k,
    retrieval,
)

SMALL = settings(max_examples=40, deadline=None)


def similarity(a, b, metric):
    if metric == "euclidean":
        return -sum((p - q) ** 2 for p, q in zip(a, b, strict=True))
    norms = np.sqrt(np.sum(a**2)) * np.sqrt(np.sum(b**2))
    return float(np.sum(a * b) / norms) if norms else 0.0


def literal_rank(Z, y, metric):
    """Rows of other classes that come before the first right one, by sorting every other row."""
    ranks = []
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i]
        # equal similarities: the wrong row first
        others.sort(key=lambda j: (-round(similarity(Z[i], Z[j], metric), 12), y[j] == y[i]))
        right = [place for place, j in enumerate(others) if y[j] == y[i]]
        ranks.append(right[0] if right else len(y))
    return np.array(ranks)


def literal_pairs(labels, y):
    together = alike = both = 0
    for i in range(len(y)):
        for j in range(i):
            same = labels[i] == labels[j]
            together += same
            alike += y[i] == y[j]
            both += same and y[i] == y[j]
    precision = both / together if together else 0.0
    recall = both / alike if alike else 0.0
    f = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {"f": f, "precision": precision, "recall": recall}


def rows_and_labels(seed, n=60, d=5, classes=8, grid=False):
    rng = np.random.default_rng(seed)
    Z = rng.integers(-1, 2, (n, d)).astype(float) if grid else rng.normal(size=(n, d))
    return Z, rng.integers(0, classes, n)


# --- retrieval -----------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("grid", [False, True], ids=["distinct", "many ties"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ranks_equal_the_literal_sort(metric, grid, dtype):
    for seed in range(5):
        Z, y = rows_and_labels(seed, grid=grid)
        Z = Z.astype(dtype)
        assert np.array_equal(
            first_hit_rank(Z, y, metric), literal_rank(Z.astype(float), y, metric)
        )


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_blocks_do_not_change_the_ranks(monkeypatch, metric):
    Z, y = rows_and_labels(3, n=200, grid=True)
    whole = first_hit_rank(Z, y, metric)
    monkeypatch.setattr(retrieval, "QUERY_ROWS", 7)
    monkeypatch.setattr(retrieval, "CORPUS_ROWS", 11)
    assert np.array_equal(first_hit_rank(Z, y, metric), whole)


def test_recall_is_the_share_of_ranks_below_k():
    Z, y = rows_and_labels(0)
    ranks = first_hit_rank(Z, y)
    assert recall_at_k(Z, y, ks=(8, 1)) == {8: np.mean(ranks < 8), 1: np.mean(ranks < 1)}
    assert recall_at_k(Z, y, ks=3) == {3: np.mean(ranks < 3)}


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_ties_never_favor_the_embedding(metric):
    """A collapsed embedding, all rows equal, must not look perfect."""
    y = np.repeat([0, 1, 2], 4)
    Z = np.ones((12, 3)) * 0.1
    assert first_hit_rank(Z, y, metric).tolist() == [8] * 12
    assert recall_at_k(Z, y, metric=metric) == {1: 0, 2: 0, 4: 0, 8: 0}


def test_ties_hold_between_rows_that_single_precision_cannot_tell_apart():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(1, 300))
    Z = np.repeat(base, 40, axis=0)
    y = np.arange(40) % 2
    assert np.all(first_hit_rank(Z, y) == 20)
    closer = Z + 1e-9 * rng.normal(size=Z.shape)  # equal in single precision, not in double
    assert np.array_equal(first_hit_rank(closer, y, "euclidean"), literal_exact(closer - base, y))


def literal_exact(Z, y):
    distance = ((Z[:, None] - Z[None]) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    best = np.where(y[:, None] == y, distance, np.inf).min(axis=1)
    return ((distance <= best[:, None]) & (y[:, None] != y)).sum(axis=1)


def test_the_query_is_left_out_by_index_so_its_duplicates_count():
    Z = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    assert recall_at_k(Z, [0, 0, 1, 1], ks=1)[1] == 1
    assert recall_at_k(Z, [0, 1, 0, 1], ks=(1, 2, 3)) == {1: 0, 2: 0, 3: 1}


def test_a_class_of_one_is_a_miss_at_every_k():
    Z = np.array([[1.0, 0], [1, 0.1], [0, 1]])
    assert first_hit_rank(Z, ["a", "a", "b"]).tolist() == [0, 0, 3]
    assert recall_at_k(Z, ["a", "a", "b"], ks=(1, 2, 50)) == {1: 2 / 3, 2: 2 / 3, 50: 2 / 3}


def test_zero_rows_and_huge_or_tiny_rows_are_ranked():
    Z, y = rows_and_labels(1)
    Z[3] = 0
    expected = {m: literal_rank(Z, y, m) for m in ("cosine", "euclidean")}
    for factor in (1e-160, 1e160):
        for metric, ranks in expected.items():
            assert np.array_equal(first_hit_rank(Z * factor, y, metric), ranks)


def test_euclidean_ranks_survive_a_large_common_offset():
    Z, y = rows_and_labels(2)
    assert np.array_equal(first_hit_rank(Z + 1e5, y, "euclidean"), literal_rank(Z, y, "euclidean"))


@SMALL
@given(seed=st.integers(0, 10**6), metric=st.sampled_from(["cosine", "euclidean"]))
def test_ranks_follow_a_permutation_and_ignore_rotation_scale_and_label_names(seed, metric):
    Z, y = rows_and_labels(seed, n=40)
    rng = np.random.default_rng(seed)
    ranks = first_hit_rank(Z, y, metric)
    order = rng.permutation(len(y))
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    names = np.array([f"class {c}" for c in y])
    assert np.array_equal(first_hit_rank(Z[order], y[order], metric), ranks[order])
    assert np.array_equal(first_hit_rank(3.7 * Z @ turn, names, metric), ranks)
    lengths = rng.uniform(0.1, 10, (len(y), 1)) if metric == "cosine" else 1
    assert np.array_equal(first_hit_rank(Z * lengths, y, metric), ranks)


@SMALL
@given(seed=st.integers(0, 10**6))
def test_recall_grows_with_k_and_reaches_the_rows_that_have_company(seed):
    Z, y = rows_and_labels(seed, n=30, classes=12, grid=True)
    recall = list(recall_at_k(Z, y, ks=range(1, 30)).values())
    sizes = np.bincount(y)[y]
    assert np.all(np.diff(recall) >= 0)
    assert recall[-1] == np.mean(sizes > 1)


# --- partitions ----------------------------------------------------------------------------


@SMALL
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=40),
)
def test_pair_scores_equal_the_count_over_all_pairs(pairs):
    labels, y = (np.array(column) for column in zip(*pairs, strict=True))
    assert pair_scores(labels, y) == pytest.approx(literal_pairs(labels, y))


@SMALL
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=40))
def test_nmi_equals_scikit_learn(pairs):
    labels, y = zip(*pairs, strict=True)
    expected = normalized_mutual_info_score(y, labels)
    assert nmi_interval(labels, y).value == pytest.approx(expected, abs=1e-12)


def test_rows_alone_cost_recall_and_not_precision():
    y = ["a"] * 4 + ["b"] * 4
    assert pair_scores([0, 0, 0, 0, 1, 1, 1, 1], y)["f"] == 1
    scores = pair_scores([0, 0, 0, 2, 1, 1, 3, 4], y)
    assert scores["precision"] == 1
    assert scores["recall"] == pytest.approx(4 / 12)
    assert pair_scores(range(8), y) == {"f": 0.0, "precision": 0.0, "recall": 0.0}


# --- k-means -------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 20, 200], ids=lambda k: f"k={k}")
def test_kmeans_ends_in_a_fixed_point_of_lloyd(monkeypatch, k):
    monkeypatch.setattr(sys.modules[kmeans.__module__], "GREEDY_SEEDS", 50)
    X = np.random.default_rng(0).normal(size=(600, 6)).astype(np.float32)
    result = kmeans(X, k, np.random.default_rng(0), n_init=1)
    assert len(np.unique(result.labels_)) == k
    means = np.stack([X[result.labels_ == c].mean(axis=0) for c in range(k)])
    assert np.allclose(result.cluster_centers_, means, atol=1e-5)
    distance = ((X[:, None].astype(float) - result.cluster_centers_) ** 2).sum(-1)
    own = distance[np.arange(len(X)), result.labels_]
    assert np.all(own <= distance.min(axis=1) + 1e-5)
    assert result.inertia_ == pytest.approx(own.sum(), rel=1e-4)


def test_kmeans_is_as_tight_as_scikit_learn():
    ours, theirs = [], []
    for seed in range(4):
        X, _ = make_blobs(1000, 8, centers=30, cluster_std=2.0, random_state=seed)
        X = (X - X.mean(axis=0)).astype(np.float32)
        ours.append(kmeans(X, 30, np.random.default_rng(seed), n_init=5).inertia_)
        theirs.append(KMeans(30, n_init=5, random_state=seed).fit(X).inertia_)
    assert np.mean(ours) <= np.mean(theirs) * 1.01


def test_kmeans_with_fewer_distinct_rows_than_clusters():
    X = np.repeat(np.eye(3), 10, axis=0)
    for k in (3, 5, 30):
        result = kmeans(X, k, np.random.default_rng(0))
        assert result.inertia_ == pytest.approx(0, abs=1e-5)
        assert len(np.unique(result.labels_)) >= 3
    many = kmeans(np.ones((700, 2)), 600, np.random.default_rng(0))
    assert many.inertia_ == pytest.approx(0, abs=1e-5)


def test_kmeans_is_reproducible_from_its_seed():
    X = np.random.default_rng(1).normal(size=(900, 4))
    for k in (7, 600):
        first, second = (kmeans(X, k, np.random.default_rng(5)) for _ in range(2))
        assert np.array_equal(first.labels_, second.labels_)
        assert first.inertia_ == second.inertia_


@pytest.mark.parametrize(("k", "n_init"), [(0, None), (11, None), (2, 0)])
def test_kmeans_refuses_impossible_counts(k, n_init):
    with pytest.raises(ValueError, match=r"k must lie|n_init must be"):
        kmeans(np.zeros((10, 2)), k, np.random.default_rng(0), n_init=n_init)


# --- clustering scores ---------------------------------------------------------------------


def test_clear_clusters_score_one_under_both_metrics():
    X, y = make_blobs(300, 10, centers=6, cluster_std=0.05, random_state=0)
    for metric in ("cosine", "euclidean"):
        scores = clustering_scores(X, [f"c{c}" for c in y], metric=metric)
        assert list(scores) == ["nmi", "f", "precision", "recall"]
        assert list(scores.values()) == pytest.approx([1, 1, 1, 1])


def test_cosine_scores_ignore_row_lengths_and_euclidean_ones_offset_and_scale():
    Z, y = rows_and_labels(0, n=200)
    lengths = np.random.default_rng(0).uniform(0.5, 2, (200, 1))
    assert clustering_scores(Z * lengths, y) == pytest.approx(clustering_scores(Z, y), abs=0.05)
    plain = clustering_scores(Z, y, metric="euclidean")
    assert clustering_scores(Z * 8 + 100, y, metric="euclidean") == pytest.approx(plain, abs=0.05)


def test_scores_are_the_same_for_the_same_seed():
    Z, y = rows_and_labels(0, n=200)
    assert clustering_scores(Z, y, random_state=3) == clustering_scores(Z, y, random_state=3)


# --- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("Z", "y", "options", "message"),
    [
        (np.zeros((4, 2)), [0, 1], {}, "2 labels for 4 rows"),
        (np.zeros(4), [0, 1, 0, 1], {}, "Expected 2D array"),
        (np.zeros((1, 2)), [0], {}, "a minimum of 2 is required"),
        (np.array([[0, 1], [np.nan, 0]]), [0, 1], {}, "row 1, column 0"),
        (np.zeros((2, 2)), [0, np.nan], {}, "y has a NaN"),
        (np.zeros((2, 2)), [[0], [1]], {}, "y must be 1-D"),
        (np.array([["a", "b"]] * 2), [0, 1], {}, "could not convert string"),
        (np.ones((2, 2)) * 1j, [0, 1], {}, "Complex data"),
        (np.zeros((2, 2)), np.array([1, "a"], dtype=object), {}, "cannot be compared"),
        (np.zeros((2, 2)), [0, 1], {"metric": "manhattan"}, "'manhattan'"),
        (np.zeros((2, 2)), [0, 1], {"ks": (1, 0)}, r"got \(1, 0\)"),
        (np.zeros((2, 2)), [0, 1], {"ks": (1.5,)}, r"got \(1\.5"),
        (np.zeros((2, 2)), [0, 1], {"ks": ()}, "integer of at least 1"),
    ],
)
def test_bad_input_gets_one_clear_sentence(Z, y, options, message):
    with pytest.raises((ValueError, TypeError), match=message) as raised:
        recall_at_k(Z, y, **options)
    assert "\n" not in str(raised.value) or message in ("Expected 2D array", "Complex data")
    if "ks" not in options:
        with pytest.raises((ValueError, TypeError), match=message):
            clustering_scores(Z, y, **options)


def test_integers_and_half_precision_are_accepted():
    Z = np.array([[1, 0], [2, 0], [0, 3], [0, 1]])
    for dtype in (np.int64, np.int8, np.float16, bool):
        assert recall_at_k(Z.astype(dtype), [0, 0, 1, 1], ks=1) == {1: 1.0}


def test_empty_labels_are_refused():
    with pytest.raises(ValueError, match="labels is empty"):
        pair_scores([], [])


def test_progress_is_told_up_to_the_end():
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(2500, 6)), rng.integers(0, 5, 2500)
    shares: dict[str, list[float]] = {"recall": [], "kmeans": []}
    plain = recall_at_k(Z, y), kmeans_labels(Z, y).tolist()
    told = (
        recall_at_k(Z, y, progress=shares["recall"].append),
        kmeans_labels(Z, y, progress=shares["kmeans"].append).tolist(),
    )
    assert told == plain
    for seen in shares.values():
        assert len(seen) > 2
        assert seen == sorted(seen)
        assert seen[-1] == 1.0


def test_the_interval_of_nmi_is_that_of_a_literal_bootstrap():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 300)
    clusters = np.where(rng.random(300) < 0.6, y, rng.integers(0, 5, 300))
    found = nmi_interval(clusters, y)
    draws = [rng.integers(0, 300, 300) for _ in range(400)]
    spread = np.std([normalized_mutual_info_score(y[d], clusters[d]) for d in draws])
    assert found.value == pytest.approx(normalized_mutual_info_score(y, clusters))
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * spread, rel=0.2)
    alike = nmi_interval(np.zeros(9), np.zeros(9))
    assert (alike.value, alike.low, alike.high) == (1, 1, 1)


def test_ndcg_counts_ranks_and_the_relevant_rows_there_are():
    classes = np.repeat(["a", "b", "c"], [1, 2, 20])
    found = np.array([["a", *"b" * 9], ["c", "b", "c", "b", *"c" * 6], ["c"] * 10])
    second = (1 / np.log2(3) + 1 / np.log2(5)) / (1 + 1 / np.log2(3))
    scores = [ndcg_at_10(found[[i]], np.array([wanted]), classes) for i, wanted in enumerate("abc")]
    assert scores == pytest.approx([1, second, 1])
    missed = ndcg_at_10(np.full((1, 10), "c"), np.array(["a"]), classes)
    assert missed == 0
