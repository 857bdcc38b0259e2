"""Pseudo-labels level by level of AAS, and batches that hold what their loss needs."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from deep_baselines import triplet_batches

from rpml.deep.methods.base import (
    FeatureBank,
    aas_labels,
    group_batches,
    label_sampler,
)
from rpml.evaluation.metrics.clustering import pair_scores
from rpml.method.whitening.groups import group_means


def nested(rng, n_classes=6):
    """Classes of three small groups each."""
    classes = rng.normal(size=(n_classes, 16))
    groups = np.repeat(classes, 3, axis=0) + 0.25 * rng.normal(size=(3 * n_classes, 16))
    rows = np.repeat(groups, 8, axis=0) + 0.05 * rng.normal(size=(24 * n_classes, 16))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), np.repeat(np.arange(n_classes), 24)


def test_a_second_level_joins_more_of_a_class():
    rows, y = nested(np.random.default_rng(0))
    bank = FeatureBank(rows, None, 0)
    first, second = (aas_labels(bank, levels) for levels in (1, 2))
    # what was together stays together
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == len(set(first.tolist()))
    assert len(set(second.tolist())) < len(set(first.tolist()))
    assert pair_scores(second, y)["recall"] > pair_scores(first, y)["recall"]


def test_means_of_clusters():
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    means = group_means(rows, np.array([1, 0, 1, 2]))
    np.testing.assert_allclose(means, [[2, 3], [2, 3], [6, 7]])


def test_classes_by_instances():
    labels = np.repeat(np.arange(50), 8)
    draws = list(label_sampler(labels)[0](np.random.default_rng(0), 3, 120))
    assert sorted(np.concatenate([d.rows for d in draws]).tolist()) == list(range(400))
    for draw in draws:
        assert len(draw.rows) <= 124
        assert np.unique(draw.labels, return_counts=True)[1].min() >= 2
        assert set(draw.views) <= {0, 1, 2}
        np.testing.assert_array_equal(draw.labels, labels[draw.rows])


def test_unlabeled_and_single_images_take_no_part():
    labels = np.array([0, 0, 0, 1, -1, -1])
    rows = np.concatenate(
        [d.rows for d in label_sampler(labels)[0](np.random.default_rng(0), 1, 4)]
    )
    assert sorted(rows.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("views", [1, 2, 3])
def test_two_different_views_of_each_image(views):
    draws = list(group_batches(np.arange(100)[:, None], np.random.default_rng(0), views, 40))
    assert sum(len(d.rows) for d in draws) == 200
    for draw in draws:
        half = len(draw.rows) // 2
        np.testing.assert_array_equal(draw.rows[:half], draw.rows[half:])
        assert views == 1 or (draw.views[:half] != draw.views[half:]).all()
        assert draw.views.max() < views


def test_queries_come_with_their_neighbors_in_two_views():
    neighbors = (np.arange(60)[:, None] + np.arange(5)) % 60
    for batch in group_batches(neighbors, np.random.default_rng(0), 3, 20):
        first, second = batch.rows.reshape(2, -1)
        np.testing.assert_array_equal(first, second)
        assert (batch.views[: len(first)] != batch.views[len(first) :]).all()
        groups = first.reshape(-1, 5)
        np.testing.assert_array_equal(groups, neighbors[groups[:, 0]])
        assert len(batch.rows) <= 20


def test_triplets_come_from_their_pools():
    positives = [np.array([10, 11]), np.array([12])]
    negatives = [np.array([20]), np.array([21, 22])]
    weights = [np.array([0.1, 0.2]), np.array([0.3])]
    pools = list(zip((0, 1), positives, negatives, weights, strict=True))
    (batch,) = triplet_batches(pools, np.random.default_rng(0), 1, 60)
    for (a, p, n), w in zip(batch.rows.reshape(-1, 3), batch.weights, strict=True):
        assert w == weights[a][positives[a].tolist().index(p)]
        assert n in negatives[a]


def test_the_same_stream_gives_the_same_batches():
    one, two = (
        [
            d.rows.tolist()
            for d in group_batches(np.arange(30)[:, None], np.random.default_rng(5), 3, 20)
        ]
        for _ in range(2)
    )
    assert one == two
