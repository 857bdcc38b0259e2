"""Noisy pairs: the rate of right ones, the scatter they give, when they are ignored."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from rpml import RPML
from rpml.estimator.description import decisions
from rpml.evaluation.metrics import recall_at_k
from rpml.method.whitening import constants
from rpml.method.whitening import groups as pairs_module
from rpml.method.whitening.constants import PAIR_SHRINKAGES
from rpml.method.whitening.evidence import PairEvidence, ScatterChoice
from rpml.method.whitening.groups import (
    pair_correlation,
    pair_scatter,
    pairs_within,
    refined_scatter,
    right_rate,
    with_paired,
)
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import coordinates
from tests.problems import classes_with_nuisance


def draw(y, m, wrong, seed=0):
    """Random pairs of one class, of which a part is random rows instead."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, len(y), m)
    order = np.argsort(y, kind="stable")
    start, size = np.searchsorted(y[order], y[first]), np.bincount(y)[y[first]]
    mate = order[start + rng.integers(0, size)]
    mate = np.where(rng.random(m) < wrong, rng.integers(0, len(y), m), mate)
    pairs = np.stack([first, mate], axis=1)
    return np.unique(np.sort(pairs[first != mate], axis=1), axis=0)


@pytest.fixture(scope="module")
def problem():
    return classes_with_nuisance()


def sampled(X):
    spectrum = principal_axes(X, unit_input=False)
    return coordinates(X, np.arange(len(X)), spectrum, False, 8)


@pytest.fixture(scope="module")
def data(problem):
    return sampled(problem[0])


@pytest.mark.parametrize("wrong", [0.0, 0.4, 0.8, 1.0])
def test_the_rate_of_right_pairs_is_estimated_from_the_rows(wrong):
    X, y = classes_with_nuisance(nuisance=0.7)
    pairs = draw(y, 2000, wrong)
    folds = np.array_split(np.random.default_rng(0).permutation(pairs), 2)
    data = sampled(X)
    prior = np.diag(data.deviations**2)
    rate = right_rate(data, folds, prior, np.random.default_rng(0))
    right = np.mean(y[pairs[:, 0]] == y[pairs[:, 1]])
    assert 0.8 * right - 0.05 <= rate <= right + 0.05


def test_wrong_pairs_only_dilute_the_correlation(problem, data):
    y = problem[1]
    pairs = draw(y, 8000, 0.4)
    right = y[pairs[:, 0]] == y[pairs[:, 1]]
    truth = np.diag(pair_correlation(data.W, pairs[right]))
    diluted = np.diag(pair_correlation(data.W, pairs))
    assert np.abs(diluted / right.mean() - truth).mean() < 0.1
    assert np.abs(diluted - truth).mean() > 0.2


def test_the_refined_scatter_keeps_full_rank_and_few_pairs_leave_the_prior(problem, data):
    pairs, prior = draw(problem[1], 20_000, 0.0), np.diag(data.deviations**2)
    scale = np.outer(data.deviations, data.deviations)
    refined = refined_scatter(data, pairs, 0.5, prior) / scale  # too low a rate
    assert np.linalg.eigvalsh(refined)[0] == pytest.approx(0.1, abs=1e-4)
    few = refined_scatter(data, pairs[::100], 0.5, prior) / scale
    assert np.abs(few - np.eye(len(few))).max() < np.abs(refined - np.eye(len(few))).max() / 2
    flat = prior.copy()
    flat[0, 0] *= 0.02  # one direction in which neighbors agree more than pairs may
    refined = refined_scatter(data, pairs[:1], 0.5, flat) / scale
    assert np.linalg.eigvalsh(refined)[0] == pytest.approx(0.02, abs=0.01)


