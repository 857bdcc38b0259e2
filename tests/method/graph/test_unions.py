import numpy as np
import pytest

from rpml.method.graph.heaps import nearest_by_unions
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.threads import using_threads

UNIONS = ((0, 1), (2, 3), (0, 2))


def parts_of(n, widths=(5, 7, 3, 6)):
    rng = np.random.default_rng(n)
    return [rng.normal(size=(n, width)).astype(np.float32) for width in widths]


@pytest.mark.parametrize("n", [5, 60, 700, 2100])
def test_neighbors_are_those_of_the_columns_side_by_side(n):
    parts = parts_of(n)
    for (i, j), found in zip(UNIONS, nearest_by_unions(parts, UNIONS, 3), strict=True):
        rows = np.hstack([parts[i], parts[j]])
        expected = nearest_neighbors(rows, 3, metric="cosine", method="exact").indices
        np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))


def test_the_number_of_threads_changes_nothing():
    parts = parts_of(1500)
    with using_threads(1):
        one = nearest_by_unions(parts, UNIONS, 3)
    with using_threads(3):
        three = nearest_by_unions(parts, UNIONS, 3)
    for a, b in zip(one, three, strict=True):
        np.testing.assert_array_equal(a, b)


def test_rows_without_a_direction_get_other_rows():
    parts = parts_of(300)
    for part in parts:
        part[:5] = 0
    for found in nearest_by_unions(parts, UNIONS, 3):
        assert found.min() >= 0
        assert found.max() < 300
        assert (found != np.arange(300)[:, None]).all()


def test_fewer_rows_than_neighbors():
    (found,) = nearest_by_unions(parts_of(3), ((0, 1),), 3)
    np.testing.assert_array_equal(np.sort(found, axis=1), [[1, 2], [0, 2], [0, 1]])
