"""Exact search against sorting everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpml.pages.explorer import index as module
from rpml.pages.explorer.index import Index, top, unit


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-1, 1, width=32), min_size=1),
    st.integers(1, 30),
    st.integers(2, 64),
)
def test_top_is_a_stable_sort(values: list[float], k: int, sample: int) -> None:
    scores = np.array(values, np.float32)
    expected = np.argsort(-scores, kind="stable")[:k]
    before, module._SAMPLE = module._SAMPLE, sample
    try:
        assert top(scores, min(k, len(scores))).tolist() == expected.tolist()
    finally:
        module._SAMPLE = before


def test_neighbours_are_the_most_similar_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 8)).astype(np.float32)
    X[7] = X[3] * 5  # the same direction
    index = Index(X)
    cosines = (unit(X) @ unit(X[3:4])[0]).astype(np.float64)
    cosines[3] = -np.inf
    expected = np.argsort(-cosines, kind="stable")[:15]
    found = index.near_row(3, 15)
    assert found.rows.tolist() == expected.tolist()
    assert found.rows[0] == 7
    assert found.similarities[0] == pytest.approx(1)
    other = index.near_vector(X[3] * 1e30, 16)
    assert set(other.rows[:2].tolist()) == {3, 7}
    many = index.near_rows(np.array([3, 11]), 15)
    assert set(many[0].tolist()) == set(expected.tolist())


def test_k_is_cut_to_the_rows_there_are() -> None:
    index = Index(np.eye(4))
    assert len(index.near_row(0, 100).rows) == 3
    assert len(index.near_vector(np.ones(4), 100).rows) == 4
    assert len(Index(np.ones((1, 2))).near_row(0, 5).rows) == 0


def test_zero_rows_are_similar_to_nothing() -> None:
    index = Index(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    assert index.near_row(0, 2).similarities.tolist() == [0, 0]
    assert np.isfinite(index.rows).all()
