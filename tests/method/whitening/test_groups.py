"""Groups: the scatter they give, when they are trusted, and what they do to a fit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from rpml import RPML
from rpml.estimator.description import decisions
from rpml.evaluation.metrics import recall_at_k
from rpml.method.whitening.constants import GROUP_SHRINKAGES, MIN_GROUPS
from rpml.method.whitening.groups import (
    drop_singles,
    drop_strangers,
    group_means,
    group_scatter,
    representatives,
    sample_rows,
    within_scatter,
)
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import coordinates, whitening_map


def views(seed=0, classes=30, per_class=6, n_views=4, d=32):
    """Things of several classes, each seen several times; class mates differ as views do."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), per_class)
    blur = np.where(np.arange(d) < d // 2, 2.5, 0.15)  # what a view changes
    things = rng.standard_normal((classes, d))[y] + 0.8 * blur * rng.standard_normal((len(y), d))
    rows = np.repeat(things, n_views, axis=0) + blur * rng.standard_normal((len(y) * n_views, d))
    return rows, np.repeat(np.arange(len(y)), n_views), np.repeat(y, n_views)


@pytest.fixture(scope="module")
def problem():
    return views()


def test_singles_are_dropped_and_numbers_are_dense():
    np.testing.assert_array_equal(
        drop_singles(np.array([5, -1, 5, 2, 9, 9, -1])), [0, -1, 0, -1, 1, 1, -1]
    )
    np.testing.assert_array_equal(drop_singles(np.array([-1, -1])), [-1, -1])


def test_representatives_are_one_row_a_thing():
    groups = np.array([1, -1, 0, 1, 0, -1])
    first, of_row = representatives(groups)
    assert sorted(first.tolist()) == [0, 1, 2, 5]
    assert of_row[0] == of_row[3] != of_row[2] == of_row[4]
    means = group_means(np.arange(6.0)[:, None], of_row)
    assert means[of_row[0], 0] == 1.5
    assert means[of_row[5], 0] == 5.0


def test_samples_take_whole_groups():
    groups = np.repeat(np.arange(50), 4)
    rows = sample_rows(groups, 40, np.random.default_rng(0))
    assert 30 <= len(rows) <= 40
    assert (np.bincount(groups[rows])[np.unique(groups[rows])] == 4).all()
    assert len(sample_rows(groups, 1000, np.random.default_rng(0))) == 200


def test_the_scatter_is_the_covariance_within_groups(problem):
    X, groups, _ = problem
    spectrum = principal_axes(X, unit_input=False)
    data = coordinates(X, np.arange(len(X)), spectrum, False, 8)
    scatter = within_scatter(data, groups)
    Y = (X - spectrum.mean) @ spectrum.axes[:, : data.W.shape[1]]
    expected = sum(
        (Y[groups == g] - Y[groups == g].mean(0)).T @ (Y[groups == g] - Y[groups == g].mean(0))
        for g in range(groups.max() + 1)
    ) / (len(X) - groups.max() - 1)
    np.testing.assert_allclose(scatter, expected, rtol=1e-3, atol=1e-3)
    assert group_scatter(data, groups, np.random.default_rng(0))[1].source == "groups"


def test_strangers_are_found():
    rng = np.random.default_rng(0)
    things = rng.normal(size=(100, 24))
    groups = np.repeat(np.arange(100), 4)
    X = things[groups] + 0.3 * rng.normal(size=(400, 24))
    moved = rng.choice(400, 20, replace=False)
    wrong = groups.copy()
    wrong[moved] = (groups[moved] + 7) % 100
    spectrum = principal_axes(X, unit_input=False)
    data = coordinates(X, np.arange(400), spectrum, False, 8)
    kept = drop_strangers(data, wrong, rng)
    assert (kept[moved] < 0).all()
    assert (np.delete(kept, moved) >= 0).mean() > 0.95


def fit(X, groups, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RPML(8, random_state=0, normalize_input=False, **parameters).fit(X, groups=groups)


def test_true_groups_help_on_unseen_classes(problem):
    X, groups, y = problem
    train, test = y < 20, (y >= 20) & (np.arange(len(y)) % 4 == 0)
    with_groups = fit(X[train], groups[train])
    without = fit(X[train], None)
    assert with_groups.whitening_.source == "groups"
    scores = [
        recall_at_k(m.transform(X[test]), y[test], ks=(1,))[1] for m in (with_groups, without)
    ]
    assert scores[0] > scores[1] + 0.05


def test_random_groups_are_ignored(problem):
    X, groups, _ = problem
    shuffled = np.random.default_rng(1).permutation(groups)
    ignored, without = fit(X, shuffled), fit(X, None)
    assert ignored.whitening_.source != "groups"
    assert ignored.whitening_.groups_ignored == "they say less than the neighbors"
    assert without.whitening_.groups_ignored == ""
    np.testing.assert_array_equal(ignored.components_, without.components_)
    np.testing.assert_array_equal(ignored.preprocessing_.matrix, without.preprocessing_.matrix)


def test_few_groups_are_ignored_and_the_model_says_so(problem, tmp_path):
    X, groups, _ = problem
    fit(X, np.where(groups < 3, groups, -1)).save(tmp_path / "m.rpml")
    model = RPML.load(tmp_path / "m.rpml")
    assert decisions(model)["groups"] == "ignored, because 3 groups are too few to tell"


def test_as_many_groups_as_needed_are_looked_at(problem):
    X, groups, _ = problem
    for n, ignored in ((MIN_GROUPS - 1, True), (MIN_GROUPS, False)):
        model = fit(X, np.where(groups < n, groups, -1))
        assert ("too few" in model.whitening_.groups_ignored) == ignored


def test_groups_of_one_row_each_are_pointed_out(problem):
    X = problem[0][:60]
    with pytest.warns(UserWarning, match="No two rows share a group"):
        RPML(4, n_neighbors=10, random_state=0).fit(X, groups=np.arange(60))


def test_members_share_a_label_and_are_never_negatives_of_each_other(problem):
    X, groups, _ = problem
    model = fit(X, groups)
    assert model.whitening_.source == "groups"
    assert (model.labels_ == model.labels_[np.searchsorted(groups, groups)]).all()
    a, p, n = model.triplets_.T
    assert (groups[a] != groups[n]).all()
    assert (groups[a] == groups[p]).any()


def test_no_groups_change_nothing(problem):
    X, _, _ = problem
    plain = RPML(8, random_state=0, max_iter=5, tol=1e-2).fit(X[:200])
    for nothing in (np.full(200, -1), np.array([None] * 200, object), np.arange(200)):
        same = RPML(8, random_state=0, max_iter=5, tol=1e-2).fit(X[:200], groups=nothing)
        np.testing.assert_array_equal(plain.components_, same.components_)


def test_names_serve_as_groups(problem):
    X, groups, _ = problem
    by_name = fit(X, np.array([f"listing {g}" for g in groups]), max_iter=2)
    by_number = fit(X, groups, max_iter=2)
    assert by_name.whitening_ == by_number.whitening_


def test_groups_of_another_length_are_refused(problem):
    X, groups, _ = problem
    with pytest.raises(ValueError, match="groups must have one value per row"):
        RPML(8).fit(X, groups=groups[:-1])


def test_agreement_is_chance_on_noise_and_high_on_structure():
    from rpml.method.whitening.groups import split_half_agreement
    from tests.method.whitening.test_neighborhoods import sampled

    rng = np.random.default_rng(4)
    noise, _ = sampled(rng.standard_normal((300, 40)))
    centers = np.repeat(rng.standard_normal((100, 40)), 3, axis=0)
    structure, _ = sampled(centers + 0.3 * rng.standard_normal((300, 40)))
    low = split_half_agreement(noise, np.eye(40), (np.inf,), rng)[0]
    high = split_half_agreement(structure, np.eye(40), (np.inf,), rng)[0]
    assert low < 0.03
    assert high > 0.3


def test_groups_that_are_hardly_found_more_often_than_by_chance_are_no_evidence():
    rng = np.random.default_rng(0)
    y, pairs = np.repeat([0, 1], 400), np.arange(800) // 2  # each pair is of one class
    X = 4 * rng.standard_normal((2, 12))[y] + rng.standard_normal((800, 12))
    for rows, shrinkages in (
        (X, ()),
        (X + rng.standard_normal((400, 12))[pairs], GROUP_SHRINKAGES),
    ):
        data = coordinates(rows, np.arange(800), principal_axes(rows, False), False, 8)
        evidence = group_scatter(data, pairs, np.random.default_rng(0))[1].evidence
        assert tuple(evidence) == shrinkages


@pytest.mark.parametrize("copies", [2, 4])
def test_groups_of_identical_rows_say_nothing(problem, copies):
    X = np.repeat(problem[0][::4].astype(np.float32), copies, axis=0)
    groups = np.repeat(np.arange(len(X) // copies), copies)
    model = RPML(8, n_neighbors=20, random_state=0).fit(X, groups=groups)  # no warning
    assert model.whitening_.source == "neighbors"
    assert "less than the neighbors" in model.whitening_.groups_ignored


def test_a_scatter_of_nothing_leaves_the_principal_axes():
    inner = whitening_map(np.zeros((5, 5)), np.diag(np.arange(5.0, 0, -1)), 0.25, 3)
    np.testing.assert_array_equal(inner, np.eye(5))
