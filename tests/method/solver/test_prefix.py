"""Prefixes chosen by the triplets: a rotation, and better than the order of variance."""

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.metrics import recall_at_k
from rpml.method.solver.training import (
    PREFIX_TRIPLETS,
    prefix_rotation,
    principal_subspace,
    sizes_below,
    triplet_subset,
)
from rpml.method.triplets.sampling import sample_triplets
from rpml.method.whitening.neighborhoods import shrinkage_share
from rpml.runtime.rows import unit_rows
from tests.problems import blobs

NO_FLOOR = np.zeros((32, 32))


@pytest.fixture(scope="module")
def misleading():
    """Classes differ in the last eight of 32 columns, which vary least; labels, triplets."""
    X, y = blobs(classes=12, d=8, spread=0.2)
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(len(X), 24)) * np.linspace(1.5, 1.2, 24)
    return unit_rows(np.hstack([noise, X])), y, sample_triplets(y, rng, per_anchor=4)


def test_powers_of_two_below():
    assert sizes_below(128) == [64, 32, 16, 8]
    assert sizes_below(100) == [64, 32, 16, 8]
    assert sizes_below(9) == [8]
    assert sizes_below(8) == sizes_below(1) == []


def test_it_is_a_rotation(misleading):
    Y, _, triplets = misleading
    rotation = prefix_rotation(Y, triplets, 45.0, NO_FLOOR)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(32), atol=1e-6)


@pytest.mark.parametrize("size", [8, 16])
def test_a_prefix_finds_more_than_the_axes_of_largest_variance(misleading, size):
    Y, y, triplets = misleading
    turned = Y @ prefix_rotation(Y, triplets, 45.0, NO_FLOOR)
    before, after = (recall_at_k(rows[:, :size], y, (1,))[1] for rows in (Y, turned))
    assert after > before + 0.3


def test_axes_whose_scatter_is_all_floor_come_later_in_a_smaller_prefix(misleading):
    Y, _, triplets = misleading
    shrinkage = np.diag(np.repeat([0.0, 0.9], [28, 4]))
    turned = (prefix_rotation(Y, triplets, 45.0, one) for one in (NO_FLOOR, shrinkage))
    drowned = [np.linalg.norm(rotation[28:, :8]) for rotation in turned]
    assert drowned[1] < drowned[0] - 0.1


def test_without_triplets_nothing_turns(misleading):
    none = np.empty((0, 3), np.intp)
    np.testing.assert_array_equal(prefix_rotation(misleading[0], none, 45.0, NO_FLOOR), np.eye(32))
    rows, places = triplet_subset(none)
    assert len(rows) == len(places) == 0


def test_triplets_taken_evenly():
    triplets = np.arange(6 * PREFIX_TRIPLETS + 3).reshape(-1, 3)
    rows, places = triplet_subset(triplets)
    assert 0.6 * PREFIX_TRIPLETS < len(places) <= PREFIX_TRIPLETS
    np.testing.assert_array_equal(rows[places], triplets[::3])


def test_a_fit_is_nested_and_stays_the_embedding_it_was():
    X, y = blobs(classes=30, d=40, spread=0.8)
    model = RPML(32, clustering=y, random_state=0).fit(X)
    L = model.components_.T
    np.testing.assert_allclose(L.T @ L, np.eye(32), atol=1e-5)
    Z = model.preprocessing_.apply(X)
    shrinkage = shrinkage_share(model.preprocessing_, model.whitening_, L)
    assert nested_gain(Z @ L, model.triplets_, shrinkage) < 0.02
    assert (np.abs(L).max(axis=0) == L.max(axis=0)).all()


def nested_gain(Y, triplets, shrinkage):
    """How far another round would still turn the first sixteen axes, as a share of all it could."""
    again = prefix_rotation(Y, triplets, 45.0, shrinkage)[:, :16]
    return 1 - np.linalg.norm(again[:16]) ** 2 / 16


def test_axes_that_rows_do_not_vary_along_complete_the_principal_ones():
    rows = np.random.default_rng(0).standard_normal((50, 2)) @ [[3.0, 0, 0, 0, 3], [0, 1, 0, 0, 0]]
    L = principal_subspace(rows, 4)
    np.testing.assert_allclose(L.T @ L, np.eye(4), atol=1e-12)
    assert np.linalg.matrix_rank(rows @ L) == 2
    np.testing.assert_allclose(L[:, 0] ** 2, [0.5, 0, 0, 0, 0.5], atol=0.05)
    np.testing.assert_array_equal(L[:, :2], principal_subspace(rows, 2))
