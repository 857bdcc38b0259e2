"""Where pseudo-labels come from, and what happens when they are useless."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.cluster import KMeans

from rpml.evaluation.metrics import pair_scores
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.ascent import usable_labels
from rpml.method.clustering.pseudo_labels import (
    apply_supervision,
    as_clusterer,
    find_exemplars,
    pseudo_labels,
)
from rpml.method.knowledge.constraints import as_labels, gather
from tests.problems import blobs


def test_aas_finds_clear_clusters():
    X, y = blobs(spread=0.1)
    labels = pseudo_labels(X, as_clusterer("aas", 10))
    assert pair_scores(labels, y)["precision"] > 0.95


def test_any_clustering_object_is_used_as_it_is():
    X, _ = blobs()
    kmeans = KMeans(5, n_init=1, random_state=0)
    labels = pseudo_labels(X, kmeans)
    np.testing.assert_array_equal(labels, as_labels(kmeans.fit_predict(X), len(X)))


def test_given_labels_are_taken_and_numbered_from_zero():
    X = np.zeros((5, 2))
    labels = pseudo_labels(X, np.array([7, 7, -1, 3, 3]))
    np.testing.assert_array_equal(labels, [1, 1, -1, 0, 0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["b", "a", "b"], [1, 0, 1]),
        (np.array(["x", None, "y"], object), [0, -1, 1]),
        ([1.0, np.nan, 0.0], [1, -1, 0]),
        (np.array([2, -1, 2]), [0, -1, 0]),
        (np.array([True, False, True]), [1, 0, 1]),
        (np.array([3, -2, None], object), [0, -1, -1]),
        (pd.Series(["b", pd.NA, "a"], dtype="string"), [1, -1, 0]),
        (pd.Series([5, pd.NA, 5], dtype="Int64"), [0, -1, 0]),
        (np.array(["1960-01-02", "NaT", "1960-01-01"], "M8[ns]"), [1, -1, 0]),
    ],
)
def test_labels_of_many_kinds(values, expected):
    np.testing.assert_array_equal(as_labels(values, 3), expected)


def test_labels_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"one value per row .3., got shape \(2,\)"):
        as_labels([0, 1], 3)


def points(*angles):
    """Unit rows at angles in degrees."""
    radians = np.radians(angles)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def test_a_cluster_takes_the_class_of_its_labeled_rows_and_the_rest_stays_apart():
    known = gather(np.array([-1, 2, 2, -1, -1, -1]), 6)
    labels = apply_supervision(np.array([0, 0, 1, 1, -1, 2]), known, np.eye(6))
    np.testing.assert_array_equal(labels[:4], [2, 2, 2, 2])  # two clusters of one class are one
    assert labels[4] == -1
    assert labels[5] > 2


def test_a_cluster_of_two_classes_is_cut_between_them():
    known = gather(np.array([0, -1, -1, 1]), 4)
    labels = apply_supervision(np.zeros(4, np.intp), known, points(0, 10, 40, 50))
    np.testing.assert_array_equal(labels, [0, 0, 1, 1])


def test_linked_rows_join_clusters_without_a_class():
    known = gather(None, 5, must_link=[(0, 2)])
    labels = apply_supervision(np.array([0, 0, 1, 1, 2]), known, np.eye(5))
    assert len(set(labels[:4])) == 1
    assert labels[4] != labels[0]
    noise = apply_supervision(np.array([-1, 0, -1, 1, 1]), known, np.eye(5))
    assert noise[0] == noise[2] >= 0
    assert len(set(noise)) == 3


def test_rows_known_to_be_apart_are_parted_with_their_neighbors():
    Z = points(0, 10, 50, 60)
    known = gather(None, 4, cannot_link=[(0, 3)])
    labels = apply_supervision(np.zeros(4, np.intp), known, Z)
    assert labels[0] == labels[1] != labels[2] == labels[3]
    linked = gather(None, 4, must_link=[(0, 2)], cannot_link=[(0, 3)])
    labels = apply_supervision(np.zeros(4, np.intp), linked, Z)
    assert labels[0] == labels[1] == labels[2] != labels[3]
    classed = gather(np.array([-1, -1, -1, 0]), 4, cannot_link=[(0, 3)])
    labels = apply_supervision(np.zeros(4, np.intp), classed, Z)
    assert labels[3] == labels[2] == 0
    assert labels[0] == labels[1] > 0


def test_every_row_its_own_cluster_lowers_epsilon_and_says_so():
    X, _ = blobs()
    aas = AuthorityAscentShift(10, epsilon=1e6, metric="cosine", merge=None)
    with pytest.warns(UserWarning, match="each row into a cluster of its own; epsilon was lowered"):
        labels = pseudo_labels(X, aas)
    assert 1 < labels.max() + 1 < len(X)


def test_one_single_cluster_raises_epsilon_and_says_so():
    rng = np.random.default_rng(0)
    X = np.abs(rng.standard_normal((60, 3))) + 5
    aas = AuthorityAscentShift(
        59, epsilon=1e-12, gamma=1e-9, metric="cosine", affinity="cosine", merge=None
    )
    with pytest.warns(UserWarning, match="all rows into one cluster; epsilon was raised"):
        labels = pseudo_labels(X, aas)
    assert labels.max() > 0


def test_lengths_do_not_change_which_labeled_row_is_nearest():
    lengths = np.array([[1.0], [20.0], [1.0], [1.0]])
    Z = lengths * points(0, 50, 10, 40)
    known = gather(np.array([0, 1, -1, -1]), 4)
    np.testing.assert_array_equal(apply_supervision(np.zeros(4, int), known, Z), [0, 1, 0, 1])
    apart = gather(None, 4, cannot_link=[(0, 1)])
    labels = apply_supervision(np.zeros(4, int), apart, Z)
    assert labels[0] == labels[2] != labels[1] == labels[3]


def test_given_classes_win_over_clusters_neighbors_and_noise():
    Z = np.array([[1.0, 0], [1, 0], [1, 0.1], [0, 1]])
    known = gather(np.array([0, 1, -1, 1]), 4)
    labels = apply_supervision(np.array([5, 5, 5, -1]), known, Z)
    # the second row equals the first, which is nearest to it; the last row is in no cluster
    assert labels.tolist() == [0, 1, 0, 1]


def test_rows_without_a_label_are_no_exemplars_and_are_not_counted():
    Y = np.eye(4)[[0, 0, 0, 1, 1, 2, 2, 3]]
    basins = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    labels = np.array([-1, 0, 0, 0, 0, 1, 1, -1])  # two basins merged, rows of two left out
    found = find_exemplars(Y, basins, labels)
    np.testing.assert_array_equal(found.rows, [1, 3, 5])
    np.testing.assert_array_equal(found.labels, [0, 0, 1])
    np.testing.assert_array_equal(found.sizes, [2, 2, 2])


@pytest.mark.parametrize(
    ("modes", "what", "percent"),
    [
        ([3], "all rows into one cluster", [50, 75, 90, 95, 98]),
        ([0, 1, 2], "each row into a cluster of its own", [75, 50, 25, 10, 2]),
    ],
)
def test_every_quantile_of_the_affinities_is_tried(modes, what, percent):
    tried = []

    class Ascent:
        graph = sparse.csr_matrix(np.arange(1.0, 102))

        def run(self, epsilon):
            tried.append(epsilon)
            return SimpleNamespace(labels=np.arange(len(modes)), modes=modes, epsilon=epsilon)

    with pytest.warns(
        UserWarning, match=f"AAS put {what} and no other epsilon changes that"
    ) as caught:
        labels = usable_labels(Ascent(), "auto")
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(labels, np.arange(len(modes)))
    assert tried == ["auto", *(1 + q for q in percent)]
