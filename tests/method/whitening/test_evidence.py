"""The choice of the whitening: what it must find, and when it must stay with PCA."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import linalg

from rpml import RPML
from rpml.estimator.description import decisions
from rpml.evaluation.metrics import recall_at_k
from rpml.evaluation.registry import PCA
from rpml.method.whitening.constants import (
    LEAST_SUPPORT,
    MILD,
    MIN_AXES,
    MIN_ROWS,
    RIDGE,
    SHRINKAGES,
    SUPPORT,
    TURN,
)
from rpml.method.whitening.evidence import (
    NO_GAIN,
    NuisanceEvidence,
    RankGains,
    choose,
    n_directions,
    neighbor_scatter,
)
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import mean_log_ranks
from rpml.runtime.intervals import Interval
from tests.evaluation.test_recommendation import nuisance
from tests.method.whitening.test_neighborhoods import nuisance_rows, sampled

NEEDED = LEAST_SUPPORT  # with few directions


def gains(mild, rescaled=0.0, turned=(0.0, 0.0), directions=1.0):
    """Of two queries that differ by 0.02."""
    named = {"mild": mild, "rescaled": rescaled, "turned": np.array(turned)[:, None]}
    by_query = {k: np.add(gain, [-0.01, 0.01]) for k, gain in named.items()}
    return SimpleNamespace(directions=directions, **by_query)


@pytest.mark.parametrize("mild", [-1, 0, 0.9 * NEEDED])
def test_without_support_it_is_pca_whatever_else_seems_to_gain(mild):
    choice = choose(gains(mild, 1.0, (1.0, 1.0)), 64)
    assert (choice.shrinkage, choice.ridge, choice.trains) == (np.inf, np.inf, False)
    assert not choice.whitens
    assert choice.evidence == pytest.approx({MILD: mild})
    assert choice.gain == NO_GAIN
    margin = 1.96 * 0.01 / np.sqrt(2)
    interval = f"95% interval {mild - margin:.3f} to {mild + margin:.3f}"
    assert f"{mild:.3f}, {interval}; {NEEDED} is required" in choice.reason


def test_more_support_is_needed_where_many_directions_share_the_variance():
    for part in (0.97, 1.03):
        choice = choose(gains(part * 100 * SUPPORT, 1.0, (1.0, 1.0), directions=100), 64)
        assert choice.whitens == (part > 1)
        assert choice.whitens or "0.100 is required" in choice.reason


def test_directions_are_counted_by_their_variance():
    assert n_directions(np.ones(7)) == pytest.approx(7)
    assert n_directions(np.array([1.0, 1e-6, 1e-6])) == pytest.approx(1)
    data, _ = sampled(nuisance_rows()[0])
    found = RankGains(data, np.random.default_rng(0))
    assert found.directions == n_directions(data.deviations)


def test_with_support_the_axes_are_rescaled_by_the_ridge_that_gains_more():
    for rescaled, ridge in ((0.3, RIDGE), (0.5 * NEEDED, MILD)):
        choice = choose(gains(1.1 * NEEDED, rescaled), 64)
        assert (choice.shrinkage, choice.ridge, choice.trains) == (np.inf, ridge, False)
        assert choice.whitens
        assert choice.evidence == pytest.approx({RIDGE: rescaled, MILD: 1.1 * NEEDED})
        assert choice.gain.value == pytest.approx(choice.evidence[ridge])


@pytest.mark.parametrize(("part", "shrinkage"), [(0.8, 1 / 8), (0.95, 1 / 16), (1.1, 1 / 16)])
def test_axes_are_turned_by_the_strongest_whitening_near_the_best(part, shrinkage):
    turned = (2 * part * TURN, 2 * TURN)
    choice = choose(gains(1, 1, turned), 64)
    assert (choice.shrinkage, choice.ridge, choice.trains) == (shrinkage, np.inf, True)
    assert choice.evidence == pytest.approx(dict(zip(SHRINKAGES, turned, strict=True)))
    assert choice.gain.value == pytest.approx(choice.evidence[shrinkage])
    assert "discounting the directions in which near rows differ" in choice.reason
    assert "nuisance" not in choice.reason


@pytest.mark.parametrize(("size", "turn"), [(8, 0.71), (32, 0.71), (64, 1), (256, 1.42)])
def test_in_fewer_dimensions_turned_axes_gain_less(size, turn):
    for part in (0.97, 1.03):
        turned = choose(gains(1, 0, (0, part * turn * TURN)), size)
        assert np.isfinite(turned.shrinkage) == (part > 1)


def test_mean_log_ranks_count_the_rows_before():
    angle = np.array([0.0, 0.1, 0.3, 0.6, 1.0])
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    assert mean_log_ranks(rows, np.array([0]), np.array([[1]])) == 0
    found = mean_log_ranks(rows, np.array([0, 1]), np.array([[4, 2], [0, 2]]))
    assert found == pytest.approx([(np.log(4) + np.log(2)) / 2, np.log(2) / 2])


def test_retrieval_gains_where_the_strongest_directions_mislead():
    X, y = nuisance(classes=60)
    train, test = y < 40, y >= 40
    model = RPML(12, random_state=0).fit(X[train])
    assert model.whitening_.source == "neighbors"
    assert model.whitening_.shrinkage == SHRINKAGES[0]
    assert set(model.whitening_.evidence) == set(SHRINKAGES)
    scores = [
        recall_at_k(fitted.transform(X[test]), y[test], ks=(1,))[1]
        for fitted in (model, PCA(12).fit(X[train]))
    ]
    assert scores[0] > scores[1] + 0.03


def test_noise_is_left_to_pca_and_not_trained_on():
    X = np.random.default_rng(6).standard_normal((400, 40))
    model = RPML(8, random_state=0).fit(X)
    assert model.whitening_.source == "neighbors"
    assert not model.whitening_.whitens
    assert model.n_iter_ == 0
    assert decisions(model)["training"] == model.message_
    assert model.message_.startswith("not trained: ")
    assert model.outcome_ == "PCA"
    assert decisions(model)["whitening"].startswith("none (PCA), because rescaled axes have a")
    similarities = [Z @ Z.T for Z in (model.transform(X), PCA(8).fit(X).transform(X))]
    np.testing.assert_allclose(*similarities, atol=1e-5)
    assert RPML(8, training="always", random_state=0).fit(X).n_iter_ > 0


def test_the_last_scatter_is_made_where_something_uses_it():
    X = np.random.default_rng(6).standard_normal((400, 40))
    data, _ = sampled(X)
    cheap, choice = neighbor_scatter(data, np.random.default_rng(0), 0)
    full, same = neighbor_scatter(data, np.random.default_rng(0), 400)
    assert choice == same
    assert not choice.whitens
    assert np.abs(cheap - full).max() > 0


def test_too_little_data_stays_with_pca():
    for shape in ((MIN_ROWS, MIN_AXES), (MIN_ROWS - 1, 30), (300, MIN_AXES - 1)):
        data, _ = sampled(np.random.default_rng(5).standard_normal(shape), 2)
        choice = neighbor_scatter(data, np.random.default_rng(0))[1]
        assert (choice.source == "none") == (shape != (MIN_ROWS, MIN_AXES))
    _, choice = neighbor_scatter(data, np.random.default_rng(0))
    assert choice.gain == Interval(0, 0, 0)
    assert choice.source == "none"
    assert np.isinf(choice.shrinkage)
    assert "too few" in choice.reason
    assert not choice.trains


def test_four_columns_are_left_to_pca():
    X = np.random.default_rng(5).standard_normal((150, 4)) * [4, 2, 1, 0.5]
    model = RPML(2, random_state=0).fit(X)
    assert model.n_iter_ == 0
    similarities = [Z @ Z.T for Z in (model.transform(X), PCA(2).fit(X).transform(X))]
    np.testing.assert_allclose(*similarities, atol=1e-5)
    assert RPML(2, training="always", random_state=0).fit(X).n_iter_ > 0


def test_the_same_seed_gives_the_same_choice():
    X, _ = nuisance_rows()
    data, _ = sampled(X)
    a, b = (neighbor_scatter(data, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(a[0], b[0])
    assert a[1] == b[1]


def blurred_rows(seed=0):
    """Classes along every axis, blurred by the square root of what tells them apart there."""
    rng, y = np.random.default_rng(seed), np.repeat(np.arange(60), 10)
    scale = np.arange(1, 41.0) ** -0.7
    between = rng.standard_normal((60, 40)) * scale
    return between[y] + 0.3 * np.sqrt(scale) * rng.standard_normal((600, 40)), y


def test_a_rank_gain_is_over_pca():
    data, _ = sampled(blurred_rows()[0])
    rng = np.random.default_rng(0)
    found = RankGains(data, rng)
    assert found.mild.shape == found.rescaled.shape == (300,)
    assert found.turned.shape == (len(SHRINKAGES), 300)
    assert min(found.mild.mean(), found.rescaled.mean()) > LEAST_SUPPORT


def test_rescaled_axes_span_what_principal_axes_span_at_every_size(tmp_path):
    X, _ = blurred_rows()
    model = RPML(12, random_state=0).fit(X)
    choice = model.whitening_
    assert choice.ridge in (MILD, RIDGE)
    said = f"by neighbors, principal axes rescaled (ridge 1/{1 / choice.ridge:.0f}), because "
    assert decisions(model)["whitening"] == said + choice.reason
    assert model.n_iter_ == 0
    matrix = model.preprocessing_.matrix @ model.components_.T
    axes = principal_axes(X, unit_input=True).axes
    for size in (4, 8, 12):
        assert linalg.subspace_angles(matrix[:, :size], axes[:, :size]).max() < 1e-6
    smaller = RPML(8, random_state=0).fit(X)
    assert smaller.whitening_.ridge == choice.ridge
    np.testing.assert_allclose(smaller.transform(X), model.transform(X, n_components=8), atol=1e-5)
    model.save(tmp_path / "m.rpml")
    assert RPML.load(tmp_path / "m.rpml").whitening_ == choice


def test_rescaling_gives_way_to_labels_and_outlives_useless_pairs():
    X, y = blurred_rows()
    rng = np.random.default_rng(3)
    noise = 0.3 * rng.standard_normal((600, 3)) @ np.linalg.qr(rng.standard_normal((40, 3)))[0].T
    assert np.isfinite(RPML(12, random_state=0).fit(X + noise).whitening_.ridge)
    labeled = RPML(12, use_labels=True, random_state=0).fit(X + noise, y).whitening_
    assert labeled.source == "labels"
    assert np.isinf(labeled.ridge)
    pairs = np.random.default_rng(0).permutation(len(X)).reshape(-1, 2)
    paired = RPML(12, random_state=0).fit(X, pairs=pairs).whitening_
    assert paired.pairs is not None
    assert not paired.pairs.used
    assert np.isfinite(paired.ridge)


def test_the_evidence_on_queries_is_a_sentence():
    found = NuisanceEvidence("queries", False, "they are few", 1, 0.5, 0.25, 0.3)
    shares = "50% of nearest neighbors of queries are queries (25% by chance)"
    assert found.summary == f"{shares}; not used, because they are few"
    used = replace(found, used=True, reason="they are many")
    assert used.summary == f"{shares}; after: 30%; 1 direction removed, because they are many"
