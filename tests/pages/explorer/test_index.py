"""Exact search against sorting everything."""

from __future__ import annotations

import numpy as np
import pytest

from rpml.pages.explorer.index import ExactIndex
from rpml.runtime.rows import unit_rows


def test_neighbors_are_the_most_similar_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 8)).astype(np.float32)
    X[7] = X[3] * 5  # the same direction
    index = ExactIndex(X)
    cosines = (unit_rows(X) @ unit_rows(X[3:4])[0]).astype(np.float64)
    cosines[3] = -np.inf
    expected = np.argsort(-cosines, kind="stable")[:15]
    rows, similarity = index.near_row(3, 15)
    assert rows.tolist() == expected.tolist()
    assert rows[0] == 7
    assert similarity[0] == pytest.approx(1)
    other, _ = index.near_vector(X[3] * 1e30, 16)
    assert set(other[:2].tolist()) == {3, 7}
    many = index.nearest_rows(np.array([3, 11]), 15)
    assert many[0].tolist() == expected.tolist()


def test_k_is_cut_to_the_rows_there_are() -> None:
    index = ExactIndex(np.eye(4))
    assert len(index.near_row(0, 100)[0]) == 3
    assert len(index.near_vector(np.ones(4), 100)[0]) == 4
    assert len(ExactIndex(np.ones((1, 2))).near_row(0, 5)[0]) == 0


def test_zero_rows_are_similar_to_nothing() -> None:
    index = ExactIndex(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    assert index.near_row(0, 2)[1].tolist() == [0, 0]
    assert np.isfinite(index.rows).all()
