"""Intervals against literal resampling, and what narrows them."""

import numpy as np
import pytest
from scipy.stats import binomtest

from rpml.runtime.intervals import (
    _sign_test,
    interval,
    mean_interval,
    paired,
    share_interval,
)


def test_bootstrap_against_drawing_queries_one_by_one():
    rng = np.random.default_rng(0)
    values = rng.choice([-1.0, -1 / 3, 0.0, 1 / 3, 1.0], 400, p=[0.1, 0.1, 0.5, 0.1, 0.2])
    literal = [values[rng.integers(0, 400, 400)].mean() for _ in range(4000)]
    found = interval(values, np.random.default_rng(1))
    assert found.value == pytest.approx(values.mean())
    assert np.allclose([found.low, found.high], np.quantile(literal, [0.025, 0.975]), atol=0.01)
    assert paired(values, values, rng).clear == 0
    assert paired(values + 1, values, rng).clear == 1


@pytest.mark.parametrize(
    ("better", "worse", "clear"),
    [(0, 0, 0), (4, 0, 0), (5, 0, 0), (6, 0, 1), (0, 6, -1), (0, 5, 0), (7, 1, 0), (8, 1, 1)],
)
def test_few_differing_queries_are_judged_by_the_sign_test(better, worse, clear):
    """Two-sided p is 0.0625 for 5 : 0, 0.031 for 6 : 0, 0.070 for 7 : 1, 0.039 for 8 : 1."""
    one, other = np.zeros(500), np.zeros(500)
    one[:better], other[better : better + worse] = 1, 1
    found = paired(one, other, np.random.default_rng(0))
    assert found.clear == clear
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx((better - worse) / 500)


def test_the_sign_test_is_that_of_scipy():
    for better, worse in [(0, 0), (3, 1), (12, 12), (4, 19)]:
        expected = binomtest(better, better + worse).pvalue if better else 1.0
        assert _sign_test(better, worse) == pytest.approx(expected)


def test_chance_is_rarely_called_clear():
    rng = np.random.default_rng(0)
    for rate in (0.01, 0.03, 0.2):
        calls = []
        for _ in range(400):
            signs = rng.choice([-1.0, 0.0, 1.0], 300, p=[rate / 2, 1 - rate, rate / 2])
            calls.append(paired(signs, np.zeros(300), rng).clear != 0)
        assert np.mean(calls) < 0.08


def test_standard_errors_agree_with_resampling():
    values = np.random.default_rng(0).gamma(2.0, size=800)
    near, drawn = mean_interval(values), interval(values, np.random.default_rng(1))
    assert near.value == pytest.approx(drawn.value)
    assert (near.low, near.high) == pytest.approx((drawn.low, drawn.high), abs=0.02)
    more = mean_interval(np.tile(values, 4))
    assert more.high - more.low == pytest.approx((near.high - near.low) / 2)


def test_shares_agree_with_resampling_and_are_never_certain():
    hits = np.random.default_rng(0).random(500) < 0.7
    share, drawn = share_interval(hits.mean(), 500), interval(hits, np.random.default_rng(1))
    assert (share.low, share.high) == pytest.approx((drawn.low, drawn.high), abs=0.01)
    assert share_interval(1.0, 20).low == pytest.approx(0.839, abs=0.001)  # a table of Wilson's
    assert share_interval(1.0, 20).high == pytest.approx(1.0)
    assert share_interval(0.0, 20).low == pytest.approx(0.0)
