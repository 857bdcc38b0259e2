"""Pairs and relative distances: what they say together, and when they contradict each other."""

import numpy as np
import pytest

from rpml.method.knowledge.constraints import gather


def classes(*values):
    return np.array(values, np.intp)


def test_nothing_known_is_none():
    assert gather(None, 4) is None
    assert gather(classes(-1, -1, -1), 3, must_link=[], comparisons=np.empty((0, 3))) is None


def test_links_carry_classes_and_make_sets():
    known = gather(classes(0, -1, -1, -1, -1, 1, -1), 7, must_link=[(1, 0), (2, 1), (3, 4)])
    np.testing.assert_array_equal(known.labels, [0, 0, 0, 2, 2, 1, -1])
    assert known.n_classes == 2
    np.testing.assert_array_equal(known.is_classed(), [1, 1, 1, 0, 0, 1, 0])


def test_links_alone_make_no_classes():
    known = gather(None, 4, must_link=[(0, 2)])
    assert known.n_classes == 0
    np.testing.assert_array_equal(known.labels, [0, -1, 0, -1])


def test_certain_triplets_are_those_of_three_known_classes():
    known = gather(classes(0, 0, 1, -1, -1), 5, must_link=[(3, 4)])
    triplets = np.array([[0, 1, 2], [0, 1, 3], [3, 4, 0], [0, 2, 1]])
    np.testing.assert_array_equal(known.pinned(triplets), [True, False, False, False])


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        ((0, -1, 1), {"must_link": [(0, 1), (1, 2)]}, r"must_link\[1\] \(1, 2\) joins rows of two"),
        (None, {"must_link": [(0, 1)], "cannot_link": [(1, 2), (0, 1)]}, r"cannot_link\[1\]"),
        ((0, 0, -1), {"cannot_link": [(0, 1)]}, r"cannot_link\[0\] \(0, 1\) parts rows of one"),
        (None, {"cannot_link": [(1, 1)]}, "from itself"),
        (
            (0, 1, 0),
            {"comparisons": [(0, 1, 2)]},
            r"comparisons\[0\] \[0, 1, 2\] contradicts the classes",
        ),
        (
            None,
            {"comparisons": [(0, 1, 2), (0, 2, 1)]},
            r"comparisons\[1\].*circle.*comparisons\[0\]",
        ),
        # |01| < |02| < |12| < |01|
        (None, {"comparisons": [(0, 1, 2), (2, 0, 1), (1, 2, 0)]}, r"comparisons\[2\].*circle"),
    ],
)
def test_contradictions_are_named_by_index(labels, given, message):
    labels = None if labels is None else classes(*labels)
    with pytest.raises(ValueError, match=message):
        gather(labels, 3, **given)
    assert gather(labels, 3, **given, conflicts="weight") is not None


def test_sets_that_were_apart_stay_apart_after_joining():
    links = {"must_link": [(0, 1), (2, 3), (1, 2)], "cannot_link": [(0, 3)]}
    with pytest.raises(ValueError, match=r"cannot_link\[0\] \(0, 3\) parts rows linked"):
        gather(None, 4, **links)
    heavy = gather(None, 4, must_link=links["must_link"], cannot_link=[(0, 3, 5.0)],
                   conflicts="weight")  # fmt: skip
    np.testing.assert_array_equal(heavy.labels, [0, 0, 1, 1])  # the last link gives way
    np.testing.assert_array_equal(heavy.apart, [[0, 3]])


def test_the_lighter_of_two_is_left_out():
    light = gather(None, 3, comparisons=[(0, 1, 2, 1.0), (0, 2, 1, 3.0)], conflicts="weight")
    np.testing.assert_array_equal(light.comparisons, [[0, 2, 1]])
    links = {"must_link": [(0, 1, 0.5)], "cannot_link": [(1, 2, 0.6), (0, 1, 0.7)]}
    report = r"1 constraint left out: must_link\[0\] \(0, 1\) contradicts cannot_link\[1\]\."
    with pytest.warns(UserWarning, match=report):
        link = gather(None, 3, **links, conflicts="weight")
    np.testing.assert_array_equal(link.apart, [[0, 1], [1, 2]])
    np.testing.assert_array_equal(link.labels, [-1, -1, -1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"must_link": [(0, 5)]}, r"must_link\[0\] = \[0, 5\] is outside the 3 rows"),
        ({"comparisons": [(0, 1)]}, "comparisons must be an array of 3 row indices"),
        ({"must_link": [("a", "b")]}, "must_link must be an array of 2"),
        ({"cannot_link": [(0, 1, -2.0)]}, r"weight of cannot_link\[0\]"),
        ({"cannot_link": [(0.5, 1)]}, "is outside"),
        ({"must_link": [(0, 1)], "conflicts": "ignore"}, "conflicts='ignore'"),
    ],
)
def test_bad_constraints_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        gather(None, 3, **given)


def test_three_others_of_a_circle_are_named():
    circle = [(0, 1, 2), (0, 2, 3), (0, 3, 4), (0, 4, 5), (0, 5, 1)]
    with pytest.raises(ValueError, match=r"comparisons\[4\].* with comparisons\[0, 1, 2\]\."):
        gather(None, 6, comparisons=circle)
