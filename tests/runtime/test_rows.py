"""Slices, samples and top-k of rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rpml.runtime import rows
from rpml.runtime.rows import slices, sorted_sample, top_k


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-1, 1, width=32), min_size=1),
    st.integers(1, 30),
    st.integers(2, 64),
)
def test_top_k_is_a_stable_sort(values: list[float], k: int, sample: int) -> None:
    scores = np.array(values, np.float32)
    expected = np.argsort(-scores, kind="stable")[:k]
    before, rows.TOP_K_SAMPLE = rows.TOP_K_SAMPLE, sample
    try:
        assert top_k(scores, min(k, len(scores))).tolist() == expected.tolist()
    finally:
        rows.TOP_K_SAMPLE = before


@given(st.integers(0, 200), st.integers(1, 70))
def test_slices_cover_the_range(n: int, size: int) -> None:
    assert [i for part in slices(n, size) for i in range(n)[part]] == list(range(n))


def test_a_sample_is_sorted_and_without_repetition() -> None:
    sample = sorted_sample(100, 30, np.random.default_rng(0))
    assert len(set(sample.tolist())) == 30
    assert sample.tolist() == sorted(sample.tolist())
    assert sample.max() < 100
    assert sorted_sample(5, 30, np.random.default_rng(0)).tolist() == [0, 1, 2, 3, 4]
