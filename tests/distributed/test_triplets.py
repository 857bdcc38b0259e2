"""Triplets drawn by the partitions: whatever the cut, the same; up to a block, the local ones."""

from dataclasses import replace

import numpy as np
import pytest

from rpml import RPML
from rpml.method.local import LocalStages
from rpml.method.settings import FitInputs
from rpml.runtime.context import Context

CONFIG = RPML(max_triplets=5000, triplets_per_anchor=2)._settings()
UNGROUPED = np.full(3000, -1)


def drawn(cluster, labels, parts, config=CONFIG, groups=None):
    from rpml.distributed.triplets import draw_triplets

    edges = np.array([len(labels) * i // parts for i in range(parts + 1)])
    inputs = FitInputs(UNGROUPED[: len(labels)] if groups is None else groups)
    tasks = draw_triplets(cluster, edges, labels, inputs, config, Context(7))
    found = [triplets for triplets, _ in cluster.values(tasks)]
    for part, low, high in zip(found, edges, edges[1:], strict=False):
        assert ((part[:, 0] >= low) & (part[:, 0] < high)).all()
    return np.concatenate(found)


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(0).integers(-1, 60, 3000)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr("rpml.distributed.triplets.BLOCK", 400)


@pytest.mark.parametrize(("limit", "n_anchors"), [(5000, 3000), (50_000, 3000), (5000, 100)])
def test_one_block_draws_the_local_triplets(cluster, labels, limit, n_anchors):
    config = replace(CONFIG, max_triplets=limit)
    labels = np.where(np.arange(len(labels)) < n_anchors, labels, -1)
    Z = np.zeros((len(labels), 1))
    stages = LocalStages(config, Context(7))
    expected = stages.objective(Z, None, labels, FitInputs(UNGROUPED)).triplets
    np.testing.assert_array_equal(drawn(cluster, labels, 4, config), expected)
    assert len(expected) <= min(limit, 2 * n_anchors)


def test_the_cut_does_not_matter_and_clusters_span_the_shards(cluster, labels, small_blocks):
    one, two = (drawn(cluster, labels, parts) for parts in (3, 7))
    np.testing.assert_array_equal(one, two)
    a, p, n = labels[one].T
    assert (a == p).all()
    assert (a != n).all()
    assert (one[:, 0] != one[:, 1]).all()
    assert min(a.min(), n.min()) >= 0
    assert len(one) == 5000
    used = np.bincount(one[:, 0], minlength=len(labels))[labels >= 0]
    assert used.min() >= 1
    assert used.max() <= 2
    shard = one // 1000  # of three
    assert 0.6 < (shard[:, 0] != shard[:, 1]).mean() < 0.72
    assert 0.6 < (shard[:, 0] != shard[:, 2]).mean() < 0.72


def test_a_pool_of_whole_clusters(cluster, labels, small_blocks):
    from rpml.distributed.triplets import pool_rows

    rng = np.random.default_rng(0)
    rows = pool_rows(labels, 1000, rng)
    assert 700 < len(rows) <= 1000
    inside = np.isin(labels, labels[rows]) & (labels >= 0)
    np.testing.assert_array_equal(np.flatnonzero(inside), rows)
    np.testing.assert_array_equal(pool_rows(labels, 3000, rng), np.flatnonzero(labels >= 0))
    found = drawn(cluster, labels, 3, replace(CONFIG, max_triplets=250))
    assert len(found) == 250
    assert len(np.unique(labels[found])) < 25  # four rows a triplet, 50 rows a cluster


def test_rows_of_a_group_are_no_negatives(cluster, labels, small_blocks):
    groups = np.arange(3000) % 40
    found = drawn(cluster, labels, 3, groups=groups)
    assert (groups[found[:, 0]] != groups[found[:, 2]]).all()
    same_label = labels[found[:, 0]] == labels[found[:, 1]]
    same_group = groups[found[:, 0]] == groups[found[:, 1]]
    assert (same_label | same_group).all()
    assert abs(same_label.mean() - 0.5) < 0.05


def test_whole_clusters_are_dealt():
    from rpml.distributed.stochastic import deal_clusters

    labels = np.random.default_rng(1).integers(-1, 50, 5000)
    part = deal_clusters(labels, 3, np.random.default_rng(0))
    assert part[-1] == -1
    rows = np.bincount(part[labels[labels >= 0]])
    assert len(rows) == 3
    assert rows.max() < 1.2 * rows.min()
    assert deal_clusters(np.array([0, 0, 2]), 8, np.random.default_rng(0)).max() == 1
