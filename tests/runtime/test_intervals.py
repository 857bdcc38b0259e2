"""Intervals against literal resampling, and what narrows them."""

import numpy as np
import pytest

from rpml.runtime.intervals import interval, mean_interval, paired, share_interval


def test_bootstrap_against_drawing_queries_one_by_one():
    rng = np.random.default_rng(0)
    values = rng.choice([-1.0, -1 / 3, 0.0, 1 / 3, 1.0], 400, p=[0.1, 0.1, 0.5, 0.1, 0.2])
    literal = [values[rng.integers(0, 400, 400)].mean() for _ in range(4000)]
    found = interval(values, np.random.default_rng(1))
    assert found.value == pytest.approx(values.mean())
    assert np.allclose([found.low, found.high], np.quantile(literal, [0.025, 0.975]), atol=0.01)
    assert paired(values, values, rng).clear == 0
    assert paired(values + 1, values, rng).clear == 1


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
