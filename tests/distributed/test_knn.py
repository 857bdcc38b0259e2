"""Neighbors found on the workers."""

import numpy as np
import pytest

from rpml.method.graph import approximate as ann
from rpml.method.graph.neighbors import nearest_neighbors as local_search
from rpml.runtime.context import Context

from .conftest import split


def search(cluster, X, k, parts=3, **settings):
    from rpml.distributed.knn import KnnSettings, nearest_neighbors

    events = []
    context = Context(report=events.append)
    asked = KnnSettings(k, **settings)
    graph = nearest_neighbors(cluster, *split(cluster, X, parts), asked, context)
    assert events[-1].done == events[-1].total
    lists = [cluster.value(part) for part in graph.parts]
    return (
        graph,
        np.concatenate([part.indices for part in lists]),
        np.concatenate([part.distances for part in lists]),
    )


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_exact_is_the_local_search(cluster, rows, metric):
    graph, indices, distances = search(cluster, rows, 9, metric=metric)
    true = local_search(rows, 9, metric=metric)
    assert graph.method == "exact"
    assert graph.recall == 1.0
    np.testing.assert_array_equal(indices, true.indices)
    np.testing.assert_allclose(distances, true.distances, rtol=1e-5, atol=1e-7)


def test_partitions_smaller_than_k(cluster):
    X = np.random.default_rng(0).standard_normal((20, 4))
    _, indices, _ = search(cluster, X, 12, parts=5)
    np.testing.assert_array_equal(indices, local_search(X, 12).indices)


def test_k_is_bounded_by_the_rows(cluster):
    X = np.random.default_rng(0).standard_normal((9, 4))
    graph, indices, _ = search(cluster, X, 50, parts=2)
    assert graph.n_neighbors == 8
    assert indices.max() == 8


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_cells(cluster, rows, metric, monkeypatch):
    monkeypatch.setattr(ann, "CELL", 30)
    graph, indices, distances = search(cluster, rows, 8, parts=4, metric=metric, method="ann")
    true = local_search(rows, 8, metric=metric)
    recall = np.mean([np.isin(t, i).mean() for t, i in zip(true.indices, indices, strict=True)])
    assert graph.method == "ann"
    assert recall > 0.9
    assert graph.recall == pytest.approx(recall, abs=0.04)
    assert (indices != np.arange(len(rows))[:, None]).all()
    assert (np.diff(distances, axis=1) >= 0).all()
    assert all(len(set(row)) == 8 for row in indices.tolist())
    back = np.linalg.norm(rows - rows[indices[:, 0]], axis=1)
    if metric == "euclidean":
        np.testing.assert_allclose(distances[:, 0], back, rtol=1e-4)


def test_rows_whose_cells_are_too_small_are_searched_exactly(cluster, rows, monkeypatch):
    monkeypatch.setattr(ann, "CELL", 30)
    monkeypatch.setattr(ann, "TARGET", 0.05)  # one cell, of about 30 rows, for 60 neighbors
    _, indices, distances = search(cluster, rows, 60, parts=2, method="ann")
    assert np.isfinite(distances).all()
    assert indices.max() < len(rows)


def test_unknown_method(cluster, rows):
    with pytest.raises(ValueError, match="method='hnsw'"):
        search(cluster, rows, 3, method="hnsw")


def test_buckets_are_balanced_and_compact():
    from rpml.distributed.knn_tasks import deal_cells

    rng = np.random.default_rng(0)
    centers = rng.standard_normal((60, 3)).astype(np.float32)
    sizes = rng.integers(50, 150, 60)
    bucket = deal_cells(centers, sizes, 5)
    load = np.bincount(bucket, sizes, minlength=5)
    assert set(bucket) == set(range(5))
    assert load.max() < 1.6 * load.mean()
    spread = np.mean([centers[bucket == b].var(axis=0).sum() for b in range(5)])
    assert spread < 0.7 * centers.var(axis=0).sum()
