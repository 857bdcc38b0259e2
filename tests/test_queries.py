"""Which rows to label next."""

from types import SimpleNamespace

import numpy as np

from rpml import RPML
from rpml.modes import Modes
from rpml.queries import rank_queries, row_doubt
from tests.problems import blobs


def test_doubt_is_the_mean_over_a_rows_triplets():
    triplets = np.array([[0, 1, 2], [0, 3, 2]])
    np.testing.assert_allclose(row_doubt(5, triplets, np.array([0.5, 0.9])), [0.3, 0.5, 0, 0.1, 0])


def model(known=(), doubtful=None):
    """Clusters of 4, 3, 2 and 1 rows, their modes first."""
    labels = np.repeat([0, 1, 2, 3], [4, 3, 2, 1])
    triplets = np.array([[i, i, 9] for i in range(10)])
    p = np.full(10, 0.6)
    if doubtful is not None:
        p[labels == doubtful] = 0.0
    return SimpleNamespace(
        labels_=labels,
        known_=np.isin(np.arange(10), known),
        modes_=Modes(np.array([0, 4, 7, 9]), np.arange(4), np.array([4, 3, 2, 1])),
        triplets_=triplets,
        triplet_probabilities_=p,
    )


def test_large_clusters_come_first_and_then_the_rows_at_the_edges():
    np.testing.assert_array_equal(rank_queries(4, model()), [0, 4, 7, 9])
    assert sorted(rank_queries(20, model())) == list(range(10))


def test_unsure_clusters_come_earlier():
    np.testing.assert_array_equal(rank_queries(2, model(doubtful=1)), [4, 0])


def test_labelled_clusters_come_later_and_labelled_rows_never():
    order = rank_queries(20, model(known=(1,))).tolist()
    assert order[:3] == [4, 7, 9]
    assert 1 not in order
    assert len(order) == 9


def test_a_fitted_model_suggests_rows_of_many_classes():
    X, y = blobs(classes=8, per_class=40, d=20, spread=0.5)
    fitted = RPML(6, n_neighbors=15, random_state=0).fit(X)
    chosen = fitted.suggest_queries(16)
    assert len(set(chosen.tolist())) == 16
    assert len(set(y[chosen].tolist())) == 8
    known = np.full(len(X), -1)
    known[chosen] = y[chosen]
    again = RPML(6, n_neighbors=15, use_labels=True, random_state=0).fit(X, known)
    assert not set(again.suggest_queries(10)) & set(chosen)
