"""Each diagnostic says what it should of fits whose answer is known."""

import numpy as np
import pytest

import rpml
from rpml import RPML
from rpml.evaluation.diagnostics import diagnose, of_clusters, of_neighbors, of_triplets
from tests.problems import blobs


@pytest.fixture(scope="module")
def fitted():
    X, _ = blobs(classes=10, per_class=20, d=20)
    return RPML(6, training="always", max_iter=10, tol=1e-2, random_state=0).fit(X), X


@pytest.fixture(scope="module")
def found(fitted):
    return {d.key: d for d in diagnose(*fitted, random_state=0)}


def test_everything_is_there_and_explained(found):
    assert set(found) >= {
        "clusters", "singletons", "stability", "weights", "hard_triplets",
        "neighbors_kept", "effective_rank", "hubness", "seeds", "whitening",
    }  # fmt: skip
    for d in found.values():
        assert np.isfinite(d.value)
        assert d.shown
        assert "\n" not in d.meaning
        assert 20 < len(d.meaning) < 100


def test_clusters_are_more_stable_than_noise(fitted, found):
    noise = np.random.default_rng(0).standard_normal(fitted[1].shape)
    model = RPML(6, training="always", max_iter=10, tol=1e-2, random_state=0).fit(noise)
    of_noise = {d.key: d for d in diagnose(model, noise, random_state=0)}
    assert found["stability"].value > 2 * of_noise["stability"].value
    assert not found["stability"].concern
    assert of_noise["stability"].concern


def test_refits_can_be_left_out(fitted):
    assert "seeds" not in {d.key for d in diagnose(*fitted, refits=0)}


def test_the_same_state_gives_the_same_figures(fitted):
    assert diagnose(*fitted, refits=0) == diagnose(*fitted, refits=0)


def test_what_the_model_cannot_embed_is_refused(fitted):
    model, X = fitted
    with pytest.raises(ValueError, match="X has 5 features"):
        diagnose(model, X[:, :5])
    with pytest.raises(ValueError, match="at least 3 rows, X has 1"):
        diagnose(model, X[:1])
    with pytest.raises(ValueError, match="not fitted"):
        diagnose(RPML(6), X)


def test_clusters_sizes_and_singletons():
    found = {d.key: d for d in of_clusters(np.array([0, 0, 0, 1, 1, 2, -1, 3]))}
    assert found["clusters"].value == 2
    assert found["cluster_size"].value == 2.5
    assert found["largest_cluster"].value == 3 / 8
    assert found["singletons"].value == 3 / 8
    assert not found["singletons"].concern


def test_one_cluster_is_a_concern():
    found = {d.key: d for d in of_clusters(np.zeros(10, int))}
    assert found["clusters"].concern
    assert found["largest_cluster"].concern


def test_only_noise_labels():
    found = {d.key: d for d in of_clusters(np.full(5, -1))}
    assert found["clusters"].value == 0
    assert found["singletons"].value == 1


class Weights:
    def __init__(self, w, p):
        self.triplet_weights_, self.triplet_probabilities_ = np.array(w), np.array(p)


def test_collapsed_weights_are_a_concern():
    found = {d.key: d for d in of_triplets(Weights([1e-8] * 9 + [1e-3], [0.5] * 10))}
    assert found["weights"].concern
    assert found["triplets_used"].value == pytest.approx(0.1, rel=1e-3)
    alike = {d.key: d for d in of_triplets(Weights([0.5] * 10, [0.1] * 6 + [0.4] * 4))}
    assert not alike["weights"].concern
    assert alike["triplets_used"].value == pytest.approx(1)
    assert alike["hard_triplets"].value == 0.6


def test_no_triplets():
    (only,) = of_triplets(Weights([], []))
    assert only.concern


def test_an_identical_embedding_keeps_everything():
    X, _ = blobs()
    rng = np.random.default_rng(0)
    found = {d.key: d for d in of_neighbors(X, X, rng)}
    assert found["neighbors_kept"].value == 1
    flat = np.hstack([X[:, :1], 1e-3 * X[:, 1:]])
    changed = of_neighbors(X, flat, rng)
    assert {d.key: d for d in changed}["effective_rank"].concern
    for figure in changed:
        assert figure.interval.low <= figure.value <= figure.interval.high
        assert figure.shown.endswith(")")
        assert " to " in figure.shown


def test_public_name():
    assert rpml.diagnose is diagnose
