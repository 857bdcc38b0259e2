"""The neighbor search against a literal double loop, and on the data that breaks searches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rpml.method.graph import neighbors
from rpml.method.graph.neighbors import nearest_neighbors, pair_distances


def oracle(X, k, metric):
    """Every distance in double precision, sorted by distance, then by row."""
    X = np.asarray(X, dtype=np.float64)
    zero = ~X.any(axis=1)
    if metric == "cosine":
        X = X / np.where(zero, 1.0, np.linalg.norm(X, axis=1))[:, None]
    indices, distances = [], []
    for i in range(len(X)):
        found = []
        for j in range(len(X)):
            if j == i:
                continue
            distance = float(np.sqrt(((X[i] - X[j]) ** 2).sum()))
            if metric == "cosine" and (zero[i] or zero[j]):
                distance = float(np.sqrt(2.0))
            found.append((distance, j))
        found.sort()
        indices.append([j for _, j in found[:k]])
        distances.append([distance for distance, _ in found[:k]])
    return np.array(indices), np.array(distances)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_matches_the_double_loop(metric, dtype):
    X = (10 * np.random.default_rng(0).standard_normal((150, 9))).astype(dtype)
    found = nearest_neighbors(X, 12, metric=metric, method="exact")
    indices, distances = oracle(X, 12, metric)
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, rtol=2e-4)
    assert found.indices.dtype == np.int32
    assert found.distances.dtype == np.float32
    assert (found.recall, found.method, found.metric) == (1.0, "exact", metric)


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.int8, st.tuples(st.integers(2, 40), st.integers(1, 4)), elements=st.integers(-2, 2)),
    st.sampled_from(["euclidean", "cosine"]),
    st.integers(1, 6),
)
def test_ties_and_duplicates_go_by_row(X, metric, k):
    k = min(k, len(X) - 1)
    found = nearest_neighbors(X, k, metric=metric)
    _, distances = oracle(X, k, metric)
    np.testing.assert_allclose(found.distances, distances, atol=1e-5)
    assert (found.indices != np.arange(len(X))[:, None]).all()
    assert all(len(set(row)) == k for row in found.indices.tolist())
    if metric == "euclidean":  # small integers: distances, hence ties, are exact
        np.testing.assert_array_equal(found.indices, oracle(X, k, metric)[0])


def test_more_copies_than_neighbors():
    X = np.repeat(np.random.default_rng(0).standard_normal((4, 6)), 30, axis=0)
    found = nearest_neighbors(X, 10, metric="euclidean")
    assert (found.distances == 0).all()
    assert (found.indices // 30 == np.arange(120)[:, None] // 30).all()
    assert (found.indices != np.arange(120)[:, None]).all()


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_data_far_from_the_origin(offset, dtype):
    X = (np.random.default_rng(1).standard_normal((200, 5)) + offset).astype(dtype)
    found = nearest_neighbors(X, 8, metric="euclidean")
    indices, distances = oracle(X, 8, "euclidean")
    np.testing.assert_allclose(found.distances, distances, rtol=1e-4)
    assert (found.indices == indices).mean() > 0.99


def test_two_far_groups_each_of_them_tight():
    # centering cannot help here: float32 products alone would see noise only
    rng = np.random.default_rng(2)
    X = 1e-3 * rng.standard_normal((120, 4))
    X[60:] += 1e4
    found = nearest_neighbors(X, 7, metric="euclidean")
    indices, distances = oracle(X, 7, "euclidean")
    np.testing.assert_array_equal(found.indices, indices)
    np.testing.assert_allclose(found.distances, distances, rtol=1e-4)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e17])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_any_scale(scale, metric):
    X = np.random.default_rng(3).standard_normal((90, 6))
    plain = nearest_neighbors(X, 5, metric=metric)
    scaled = nearest_neighbors(X * scale, 5, metric=metric)
    np.testing.assert_array_equal(plain.indices, scaled.indices)
    factor = scale if metric == "euclidean" else 1.0
    np.testing.assert_allclose(scaled.distances, plain.distances * factor, rtol=1e-4)


@pytest.mark.parametrize(("apart", "again"), [(0.065, 4), (0.073, 0)])
def test_rows_are_searched_again_where_float32_is_off_by_a_ten_thousandth(apart, again, caplog):
    # products of unit rows are off by up to 4 eps, which is 1e-4 of the squared distance 0.069**2
    X = np.array([[1, 0], [1, apart], [-1, 0], [-1, -apart]], np.float32)
    with caplog.at_level("INFO", "rpml.method.graph.neighbors"):
        nearest_neighbors(X, 1, metric="euclidean")
    assert [record.args[0] for record in caplog.records] == ([again] if again else [])


def test_zero_rows_are_at_right_angles_to_all_under_cosine():
    X = np.vstack([np.zeros((2, 3)), np.eye(3), -np.eye(3)])
    found = nearest_neighbors(X, 7, metric="cosine")
    np.testing.assert_allclose(found.distances[:2], np.sqrt(2.0), rtol=1e-6)
    np.testing.assert_allclose(found.distances[2:, -1], 2.0, rtol=1e-6)  # the opposite row


def test_small_memory_and_many_blocks_change_nothing():
    X = np.random.default_rng(4).standard_normal((900, 20)).astype(np.float32)
    whole = nearest_neighbors(X, 10, metric="euclidean")
    small = nearest_neighbors(X, 10, metric="euclidean", memory_limit=2**16)
    np.testing.assert_array_equal(whole.indices, small.indices)
    np.testing.assert_allclose(whole.distances, small.distances, rtol=1e-5)


@pytest.mark.parametrize("method", ["exact", "ann"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_least_memory_is_a_row_at_a_time(metric, method, monkeypatch):
    monkeypatch.setattr(neighbors, "CELL_ROWS", 30)
    X = clumps(600)
    whole, rowwise = (
        nearest_neighbors(X, 5, metric=metric, method=method, memory_limit=limit)
        for limit in (2**20, 1)
    )
    assert rowwise.method == method
    np.testing.assert_array_equal(whole.indices, rowwise.indices)
    np.testing.assert_allclose(whole.distances, rowwise.distances, rtol=1e-4)


def test_a_number_that_is_not_finite_is_named_by_row_and_column():
    X = np.ones((40, 2))
    X[37, 0] = np.inf
    with pytest.raises(ValueError, match=r"X\[37, 0\] is inf"):
        nearest_neighbors(X, 3, memory_limit=1024)  # sixteen rows at a time


def test_memory_mapped_input_and_progress(tmp_path):
    X = np.random.default_rng(5).standard_normal((600, 8)).astype(np.float16)
    np.save(tmp_path / "x.npy", X)
    shares = []
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = nearest_neighbors(mapped, 5, progress=shares.append)
    np.testing.assert_array_equal(found.indices, nearest_neighbors(X, 5).indices)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_the_same_result_twice():
    X = np.random.default_rng(6).standard_normal((3000, 16)).astype(np.float32)
    a, b = nearest_neighbors(X, 20), nearest_neighbors(X, 20)
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.distances, b.distances)


def test_fewer_rows_than_neighbors_warns_and_reduces():
    X = np.random.default_rng(7).standard_normal((5, 3))
    with pytest.warns(UserWarning, match="more than 5 rows; 4 neighbors are used") as caught:
        found = nearest_neighbors(X, 50)
    assert caught[0].filename == __file__
    assert found.n_neighbors == 4


@pytest.mark.parametrize(
    ("X", "options", "sentence"),
    [
        (np.ones((1, 3)), {}, "2 rows"),
        (np.ones((4, 2)), {"metric": "manhattan"}, "metric='manhattan'"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), {}, r"X\[1, 1\] is nan"),
        (np.array([[1.0, 2.0], [3.0, 1e200]]), {"metric": "euclidean"}, "1e\\+200"),
    ],
)
def test_bad_input_gets_one_sentence(X, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        nearest_neighbors(X, **{"n_neighbors": 1, **options})


def clumps(n=6000, d=12, seed=0):
    rng = np.random.default_rng(seed)
    centers = 4 * rng.standard_normal((n // 60, d))
    return centers[rng.integers(0, len(centers), n)] + 0.3 * rng.standard_normal((n, d))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_cells_find_the_neighbors_and_measure_the_recall(metric, monkeypatch):
    monkeypatch.setattr(neighbors, "CELL_ROWS", 100)
    X = clumps()
    found = nearest_neighbors(X, 15, metric=metric, method="ann")
    exact = nearest_neighbors(X, 15, metric=metric, method="exact")
    hits = [np.isin(a, b).mean() for a, b in zip(exact.indices, found.indices, strict=True)]
    assert found.method == "ann"
    assert np.mean(hits) > 0.95
    assert found.recall == pytest.approx(np.mean(hits), abs=0.03)
    assert (found.indices != np.arange(len(X))[:, None]).all()
    assert (np.diff(found.distances, axis=1) >= 0).all()
    assert all(len(set(row)) == 15 for row in found.indices.tolist())
    same = found.indices == exact.indices
    np.testing.assert_allclose(found.distances[same], exact.distances[same], rtol=1e-4)


def test_auto_takes_cells_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(neighbors, "CELL_ROWS", 100)
    monkeypatch.setattr(neighbors, "EXACT_ROWS", 2000)
    assert nearest_neighbors(clumps(2001), 10).method == "ann"
    assert nearest_neighbors(clumps(2000), 10).method == "exact"


def test_four_cells_are_needed(monkeypatch):
    monkeypatch.setattr(neighbors, "CELL_ROWS", 100)
    X = 9 * np.eye(4).repeat(100, axis=0) + np.random.default_rng(0).standard_normal((400, 4))
    assert nearest_neighbors(X, 5, method="ann").method == "ann"
    with pytest.warns(UserWarning, match="399 rows have no cells") as caught:
        assert nearest_neighbors(X[1:], 5, method="ann").method == "exact"
    assert caught[0].filename == __file__


def test_cells_that_do_not_help_give_way_to_the_exact_search():
    X = np.random.default_rng(0).standard_normal((4000, 30))
    with pytest.warns(UserWarning, match="4,000 rows have no cells .* searched exactly"):
        found = nearest_neighbors(X, 10, method="ann")
    assert (found.method, found.recall) == ("exact", 1.0)


def test_cells_smaller_than_k_are_filled(monkeypatch):
    monkeypatch.setattr(neighbors, "CELL_ROWS", 20)
    monkeypatch.setattr(neighbors, "CELL_RECALL", 0.5)
    found = nearest_neighbors(clumps(1000), 120, metric="euclidean", method="ann")
    assert found.indices.max() < 1000
    assert np.isfinite(found.distances).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_pair_distances_in_chunks(metric):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4)).astype(np.float16)
    X[3] = 0
    indices, distances = oracle(X, 29, metric)
    left = np.repeat(np.arange(30), 29)
    got = pair_distances(X, left, indices.ravel(), metric=metric, memory_limit=4096)
    np.testing.assert_allclose(got, distances.ravel(), rtol=1e-12)


def test_cosine_knows_no_largest_value():
    X = np.random.default_rng(0).standard_normal((40, 5))
    plain, huge = nearest_neighbors(X, 6), nearest_neighbors(X * 1e200, 6)
    np.testing.assert_array_equal(plain.indices, huge.indices)


@pytest.mark.parametrize(("seed", "memory_limit"), [(5, 2**20), (7, 2**10)])
def test_centers_are_those_of_literal_k_means(seed, memory_limit):
    X = np.random.default_rng(seed).integers(-20, 20, (60, 2)).astype(np.float32)
    corpus = neighbors.measure(X, "euclidean", memory_limit)
    rows = corpus.block(slice(None), np.float64)
    order = np.random.default_rng(neighbors.CELL_SEED).choice(60, 60, replace=False)
    centers = [rows[i] for i in order[:20]]
    for _ in range(neighbors.CELL_ROUNDS):
        cells = [[] for _ in centers]
        for row in rows:
            cells[np.argmin([((row - c) ** 2).sum() for c in centers])].append(row)
        centers = [
            np.mean(cell, axis=0) if cell else c for cell, c in zip(cells, centers, strict=True)
        ]
    np.testing.assert_allclose(neighbors._centers(corpus, 20), centers, atol=1e-5)


def test_an_empty_cell_keeps_its_center():
    rows = np.zeros((40, 3), np.float32)
    rows[:20] = [5.0, 0, 0]  # equal centers: all rows but those of the first of them leave

    corpus = neighbors.measure(rows, "euclidean", 2**20)
    centers = neighbors._centers(corpus, 20)
    found = {tuple(np.round(c, 3)) for c in centers}
    assert found == {tuple(np.round(c, 3)) for c in corpus.block(np.array([0, 39]))}
