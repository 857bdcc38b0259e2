"""Batches hold what their loss needs."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.batches import ByInstance, ByLabel, ByNeighbours, ByTriplet


def test_classes_by_instances():
    labels = np.repeat(np.arange(50), 8)
    draws = list(ByLabel(labels).batches(np.random.default_rng(0), 3, 120))
    assert sorted(np.concatenate([d.rows for d in draws]).tolist()) == list(range(400))
    for draw in draws:
        assert len(draw.rows) <= 124
        assert np.unique(draw.labels, return_counts=True)[1].min() >= 2
        assert set(draw.views) <= {0, 1, 2}
        np.testing.assert_array_equal(draw.labels, labels[draw.rows])


def test_unlabelled_and_single_images_take_no_part():
    labels = np.array([0, 0, 0, 1, -1, -1])
    rows = np.concatenate([d.rows for d in ByLabel(labels).batches(np.random.default_rng(0), 1, 4)])
    assert sorted(rows.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("views", [1, 2, 3])
def test_two_different_views_of_each_image(views):
    draws = list(ByInstance(100).batches(np.random.default_rng(0), views, 40))
    assert sum(len(d.rows) for d in draws) == 200
    for draw in draws:
        half = len(draw.rows) // 2
        np.testing.assert_array_equal(draw.rows[:half], draw.rows[half:])
        assert views == 1 or (draw.views[:half] != draw.views[half:]).all()
        assert draw.views.max() < views


def test_neighbourhoods_stay_together():
    neighbours = (np.arange(60)[:, None] + np.arange(1, 5)) % 60
    for draw in ByNeighbours(neighbours).batches(np.random.default_rng(0), 2, 20):
        handfuls = draw.rows.reshape(-1, 5)
        np.testing.assert_array_equal(handfuls[:, 1:], neighbours[handfuls[:, 0]])


def test_triplets_come_from_their_pools():
    positives = [np.array([10, 11]), np.array([12])]
    negatives = [np.array([20]), np.array([21, 22])]
    plan = ByTriplet(np.array([0, 1]), positives, negatives)
    (draw,) = plan.batches(np.random.default_rng(0), 1, 60)
    for a, p, n in draw.rows.reshape(-1, 3):
        assert p in positives[a]
        assert n in negatives[a]


def test_the_same_stream_gives_the_same_batches():
    one, two = (
        [d.rows.tolist() for d in ByInstance(30).batches(np.random.default_rng(5), 3, 20)]
        for _ in range(2)
    )
    assert one == two
