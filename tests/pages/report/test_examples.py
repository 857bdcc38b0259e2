"""What is shown is chosen by rule."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rpml.pages.report.sections.fit import cluster_samples, trusted_triplets
from rpml.pages.report.sections.items import most_changed


def model(weights: list[float], probabilities: list[float]) -> SimpleNamespace:
    triplets = np.array([[0, 1, 2], [0, 2, 3], [1, 0, 3], [2, 0, 1]])
    return SimpleNamespace(
        triplets_=triplets,
        triplet_weights_=np.array(weights),
        triplet_probabilities_=np.array(probabilities),
    )


def test_trust_goes_by_weight_where_weights_differ() -> None:
    by, most, least = trusted_triplets(model([0.9, 0.8, 0.1, 0.5], [0.1, 0.2, 0.3, 0.4]), count=2)
    assert by == "weight"
    assert most.tolist() == [0, 3]  # no anchor twice
    assert least.tolist() == [2, 3]


def test_trust_goes_by_probability_where_weights_are_alike() -> None:
    by, most, least = trusted_triplets(model([1, 1, 1, 1], [0.1, 0.2, 0.3, 0.4]), count=1)
    assert (by, most.tolist(), least.tolist()) == ("probability", [3], [0])


def test_most_changed_keeps_the_fewest_neighbors() -> None:
    n, rng = 60, np.random.default_rng(0)
    before = np.array([(np.arange(1, 7) + i) % n for i in range(n)])
    after = before.copy()
    after[10] = (np.arange(20, 26)) % n
    after[40, :3] = [1, 2, 3]
    chosen = most_changed(before, after, 2, rng)
    assert chosen.tolist() == [10, 40]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_cluster_samples_span_the_sizes(count: int) -> None:
    labels = np.concatenate([np.repeat(np.arange(5), [9, 7, 5, 2, 1]), [-1, -1]])
    found = cluster_samples(labels, count, members=4)
    sizes = [size for _, size, _ in found]
    assert sizes == sorted(sizes, reverse=True)
    assert all(size > 1 for size in sizes)
    for name, size, rows in found:
        assert (labels[rows] == name).all()
        assert len(rows) == min(4, size)
    assert cluster_samples(np.full(4, -1), 3, 4) == []
