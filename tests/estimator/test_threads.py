"""The same seed gives the same bits on 1, 2 and 4 threads."""

import warnings

import numpy as np
import pytest

from rpml import RPML, AuthorityAscentShift
from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.threads import using_jobs
from rpml.search import Index

rng = np.random.default_rng(0)
CLASSES = np.arange(700) % 20
# large enough for the triplets and the products to be cut between threads
X = (rng.normal(size=(20, 128))[CLASSES] + 0.8 * rng.normal(size=(700, 128))).astype(np.float32)


def equal_bits(compute):
    """Run on 1, 2 and 4 threads and compare the arrays."""
    found = []
    for threads in (1, 2, 4):
        with using_jobs(threads), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a few iterations need not converge
            found.append([np.asarray(array).tobytes() for array in compute()])
    assert found[0] == found[1] == found[2]


def fitted(**settings):
    groups = settings.pop("groups", None)
    model = RPML(48, n_neighbors=20, random_state=0, training="always", **settings)
    return model.fit(X, groups=groups)


@pytest.mark.parametrize(
    ("solver", "weight", "groups"),
    [
        ("cg", "concat", None),
        ("cg", "bilinear", np.arange(700) // 4),
        ("stochastic", "concat", None),
        ("stochastic", "concat", np.arange(700) // 4),
    ],
)
def test_fit(solver, weight, groups):
    def fit():
        settings = {"solver": solver, "weight": weight, "groups": groups}
        model = fitted(max_iter=3, n_epochs=1, triplets_per_anchor=80, batch_size=700, **settings)
        assert solver == "stochastic" or len(model.triplets_) > 2 * 8192
        return model.components_, model.labels_, model.triplet_weights_, model.transform(X)

    equal_bits(fit)


def test_transform_and_search():
    model = RPML(48, n_neighbors=20, random_state=0).fit(X)
    index = Index(model).add(np.tile(X, (7, 1)))
    equal_bits(lambda: (model.transform(np.tile(X, (12, 1))), *index.search(X, k=5)))


def test_clusters_and_neighbors():
    def cluster():
        aas = AuthorityAscentShift(n_neighbors=20).fit(X)
        near = nearest_neighbors(np.tile(X, (7, 1)) + 0.1, 10, method="ann")
        return aas.labels_, aas.authority_, aas.modes_, near.indices, near.distances

    equal_bits(cluster)


def test_scores():
    rows = np.tile(X, (4, 1))
    scores = recall_at_k, clustering_scores

    def score():
        return [list(f(rows, np.tile(CLASSES, 4)).values()) for f in scores]

    equal_bits(score)
