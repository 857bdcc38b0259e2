"""Which rows to label next."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from rpml import RPML
from rpml.method.clustering.pseudo_labels import Exemplars
from rpml.method.knowledge.suggest import (
    DENSITY_ROWS,
    Candidates,
    density,
    rank_candidates,
    row_doubt,
    spread_out,
)
from tests.problems import blobs


def test_doubt_is_the_mean_over_a_rows_triplets():
    triplets = np.array([[0, 1, 2], [0, 3, 2]])
    np.testing.assert_allclose(row_doubt(5, triplets, np.array([0.5, 0.9])), [0.3, 0.5, 0, 0.1, 0])


def on_circle(*degrees):
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def candidates(known=(), angles=(0, 90, 180, 270), rows=None):
    """Clusters of 4, 3, 2 and 1 rows, their exemplars first; row 8 is the least sure."""
    p = np.linspace(0.9, 0.6, 10)
    p[8] = 0.1
    return Candidates(
        count=10,
        exemplars=Exemplars(np.array([0, 4, 7, 9]), np.arange(4), np.array([4, 3, 2, 1])),
        middles=on_circle(*angles),
        rows=rows,
        labels=np.repeat([0, 1, 2, 3], [4, 3, 2, 1]),
        labeled=np.isin(np.arange(10), known),
        triplets=np.array([[i, i, 9] for i in range(10)]),
        probabilities=p,
    )


def test_large_clusters_come_first_and_then_the_rows_at_the_edges():
    # 0 is the largest, and 180 degrees lies farthest from it
    order = rank_candidates(20, candidates()).tolist()
    assert order[:4] == [0, 7, 4, 9]
    assert order[4] == 8
    assert sorted(order) == list(range(10))


def test_a_cluster_beside_one_asked_for_waits():
    assert rank_candidates(3, candidates(angles=(0, 10, 120, 240))).tolist() == [0, 7, 9]


def test_labeled_clusters_come_later_and_labeled_rows_never():
    order = rank_candidates(20, candidates(known=(1,))).tolist()
    assert order[:3] == [7, 4, 9]  # the farthest from the labeled cluster first
    assert 1 not in order
    assert len(order) == 9


def test_with_the_rows_at_hand_all_of_them_are_candidates():
    spread = on_circle(0, 0, 0, 150, 90, 90, 90, 180, 180, 270)
    order = rank_candidates(20, candidates(known=(0,), rows=spread)).tolist()
    # 150 degrees (3), 270 (9) and 90 (4, 5, 6) have no label; 8 is as good as 7, which is first
    assert order[0] == 7
    assert {3, 4, 9} <= set(order[:4])
    assert sorted(order) == list(range(1, 10))


def test_places_that_are_the_same_are_chosen_once_each():
    places = np.repeat(on_circle(0, 90), 3, axis=0)
    chosen = spread_out(places, np.ones(6), np.zeros(6, bool), 10)
    assert sorted(chosen) == list(range(6))
    assert {chosen[0] // 3, chosen[1] // 3} == {0, 1}
    assert len(spread_out(places, np.ones(6), np.ones(6, bool), 10)) == 0


def test_weight_and_distance_are_traded():
    places = on_circle(0, 60, 180)
    first = np.array([True, False, False])
    assert spread_out(places, np.array([1, 3.9, 1]), first, 1).tolist() == [2]  # 3.9 / 2 < 2
    assert spread_out(places, np.array([1, 4.1, 1]), first, 1).tolist() == [1]


def test_density_is_the_4_norm_of_the_likeness_to_rows():
    middles, sizes = on_circle(0, 60, 180), np.array([1, 2, 5])
    found = density(middles, middles, sizes) ** 4
    np.testing.assert_allclose(found, [1 + 2 / 16, 2 + 1 / 16, 5], rtol=1e-12)
    many = np.tile(on_circle(0, 90), (DENSITY_ROWS, 1))  # more than one block
    np.testing.assert_allclose(density(many, many, np.ones(len(many))) ** 4, DENSITY_ROWS)


def test_a_fitted_model_suggests_rows_of_many_classes():
    X, y = blobs(classes=8, per_class=40, d=20, spread=0.5)
    fitted = RPML(6, n_neighbors=15, random_state=0).fit(X)
    chosen = fitted.suggest_labels(16)
    assert len(set(chosen.tolist())) == 16
    assert len(set(y[chosen].tolist())) == 8
    known = np.full(len(X), -1)
    known[chosen] = y[chosen]
    again = RPML(6, n_neighbors=15, use_labels=True, random_state=0).fit(X, known)
    assert not set(again.suggest_labels(10)) & set(chosen)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return [RPML(16, random_state=seed).fit(X) for seed in range(3)], X, y


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("count", [10, 20, 40])
def test_suggested_labels_name_more_of_the_other_digits_than_random_ones(digits, count, at_hand):
    fits, X, y = digits
    gains = []
    for fitted in fits:
        Z = fitted.transform(X)

        def named(rows, Z=Z):
            rest = np.setdiff1d(np.arange(len(y)), rows)
            return np.mean(y[rows[(Z[rest] @ Z[rows].T).argmax(axis=1)]] == y[rest])

        random = [named(np.random.default_rng(i).permutation(len(y))[:count]) for i in range(20)]
        suggested = named(fitted.suggest_labels(count, X if at_hand else None))
        gains.append(suggested - np.mean(random))
    assert np.mean(gains) > 0.05


def test_other_rows_than_those_learned_from_are_refused(digits):
    (fitted, *_), X, _ = digits
    with pytest.raises(ValueError, match="X has 10 rows, the model learned from 1797"):
        fitted.suggest_labels(3, X[:10])
    with pytest.raises(ValueError, match="n=-1: the number of rows must not be negative"):
        fitted.suggest_labels(-1)
