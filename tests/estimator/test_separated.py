"""Pairs that an embedding moved apart."""

import numpy as np
import pytest

from rpml import RPML
from rpml.estimator.description import (
    discounted_pairs,
    named_pairs,
    separated_pairs,
    separated_question,
)


@pytest.fixture
def spaces():
    """Thirty rows in pairs by X, and by Z without the first pair; pair 2 is the most similar."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((15, 8)), 2, axis=0)
    X[1::2] += 0.1 * rng.standard_normal((15, 8)) * np.where(np.arange(15) == 2, 0.1, 1)[:, None]
    Z = X.copy()
    for row in (1, 5):
        Z[row] = -Z[row]
    return X, Z


def test_the_most_similar_pairs_come_first(spaces):
    numbers = np.arange(30) + 100
    assert separated_pairs(*spaces, numbers)[0] in ((104, 105), (105, 104))
    assert {frozenset(pair) for pair in separated_pairs(*spaces, numbers)} >= {
        frozenset({104, 105}),
        frozenset({100, 101}),
    }


def test_with_a_nuisance_pairs_share_its_value(spaces):
    values = np.repeat(np.arange(15), 2)
    values[4:6] = -1
    found = separated_pairs(*spaces, np.arange(30), values)
    assert [set(pair) for pair in found] == [{0, 1}]


def test_pca_separates_nothing_by_design(spaces):
    X, _ = spaces
    pca = RPML(4, whiten=0, max_iter=0, random_state=0).fit(X)
    assert discounted_pairs(pca, X) == []


def test_pairs_are_named_and_asked_about():
    named = named_pairs([(0, 2)], np.array(["a.jpg", "b.jpg", "c.jpg"]))
    assert named == [["a.jpg", "c.jpg"]]
    text = separated_question(named, numbered=False)
    assert text.startswith("a.jpg and c.jpg were nearest neighbors")
    assert "matter?" in text
    numbered = named_pairs([(0, 2)], None)
    assert numbered == [[0, 2]]
    assert separated_question(numbered, numbered=True).startswith("Rows 0 and 2 were nearest")
