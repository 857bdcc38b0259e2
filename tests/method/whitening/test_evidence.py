"""The choice of the shrinkage: what it must find, and when it must stay with PCA."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rpml import RPML
from rpml.estimator.description import decisions
from rpml.evaluation.baselines import PCA
from rpml.evaluation.metrics import recall_at_k
from rpml.method.whitening.evidence import (
    HALF_GAIN,
    HALF_SLACK,
    NUISANCE,
    PRICE,
    SHRINKAGES,
    Evidence,
    RankGains,
    choose,
    choose_shrinkage,
    chosen_rank_gain,
    mean_log_ranks,
    neighbor_scatter,
    rank_gains,
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


def half_whitened_rows(seed=0):
    """Classes along every axis, blurred by the square root of what tells them apart there."""
    rng, y = np.random.default_rng(seed), np.repeat(np.arange(60), 10)
    scale = np.arange(1, 41.0) ** -0.7
    between = rng.standard_normal((60, 40)) * scale
    return between[y] + 0.3 * np.sqrt(scale) * rng.standard_normal((600, 40)), y


@dataclass(frozen=True)
class Measured(Evidence):
    """Evidence whose gains at half of the size are given, those of half-whitening first."""

    at: tuple[float, float] = (0.0, 0.0)

    def at_half_size(self, shrinkage):
        return tuple(np.full(2, gain) for gain in self.at)


def measured(plain, at, whitened=(0, 0, 0, 0, 0)):
    return Measured(gains(plain, whitened), np.eye(1), [], 2, at)


SHRINKAGE_4 = (-1, -1, 0, 2 * PRICE, 0)


@pytest.mark.parametrize(
    ("plain", "at", "halved"),
    [
        (SHRINKAGE_4, (1.1 * HALF_GAIN, 0.5 * HALF_GAIN), True),
        (SHRINKAGE_4, (0.9 * HALF_GAIN, 0.5 * HALF_GAIN), False),
        (SHRINKAGE_4, (2 * HALF_GAIN, 2 * HALF_GAIN + 0.9 * HALF_SLACK), True),
        (SHRINKAGE_4, (2 * HALF_GAIN, 2 * HALF_GAIN + 1.1 * HALF_SLACK), False),
        ((0, 0, 0, 0, 0), (1.1 * HALF_GAIN, 0.0), True),
    ],
)
def test_half_whitening_has_to_gain_about_as_much_as_the_shrinkage(plain, at, halved):
    evidence = measured(plain, at)
    choice, used = choose(evidence)
    alone = choose_shrinkage(evidence.gains)
    assert choice.half_whitens == halved
    assert choice.strength == ("half-whitened PCA" if halved else alone.strength)
    assert used.mean() == pytest.approx(at[0] if halved else alone.evidence[alone.shrinkage])
    if halved:
        assert f"{at[0]:.3f}" in choice.half_reason
        assert ("shrinkage 4" in choice.half_reason) == (alone.shrinkage == 4)
    else:
        assert choice == alone


def test_half_whitening_does_not_stand_against_a_nuisance():
    top = 2 * NUISANCE
    evidence = measured((0, 0, 0, 0, 0), (1.0, 0.0), (top, top, top, 0, 0))
    assert not choose(evidence)[0].half_whitens


def test_at_half_of_the_size_a_gain_is_over_pca():
    data, _ = sampled(half_whitened_rows()[0])
    evidence = rank_gains(data, np.random.default_rng(0))
    half, pca = evidence.at_half_size(np.inf)
    assert np.all(pca == 0)
    assert half.mean() > HALF_GAIN
    rows = [view.half_whitened for view in evidence.views]
    deviations = np.concatenate([view.std(axis=0) for view in rows[:2]])
    expected = np.sqrt(data.deviations)
    np.testing.assert_allclose(np.sort(deviations), np.sort(expected), rtol=0.15)


@pytest.mark.parametrize("seed", [0, 1])
def test_where_half_whitening_does_as_well_it_is_used(tmp_path, seed):
    X, _ = half_whitened_rows(seed)
    model = RPML(12, random_state=0).fit(X)
    choice = model.whitening_
    assert choice.half_whitens
    assert np.isinf(choice.shrinkage)
    assert decisions(model)["whitening"] == f"half-whitened PCA, because {choice.half_reason}"
    assert model.n_iter_ == 0
    np.testing.assert_allclose(
        np.abs(model.transform(X)), np.abs(PCA(12, exponent=0.5).fit(X).transform(X)), atol=1e-5
    )
    model.save(tmp_path / "m.rpml")
    assert RPML.load(tmp_path / "m.rpml").whitening_ == choice


def test_half_whitening_gives_way_to_labels_and_outlives_useless_pairs():
    X, y = half_whitened_rows()
    labeled = RPML(12, use_labels=True, random_state=0).fit(X, y).whitening_
    assert labeled.source == "labels"
    assert not labeled.half_whitens
    pairs = np.random.default_rng(0).permutation(len(X)).reshape(-1, 2)
    paired = RPML(12, random_state=0).fit(X, pairs=pairs).whitening_
    assert paired.pairs is not None
    assert not paired.pairs.used
    assert paired.half_whitens
