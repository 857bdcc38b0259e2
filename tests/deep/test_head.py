"""The methods as linear maps on vectors, in `rpml.compare`."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

import rpml
from rpml.deep.head import DeepHead, vector_views
from rpml.deep.methods import METHODS as LOSSES
from rpml.evaluation.registry import DEEP_METHODS, chosen_methods


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 12)
    X = rng.standard_normal((12, 10))[y] + 0.7 * rng.standard_normal((144, 10))
    return X.astype(np.float32), y


@pytest.mark.parametrize("key", ["srpml", "invariant", "triplet-hard"])
def test_compare_offers_it(vectors, key):
    X, y = vectors
    result = rpml.compare(X, y, 4, methods=("raw", f"head-{key}"), seeds=(0,))
    row = result.rows[1]
    assert row["dim"] == 4
    assert row["uses_labels"] == LOSSES[key].uses_labels
    assert 0 < row["recall@1"] <= 1


def test_the_registry_names_every_loss_as_it_is():
    offered = {deep.name for deep in DEEP_METHODS}
    assert offered == set(LOSSES)
    for name, loss in LOSSES.items():
        method = chosen_methods([f"head-{name}"])[0]
        assert method.title.startswith(f"{loss.title} (head")
        assert method.uses_labels == loss.uses_labels == method.build(2, 0).uses_labels


def test_the_map_is_what_was_trained(vectors):
    X, y = vectors
    head = DeepHead(3, method="contrastive", n_epochs=2, random_state=0).fit(X, y)
    Z = head.transform(X)
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, rtol=1e-5)
    again = DeepHead(3, method="contrastive", n_epochs=2, random_state=0).fit(X, y)
    np.testing.assert_allclose(again.transform(X), Z, atol=1e-6)


def test_classes_are_needed_by_those_that_use_them(vectors):
    with pytest.raises(ValueError, match="requires y"):
        DeepHead(3, method="triplet").fit(vectors[0])
    with pytest.raises(ValueError, match="no method"):
        DeepHead(3, method="absent").fit(vectors[0])


def test_the_first_view_is_the_vector(vectors):
    X, _ = vectors
    views = vector_views(X, 0)
    rows = np.arange(10)
    plain = views.load(rows, np.zeros(10, np.intp)).numpy()
    np.testing.assert_allclose(plain, X[:10] / np.linalg.norm(X[:10], axis=1)[:, None], rtol=1e-5)
    dropped = views.load(rows, np.ones(10, np.intp)).numpy()
    assert 0.05 < (dropped == 0).mean() < 0.4
