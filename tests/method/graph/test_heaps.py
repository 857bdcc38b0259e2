"""The nearest of some rows to others, against a full sort."""

import numpy as np
import pytest

from rpml.method.graph.heaps import nearest_rows


@pytest.mark.parametrize("k", [1, 7])
@pytest.mark.parametrize("n", [50, 5000])  # several blocks
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("euclidean", [False, True])
def test_best_first_and_ties_by_number(k, n, skip, euclidean):
    rng = np.random.default_rng(0)
    rows = np.round(2 * rng.standard_normal((n, 3))).astype(np.float32)  # many ties
    own = np.arange(0, n, 7) if skip else None
    queries = rows[::7]
    half = 0.5 * np.square(rows).sum(axis=1) if euclidean else None
    expected = queries @ rows.T - (0 if half is None else half)
    if skip:
        expected[np.arange(len(own)), own] = -np.inf
    order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
    scores, found = nearest_rows(queries, rows, k, own=own, half=half)
    np.testing.assert_array_equal(found, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(expected, order, axis=1))


def test_more_than_there_are():
    rows = np.eye(3)
    assert nearest_rows(rows, rows, 9)[1].shape == (3, 3)
    assert nearest_rows(rows, rows, 9, own=np.arange(3))[1].tolist() == [[1, 2], [0, 2], [0, 1]]
