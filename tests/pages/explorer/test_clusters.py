"""Clusters: sizes, modes, impurity, the tree."""

from __future__ import annotations

import numpy as np
import pytest

from rpml import RPML, AuthorityAscentShift
from rpml.pages.explorer.catalog import make_catalog, start_work
from rpml.pages.explorer.clusters import ascent_tree, find_clusters, same_partition
from rpml.pages.explorer.index import ExactIndex
from rpml.pages.items import make_items
from tests.drawings import Sample


@pytest.fixture
def groups() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    return np.eye(3)[y] * 4 + 0.2 * rng.normal(size=(60, 3)), y


def test_pure_clusters_are_not_impure(groups: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = groups
    labels = y.copy()
    labels[[0, 20, 40]] = 7  # one cluster of three that belong elsewhere
    labels[59] = -1
    labels[58] = 9  # alone
    found = find_clusters(labels, ExactIndex(X), None, np.random.default_rng(0))
    assert found.names.tolist() == [0, 1, 2, 7, 9]
    assert found.sizes.tolist() == [19, 19, 17, 3, 1]
    assert (found.impurity[:3] < 0.2).all()
    assert found.impurity[3] == 1
    assert np.isnan(found.impurity[4])
    assert found.ordered("impurity")[0] == 3
    assert found.ordered("impurity")[-1] == 4
    assert found.ordered("size").tolist()[-2:] == [3, 4]
    assert found.ordered("name").tolist() == [0, 1, 2, 3, 4]
    assert all(labels[m] == name for m, name in zip(found.modes, found.names, strict=True))
    assert found.members(7).tolist() == [0, 20, 40]
    assert found.position(7) == 3
    assert found.position(8) is None
    assert found.position(100) is None


def test_no_cluster_at_all(groups: tuple[np.ndarray, np.ndarray]) -> None:
    X, _ = groups
    found = find_clusters(np.full(60, -1), ExactIndex(X), None, np.random.default_rng(0))
    assert len(found.names) == len(found.modes) == len(found.impurity) == 0


def test_the_ascent_is_found_again(sample: Sample) -> None:
    labels = sample.model.labels_
    same, parents = ascent_tree(sample.model, sample.X, labels)
    assert same is labels
    assert parents is not None
    assert (labels[parents] == labels).all()
    found = find_clusters(labels, ExactIndex(sample.X), parents, np.random.default_rng(0))
    assert (parents[found.modes] == found.modes).all()


def test_given_clusters_have_no_tree(sample: Sample) -> None:
    given = np.arange(len(sample.X)) // 20
    model = RPML(8, clustering=given, tol=0.5, random_state=0).fit(sample.X)
    labels, tree = ascent_tree(model, sample.X, given)
    assert (labels is given, tree) == (True, None)


def test_rows_of_an_untrained_fit_are_clustered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).standard_normal((300, 20))
    model, runs = RPML(8, random_state=0).fit(X), []
    assert not hasattr(model, "labels_")
    catalog = make_catalog(model, X, make_items(len(X)))
    ascent = AuthorityAscentShift.ascent
    monkeypatch.setattr(
        AuthorityAscentShift, "ascent", lambda *args: runs.append(args) or ascent(*args)
    )
    start_work(catalog, X).join()
    assert len(runs) == 1
    assert catalog.clusters.value.parents is not None
    assert same_partition(catalog.labels, model.cluster_rows(X)[0])


def test_partitions_are_compared_without_their_names() -> None:
    assert same_partition(np.array([0, 0, 1]), np.array([5, 5, 2]))
    assert not same_partition(np.array([0, 0, 1]), np.array([5, 5, 5]))
    assert not same_partition(np.array([0, 0, 0]), np.array([1, 2, 1]))
