"""Pseudo-labels: level upon level of AAS, no row without a label."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.methods.base import FeatureBank
from rpml.deep.methods.labels import aas_labels, label_singletons
from rpml.evaluation.metrics.agreement import pair_scores
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
    known = FeatureBank(rows, None, 0)
    first, second = (aas_labels(known, levels) for levels in (1, 2))
    # what was together stays together
    assert len(set(zip(first.tolist(), second.tolist(), strict=True))) == len(set(first.tolist()))
    assert len(set(second.tolist())) < len(set(first.tolist()))
    assert pair_scores(second, y)["recall"] > pair_scores(first, y)["recall"]


def test_rows_without_a_label_get_their_own():
    found = label_singletons(np.array([4, -1, 4, -1, 7]))
    assert found[0] == found[2]
    assert sorted(set(found.tolist())) == [0, 1, 2, 3]


def test_means_of_clusters():
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    means = group_means(rows, np.array([1, 0, 1, 2]))
    np.testing.assert_allclose(means, [[2, 3], [2, 3], [6, 7]])