def fit(X, pairs=None, **inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = RPML(8, random_state=0, normalize_input=False, max_iter=10)
        return model.fit(X, pairs=pairs, **inputs)


def test_pairs_of_which_many_are_wrong_help_on_unseen_classes(problem):
    X, y = classes_with_nuisance(classes=60)
    train = y < 40
    with_pairs, without = fit(X[train], draw(y[train], 2000, 0.4)), fit(X[train])
    assert with_pairs.whitening_.source == "pairs"
    assert without.whitening_.pairs is None
    scores = [
        recall_at_k(m.transform(X[~train]), y[~train], ks=(1,))[1] for m in (with_pairs, without)
    ]
    assert scores[0] > scores[1] + 0.05


@pytest.mark.parametrize(
    ("wrong", "m", "reason"),
    [(1.0, 2000, "they are no closer than random rows"), (0.0, 49, "49 pairs are too few to tell")],
)
def test_useless_pairs_change_nothing(problem, wrong, m, reason):
    X, y = problem
    pairs = draw(y, 3 * m, wrong)[::2][:m]
    ignored, without = fit(X, pairs), fit(X)
    np.testing.assert_array_equal(ignored.components_, without.components_)
    np.testing.assert_array_equal(ignored.preprocessing_.matrix, without.preprocessing_.matrix)
    found = ignored.whitening_.pairs
    assert not found.used
    assert found.rate < 0.01
    assert found.reason == reason
    assert decisions(ignored)["pairs"] == f"ignored, because {reason}"
    assert "pairs" not in decisions(without)


def test_fifty_pairs_are_looked_at(problem, data):
    prior = np.diag(data.deviations**2), ScatterChoice("neighbors", np.inf, {})
    found = pair_scatter(data, draw(problem[1], 80, 0.0)[:50], prior, np.random.default_rng(0))[1]
    assert found.pairs.rate > 0


@pytest.mark.parametrize(("nuisance", "used"), [(0.7, False), (2.0, True)])
def test_pairs_that_say_nothing_new_leave_pca(nuisance, used):
    X, y = classes_with_nuisance(nuisance=nuisance)
    data = sampled(X)
    prior = np.diag(data.deviations**2), ScatterChoice("neighbors", np.inf, {})
    scatter, choice = pair_scatter(data, draw(y, 4000, 0.2), prior, np.random.default_rng(0))
    assert choice.pairs.used == used
    assert choice.pairs.rate > 0.4
    assert choice.shrinkage in (PAIR_SHRINKAGES if used else (np.inf,))
    assert (scatter is prior[0]) != used


def test_few_classes_of_many_rows_do_not_choose_too_strong_a_whitening():
    """Pairs of the same rows would favor what separates just these classes."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 20)
    X = rng.standard_normal((20, 120))[y] + 1.5 * rng.standard_normal((400, 120))
    X /= np.sqrt(np.arange(1, 121))
    data = sampled(X)
    prior = np.diag(data.deviations**2), ScatterChoice("neighbors", np.inf, {})
    choice = pair_scatter(data, draw(y, 400, 0.0), prior, np.random.default_rng(0))[1]
    assert choice.shrinkage >= 1 / 16


@pytest.mark.parametrize(("n_pairs", "chosen"), [(500, 1 / 64), (499, 1 / 4)])
def test_many_pairs_take_the_strongest_whitening_that_ranks_nearly_best(
    data, n_pairs, chosen, monkeypatch
):
    """Their ranks are made up: 1/4 is best, 1/64 has 85% of its gain over PCA, 1/16 less."""
    ranks = {np.inf: 2.0, 1.0: 1.5, 1 / 4: 1.0, 1 / 16: 1.3, 1 / 64: 1.15}
    monkeypatch.setattr(pairs_module, "_embed", lambda rows, scatter, shrinkage: shrinkage)
    monkeypatch.setattr(
        pairs_module, "_log_ranks", lambda shrinkage, pairs: np.full(len(pairs), ranks[shrinkage])
    )
    pairs = draw(np.repeat(np.arange(40), 12), 700, 0.0)[:n_pairs]
    rng = np.random.default_rng(0)
    found = pairs_module._best_shrinkage(data, pairs, 1.0, np.eye(data.W.shape[1]), rng)
    assert found == chosen


def test_small_classes_with_an_even_spectrum_take_the_weakest_whitening():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 6)
    X = rng.standard_normal((30, 100))[y] + rng.standard_normal((180, 100))
    X /= np.arange(1, 101) ** 0.25
    data = sampled(X)
    prior = np.diag(data.deviations**2)
    shrinkage = pairs_module._best_shrinkage(
        data, draw(y, 400, 0.0), 1.0, prior, np.random.default_rng(0)
    )
    assert shrinkage == 1.0


def test_rows_too_few_to_tell_leave_pairs_alone(data):
    prior = np.eye(data.W.shape[1]), ScatterChoice("none", np.inf, {}, "too few")
    pairs = draw(np.repeat(np.arange(40), 12), 200, 0.0)
    found = pair_scatter(data, pairs, prior, np.random.default_rng(0))
    assert found[1].pairs == PairEvidence(0.0, False, "too few")


def test_pairs_refine_groups_and_labels_refine_both(problem):
    X, y = problem
    pairs = draw(y, 400, 0.3)  # more of them leave the labels nothing to add
    many = np.where(np.arange(len(y)) % 3 > 0, y, -1)
    both = fit(X, pairs, must_link=[(0, 1)])
    assert both.whitening_.pairs.used
    labeled = RPML(8, random_state=0, normalize_input=False, use_labels=True, max_iter=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labeled.fit(X, many, pairs=pairs)
    assert labeled.whitening_.source == "pairs and labels"
    assert labeled.whitening_.pairs.used
    choice = ScatterChoice("groups", 0.1, {})
    assert choice.refined_by("pairs").refined_by("labels").source == "groups and pairs and labels"


def test_the_evidence_survives_the_file(problem, tmp_path):
    X, y = problem
    model = fit(X, draw(y, 2000, 0.4))
    assert model.whitening_.pairs.used
    model.save(tmp_path / "m.rpml")
    assert RPML.load(tmp_path / "m.rpml").whitening_ == model.whitening_


def test_an_update_does_not_unlearn_the_pairs(problem):
    X, y = problem
    model = fit(X, draw(y, 2000, 0.4))
    matrix = model.preprocessing_.matrix
    np.testing.assert_array_equal(model.update(X[:60], X).preprocessing_.matrix, matrix)


def test_samples_keep_whole_pairs(monkeypatch):
    pairs = np.array([[0, 9], [3, 4], [1, 8]])
    np.testing.assert_array_equal(pairs_within(pairs, np.array([1, 3, 4, 8]), 10), [[1, 2], [0, 3]])
    rows = with_paired(np.array([2, 3]), pairs, 10, np.random.default_rng(0))
    np.testing.assert_array_equal(rows, [0, 1, 2, 3, 4, 8, 9])
    every = np.arange(10)
    assert with_paired(every, pairs, 10, np.random.default_rng(0)) is every
    monkeypatch.setattr(constants, "SCATTER_ROWS", 20)
    rows = with_paired(every, np.arange(20, 60).reshape(-1, 2), 60, np.random.default_rng(0))
    assert len(rows) == 10 + 2 * 5  # both rows of a pair per four rows of the limit


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([0, 1], r"array of 2 row indices per line, got int64 of shape \(2,\)"),
        ([[0, 1, 2]], r"of shape \(1, 3\)"),
        ([["a", "b"]], "array of 2 row indices per line, got <U1"),
        ([[0, 1], [0, 480]], r"pairs\[1\] = \[0, 480\] is outside the 480 rows of X"),
        ([[0, 1], [-1, 3]], r"pairs\[1\] = \[-1, 3\] is outside"),
        ([[0, 1.5]], r"pairs\[0\] = \[0.0, 1.5\] is outside"),
        ([[0, 1], [5, 5]], r"pairs\[1\] = \[5, 5\] links a row to itself"),
    ],
)
def test_what_is_no_pair_is_refused(problem, pairs, message):
    with pytest.raises(ValueError, match=message):
        RPML(8).fit(problem[0], pairs=pairs)


def test_pairs_need_the_whitening_that_uses_them(problem):
    with pytest.raises(ValueError, match="whiten=1 cannot use pairs, whiten='auto' can"):
        RPML(8, whiten=1).fit(problem[0], pairs=[[0, 1]])


def test_a_repeated_pair_counts_once(problem):
    X, y = problem
    pairs = draw(y, 300, 0.0)
    with pytest.warns(UserWarning, match="2 of .* pairs left out, since each repeats another one"):
        repeated = RPML(8, random_state=0).fit(X, pairs=np.vstack([pairs, pairs[:2, ::-1]]))
    once = RPML(8, random_state=0).fit(X, pairs=pairs)
    np.testing.assert_array_equal(repeated.components_, once.components_)


def test_no_pairs_are_no_pairs(problem):
    X, _ = problem
    assert fit(X, np.empty((0, 2), int)).whitening_.pairs is None


def test_a_clear_gain_of_held_out_pairs_leaves_pca():
    """Pairs come from outside: they need not show in the neighbors they are meant to correct."""
    X, y = classes_with_nuisance(nuisance=0.95, classes=80)
    data, pairs = sampled(X), draw(y, 6000, 0.2)
    pca = np.diag(data.deviations**2), ScatterChoice("neighbors", np.inf, {})
    found = pair_scatter(data, pairs, pca, np.random.default_rng(0))[1].pairs
    gain, low = (float(found.reason.split(mark)[1].split()[0].strip(",")) for mark in GAINS)
    assert found.used
    assert 0 < low < gain < 0.15


GAINS = ("held-out pairs ", "interval ")


def test_pairs_that_share_a_row_choose_a_shrinkage(data):
    """Where that row is among those that judge, no pair is left to make a scatter."""
    star = np.stack([np.zeros(60, int), np.arange(1, 61)], axis=1)
    prior = np.diag(data.deviations**2)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        assert pairs_module._best_shrinkage(data, star, 1.0, prior, rng) in PAIR_SHRINKAGES
