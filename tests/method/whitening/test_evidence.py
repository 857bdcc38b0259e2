"""The choice of the shrinkage: what it must find, and when it must stay with PCA."""

from __future__ import annotations

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.baselines import PCA
from rpml.evaluation.metrics import recall_at_k
from rpml.method.whitening.evidence import (
    NUISANCE,
    PRICE,
    SHRINKAGES,
    RankGains,
    choose_shrinkage,
    chosen_rank_gain,
    mean_log_ranks,
    neighbor_scatter,
)
from rpml.runtime.intervals import Interval
from tests.method.whitening.test_neighborhoods import nuisance_rows, sampled


def gains(plain, whitened=(0, 0, 0, 0, 0)):
    """Of two queries that differ by 0.02."""
    return RankGains(*(np.array(g, float)[:, None] + [-0.01, 0.01] for g in (plain, whitened)))


@pytest.mark.parametrize(
    ("plain", "chosen"),
    [
        ((0, 0, 0, 0, 0), np.inf),
        ((-1, -1, 0, 0.9 * PRICE, 0), np.inf),
        ((-1, -1, 0, 1.1 * PRICE, 0), 4.0),
        ((-1, -1, 2.2 * PRICE, 1.1 * PRICE, 0), 1.0),
        ((6 * PRICE, 4 * PRICE, 2 * PRICE, PRICE, 0), 1 / 16),
    ],
)
def test_every_step_away_from_pca_has_its_price(plain, chosen):
    choice = choose_shrinkage(gains(plain))
    assert choice.shrinkage == chosen
    assert choice.trains == (chosen <= 1)
    assert list(choice.evidence.values()) == pytest.approx(list(plain))
    assert "PCA" in choice.reason
    value = choice.evidence[chosen] if np.isfinite(chosen) else max(plain)
    margin = 1.96 * 0.01 / np.sqrt(2)
    said = f"{value:.3f}, 95% interval {value - margin:.3f} to {value + margin:.3f}"
    assert said in choice.reason


def test_where_a_nuisance_dominates_the_strongest_whitening_near_the_best():
    top = 2 * NUISANCE
    choice = choose_shrinkage(gains((-1, -1, -1, -1, 0), (0.5 * top, 0.85 * top, top, 0, 0)))
    assert choice.shrinkage == 1 / 4
    assert choice.trains
    assert choice.evidence[1.0] == pytest.approx(top)
    assert "nuisance" in choice.reason


def test_mean_log_ranks_count_the_rows_before():
    angle = np.array([0.0, 0.1, 0.3, 0.6, 1.0])
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
    assert mean_log_ranks(rows, np.array([0]), np.array([[1]])) == 0
    found = mean_log_ranks(rows, np.array([0, 1]), np.array([[4, 2], [0, 2]]))
    assert found == pytest.approx([(np.log(4) + np.log(2)) / 2, np.log(2) / 2])


def test_retrieval_gains_where_the_strongest_directions_mislead():
    X, y = nuisance_rows()
    train, test = y < 40, y >= 40
    model = RPML(12, random_state=0).fit(X[train])
    assert model.whitening_.source == "neighbors"
    assert model.whitening_.shrinkage < 4
    assert set(model.whitening_.evidence) == set(SHRINKAGES)
    scores = [
        recall_at_k(fitted.transform(X[test]), y[test], ks=(1,))[1]
        for fitted in (model, PCA(12).fit(X[train]))
    ]
    assert scores[0] > scores[1] + 0.03


def test_noise_stays_with_pca_and_is_not_trained_on():
    X = np.random.default_rng(6).standard_normal((400, 40))
    model = RPML(8, random_state=0).fit(X)
    assert np.isinf(model.whitening_.shrinkage)
    assert model.n_iter_ == 0
    assert "stepped back" in model.message_
    expected = PCA(8).fit(X).transform(X)
    np.testing.assert_allclose(
        model.transform(X) @ model.transform(X).T, expected @ expected.T, atol=1e-6
    )
    assert RPML(8, training="always", random_state=0).fit(X).n_iter_ > 0


@pytest.mark.parametrize("shape", [(60, 30), (300, 3)])
def test_too_little_data_stays_with_pca(shape):
    data, _ = sampled(np.random.default_rng(5).standard_normal(shape), 2)
    assert chosen_rank_gain(data, np.random.default_rng(0)) == Interval(0, 0, 0)
    _, choice = neighbor_scatter(data, np.random.default_rng(0))
    assert choice.source == "none"
    assert np.isinf(choice.shrinkage)
    assert "too few" in choice.reason
    assert choice.trains == (shape[1] < 8)


def test_the_same_seed_gives_the_same_choice():
    X, _ = nuisance_rows()
    data, _ = sampled(X)
    a, b = (neighbor_scatter(data, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(a[0], b[0])
    assert a[1] == b[1]
