"""The partitioned ascent is the one of a single process, on the same graph."""

from itertools import pairwise

import numpy as np
import pytest

from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.graph.neighbors import Neighbors, nearest_neighbors
from rpml.runtime.context import Context
from tests.problems import blobs


def labels_of(cluster, graph, aas):
    from rpml.distributed.aas import DaskAscent
    from rpml.method.clustering.ascent import usable_labels

    return usable_labels(DaskAscent.prepare(cluster, graph, aas, Context()), aas.epsilon)


def graph_of(cluster, found, parts=3):
    from rpml.distributed.knn import Graph

    n = len(found.indices)
    edges = np.array([n * i // parts for i in range(parts + 1)])
    cut = [
        Neighbors(found.indices[a:b], found.distances[a:b], found.metric)
        for a, b in pairwise(edges)
    ]
    held = [cluster.hold(part) for part in cut]
    return Graph(held, edges, found.n_neighbors, found.metric, 1.0, "exact")


@pytest.mark.parametrize(
    "settings",
    [
        {"metric": "cosine"},
        {"metric": "euclidean", "bandwidth": "balanced"},
        {"metric": "cosine", "affinity": "cosine", "epsilon": 0.65},
        {"metric": "euclidean", "bandwidth": 1.5, "gamma": 3.0},
    ],
)
def test_equal_labels(cluster, rows, settings):

    aas = AuthorityAscentShift(n_neighbors=12, merge=None, **settings)
    found = nearest_neighbors(rows, 12, metric=aas.metric)
    labels = labels_of(cluster, graph_of(cluster, found), aas)
    np.testing.assert_array_equal(labels, aas.fit(found).labels_)
    assert 1 < len(np.unique(labels)) < len(rows)


def test_duplicates_and_zero_rows(cluster):

    X = blobs(classes=3, per_class=20, d=5)[0]
    X[:15], X[30:33] = X[40], 0
    aas = AuthorityAscentShift(n_neighbors=6, metric="cosine", merge=None)
    found = nearest_neighbors(X, 6, metric="cosine")
    labels = labels_of(cluster, graph_of(cluster, found), aas)
    np.testing.assert_array_equal(labels, aas.fit(found).labels_)


def test_useless_epsilon_is_retuned(cluster, rows):

    aas = AuthorityAscentShift(n_neighbors=12, metric="cosine", epsilon=1e6, merge=None)
    graph = graph_of(cluster, nearest_neighbors(rows, 12))
    with pytest.warns(UserWarning, match="epsilon was lowered"):
        labels = labels_of(cluster, graph, aas)
    assert 1 < len(np.unique(labels)) < len(rows)


def test_what_needs_the_whole_graph_is_refused(cluster):
    from rpml.distributed.aas import check_supported

    with pytest.raises(ValueError, match=r"symmetric=False.*use symmetric=True"):
        check_supported(AuthorityAscentShift(symmetric=False))
    with pytest.raises(ValueError, match="precomputed"):
        check_supported(AuthorityAscentShift(metric="precomputed", merge=None))
    with pytest.raises(ValueError, match=r"merge='average'\) is not available.*use merge=None"):
        check_supported(AuthorityAscentShift())
