"""Label-free figures against literal ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpml.evaluation.metrics.label_free import (
    antihub_rate,
    effective_rank,
    hubness,
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
    assert spectrum(Z) == pytest.approx(values / values.sum())
    wide = spectrum(Z.T)  # fewer rows than columns
    assert len(wide) == 6
    assert wide.sum() == pytest.approx(1)


def test_effective_rank_counts_equal_axes() -> None:
    assert effective_rank(np.full(7, 1 / 7)) == pytest.approx(7)
    assert effective_rank(np.array([1.0, 0.0, 0.0])) == pytest.approx(1)


def test_constant_rows_have_a_spectrum() -> None:
    assert spectrum(np.ones((5, 3))).sum() == pytest.approx(1)


def test_hubness_is_the_skewness_of_occurrences() -> None:
    ring = np.stack([(np.arange(10) + 1) % 10, (np.arange(10) - 1) % 10], axis=1)
    assert hubness(ring, 2) == 0
    assert antihub_rate(ring, 2) == 0
    star = np.zeros((10, 1), int)
    star[0] = 1
    counts = np.bincount(star.ravel(), minlength=10).astype(float)
    centered = counts - counts.mean()
    literal = (centered**3).mean() / (centered**2).mean() ** 1.5
    assert hubness(star, 1) == pytest.approx(literal)
    assert hubness(star, 1) > 2
    assert antihub_rate(star, 1) == pytest.approx(0.8)
