"""Label-free figures against literal ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpml.evaluation.metrics.label_free import (
    effective_rank,
    hubness_interval,
    is_antihub,
    neighbor_overlap,
    spectrum,
)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_overlap_counts_common_neighbors(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = (np.array([rng.permutation(9)[:5] for _ in range(6)]) for _ in range(2))
    literal = [len(set(a[:k]) & set(b[:k])) / k for a, b in zip(before, after, strict=True)]
    assert neighbor_overlap(before, after, k) == pytest.approx(literal)


def test_spectrum_is_the_share_of_variance() -> None:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 6)) * [5, 3, 2, 1, 0.5, 0.1] + 7
    values = np.linalg.eigvalsh(np.cov(Z.T))[::-1]
    assert spectrum(Z)[0] == pytest.approx(values / values.sum())
    wide = spectrum(Z.T)[0]  # fewer rows than columns
    assert len(wide) == 6
    assert wide.sum() == pytest.approx(1)


def test_effective_rank_counts_equal_axes() -> None:
    assert effective_rank(np.full(7, 1 / 7)) == pytest.approx(7)
    assert effective_rank(np.array([1.0, 0.0, 0.0])) == pytest.approx(1)


def test_constant_rows_have_a_spectrum() -> None:
    found = spectrum(np.ones((5, 3)))
    assert found[0].sum() == pytest.approx(1)
    assert found[1].low == found[1].value == found[1].high


@pytest.mark.parametrize("shape", [(300, 12), (40, 90)])
def test_the_effective_rank_varies_as_its_interval_says(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    spread = np.geomspace(1, 0.05, shape[1])
    found = [spectrum(rng.normal(size=shape) * spread)[1] for _ in range(200)]
    assert all(rank.low < rank.value < rank.high for rank in found)
    width = np.mean([rank.high - rank.low for rank in found])
    literal = 2 * 1.96 * np.std([rank.value for rank in found])
    assert 0.8 * literal < width < 1.5 * literal  # of few rows in many dimensions rather too wide
    more = spectrum(rng.normal(size=(4 * shape[0], shape[1])) * spread)[1]
    assert more.high - more.low < 0.7 * width


def test_the_effective_rank_is_no_more_than_the_axes() -> None:
    rank = spectrum(np.random.default_rng(0).normal(size=(30, 3)))[1]
    assert 1 <= rank.low < rank.value < rank.high <= 3


def test_hubness_is_the_skewness_of_occurrences() -> None:
    ring = np.stack([(np.arange(10) + 1) % 10, (np.arange(10) - 1) % 10], axis=1)
    assert hubness_interval(ring, 2, np.random.default_rng(0)).value == 0
    assert not is_antihub(ring, 2).any()
    assert hubness_interval(ring, 2, np.random.default_rng(0)).high == 0
    star = np.zeros((10, 1), int)
    star[0] = 1
    counts = np.bincount(star.ravel(), minlength=10).astype(float)
    centered = counts - counts.mean()
    literal = (centered**3).mean() / (centered**2).mean() ** 1.5
    assert hubness_interval(star, 1, np.random.default_rng(0)).value == pytest.approx(literal)
    assert hubness_interval(star, 1, np.random.default_rng(0)).value > 2
    assert is_antihub(star, 1).tolist() == [False] * 2 + [True] * 8
