"""New rows: labels for them, updates that stay comparable, and what a model keeps."""

from __future__ import annotations

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.metrics import pair_scores, recall_at_k
from rpml.method.clustering.pseudo_labels import MAX_EXEMPLARS, find_exemplars
from rpml.method.pipeline import Stages
from rpml.method.update import MIN_OLD, align, sample_old
from tests.languages import translations
from tests.problems import blobs, classes_with_nuisance


@pytest.fixture(scope="module")
def rows():
    X, y = blobs(classes=8, per_class=60, d=20, spread=0.5)
    order = np.random.default_rng(1).permutation(len(X))
    return X[order], y[order]


@pytest.fixture(scope="module")
def fitted(rows):
    return RPML(6, n_neighbors=15, training="always", random_state=0).fit(rows[0][:300])


def test_modes_are_the_middles_of_clusters():
    angles = np.radians([0, 10, 21, 90, 95, 180])
    Y = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    labels = np.array([0, 0, 0, 1, 1, -1])
    exemplars = find_exemplars(Y, labels, labels)
    assert exemplars.rows.tolist()[0] == 1
    assert exemplars.labels.tolist() == [0, 1]
    assert exemplars.sizes.tolist() == [3, 2]
    cut = find_exemplars(Y, np.array([0, 0, 1, 2, 2, -1]), labels)  # a class of two clusters
    assert cut.labels.tolist() == [0, 0, 1]


def test_only_the_largest_clusters_are_kept():
    labels = np.concatenate([np.zeros(3, np.intp), np.arange(MAX_EXEMPLARS + 5)])
    exemplars = find_exemplars(np.ones((len(labels), 2)), labels, labels)
    assert len(exemplars.rows) == MAX_EXEMPLARS
    assert exemplars.sizes.max() == 4


def test_a_model_keeps_its_modes(fitted, rows, tmp_path):
    X = rows[0][:300]
    np.testing.assert_array_equal(fitted.exemplar_vectors_, X[fitted.exemplars_.rows])
    np.testing.assert_array_equal(fitted.exemplars_.labels, fitted.labels_[fitted.exemplars_.rows])
    fitted.save(tmp_path / "m.rpml", exemplars=True)
    loaded = RPML.load(tmp_path / "m.rpml")
    np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(loaded.suggest_labels(7), fitted.suggest_labels(7))
    assert loaded.update(rows[0][300:]).drift_ < 0.1


def test_unseen_rows_get_the_labels_of_their_clusters(fitted, rows):
    X, y = rows
    predicted = fitted.predict(X[300:])
    assert predicted.dtype == np.intp
    assert set(predicted) <= set(fitted.labels_)
    assert pair_scores(predicted, y[300:])["precision"] > 0.95
    np.testing.assert_array_equal(predicted[:5], fitted.predict(X[300:305]))
    np.testing.assert_array_equal(
        fitted.predict(fitted.exemplar_vectors_), fitted.exemplars_.labels
    )


def test_predicted_labels_are_classes_where_these_are_known(rows):
    X, y = rows
    known = np.where(np.arange(300) < 120, y[:300], -1)
    model = RPML(6, n_neighbors=15, use_labels=True, random_state=0).fit(X[:300], known)
    assert model.n_classes_ == 8
    predicted = model.predict(X[300:])
    classed = predicted < 8
    assert classed.mean() > 0.4
    assert np.mean(predicted[classed] == y[300:][classed]) > 0.9


def test_alignment_undoes_a_rotation():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((50, 4))
    turn, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    rotation, drift = align(Y @ turn, Y)
    np.testing.assert_allclose(rotation, turn.T, atol=1e-10)
    assert drift == pytest.approx(0, abs=1e-12)
    assert align(rng.standard_normal((50, 4)), Y)[1] > 0.3


@pytest.mark.parametrize("with_old", [False, True])
def test_an_update_keeps_quality_labels_and_direction(rows, with_old):
    X, y = rows
    model = RPML(6, n_neighbors=15, training="always", random_state=0).fit(X[:300])
    before = model.transform(X)
    old_exemplars = len(model.exemplars_.rows)
    model.update(X[300:], X[:300] if with_old else None)
    after = model.transform(X)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(6), atol=1e-8)
    moved = 1 - np.einsum("ij,ij->i", before, after).mean()
    assert moved < 0.2
    assert model.drift_ == pytest.approx(moved, abs=0.1)
    assert recall_at_k(after, y, ks=(1,))[1] > recall_at_k(before, y, ks=(1,))[1] - 0.02
    assert len(model.exemplars_.rows) >= old_exemplars
    assert pair_scores(model.predict(X), y)["precision"] > 0.9
    assert len(model.suggest_labels(5)) == 5


def test_rows_of_a_new_class_get_a_new_label(rows):
    X, y = rows
    model = RPML(6, n_neighbors=15, training="always", random_state=0).fit(X[y < 6])
    top = model.exemplars_.labels.max()
    model.update(X[y >= 6], X[y < 6])
    new = model.labels_[: (y >= 6).sum()]
    assert np.mean(new > top) > 0.8


def test_updates_look_at_a_bounded_number_of_old_rows():
    rng = np.random.default_rng(0)
    assert len(sample_old(100, 10, rng)) == 100
    assert len(sample_old(10_000, 10, rng)) == MIN_OLD
    assert len(sample_old(10_000, 1500, rng)) == 3000


def test_a_prefix_is_a_smaller_embedding(fitted, rows):
    X = rows[0]
    small = fitted.transform(X, n_components=3)
    assert small.shape == (len(X), 3)
    np.testing.assert_allclose(np.linalg.norm(small, axis=1), 1)
    full = fitted.transform(X)[:, :3]
    np.testing.assert_allclose(small, full / np.linalg.norm(full, axis=1, keepdims=True))
    for size in (0, 7):
        with pytest.raises(ValueError, match="the model has 1 to 6 components"):
            fitted.transform(X, n_components=size)


def test_models_without_modes_say_what_to_do(fitted, rows):
    from copy import copy

    old = copy(fitted)
    del old.exemplars_
    for call in (old.predict, old.update):
        with pytest.raises(ValueError, match="fit it again"):
            call(rows[0])
    with pytest.raises(ValueError, match="or pass the training rows"):
        old.suggest_labels()


def test_an_update_keeps_a_whitening_that_labels_made():
    X, y = classes_with_nuisance()
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    model = RPML(8, n_neighbors=15, use_labels=True, random_state=0).fit(X[:300], y[:300])
    assert model.whitening_.source == "labels"
    before = model.preprocessing_.matrix
    model.update(X[300:360], X[:300])
    np.testing.assert_array_equal(model.preprocessing_.matrix, before)
    assert model.whitening_.source == "labels"


@pytest.mark.parametrize("languages", [4, 8])  # not trained, trained
def test_an_update_keeps_a_whitening_that_a_nuisance_made(languages):
    X, _, v = translations(languages=languages)
    model = RPML(8, random_state=0).fit(X[:400], nuisance=v[:400])
    before = model.preprocessing_.matrix @ model.components_.T
    model.update(X[400:460], X[:400])
    assert model.whitening_.source == "nuisance"
    np.testing.assert_allclose(model.preprocessing_.matrix @ model.components_.T, before, atol=1e-5)


def test_modes_are_not_taken_for_labels(rows):
    X, _ = rows
    model = RPML(6, n_neighbors=15, random_state=0).fit(X[:300])
    assert model.update(X[300:360], X[:300]).whitening_.source in ("neighbors", "none")


@pytest.mark.parametrize("solver", ["cg", "stochastic"])
def test_an_update_of_a_fit_that_was_not_trained_does_not_train(solver):
    X = np.random.default_rng(0).standard_normal((400, 20))
    model = RPML(6, solver=solver, random_state=0).fit(X[:300])
    before = model.message_
    assert before.startswith("not trained: ")
    model.update(X[300:])
    assert (model.n_iter_, model.message_, model.converged_) == (0, before, True)
    assert model.drift_ < 1e-9
    assert len(model.labels_) > 100


@pytest.mark.parametrize("max_iter", [-1, 1.5, "2"])
def test_the_number_of_iterations_is_checked(fitted, rows, max_iter):
    with pytest.raises((TypeError, ValueError), match="max_iter"):
        fitted.update(rows[0][300:], max_iter=max_iter)


def test_a_new_fit_has_not_drifted(rows):
    model = RPML(6, n_neighbors=15, training="always", random_state=0).fit(rows[0][:300])
    assert model.update(rows[0][300:]).drift_ > 0
    assert model.fit(rows[0]).drift_ == 0


def test_an_update_gives_no_row_a_class(rows):
    X, y = rows
    model = RPML(6, n_neighbors=15, random_state=0).fit(X[:300]).update(X[300:])
    assert not model.labeled_mask_.any()
    assert model.suggest_labels(1)[0] in model.exemplars_.rows
    known = np.where(y[:300] < 3, y[:300], -1)
    model = RPML(6, n_neighbors=15, use_labels=True, random_state=0).fit(X[:300], known)
    model.update(X[300:])
    assert model.labeled_mask_.any()
    assert model.labels_[model.labeled_mask_].max() < model.n_classes_ == 3


def test_an_update_does_not_need_labels_of_the_new_rows(rows):
    X, y = rows
    model = RPML(6, clustering=y[:300], random_state=0).fit(X[:300]).update(X[300:])
    assert pair_scores(model.labels_[: len(X) - 300], y[300:])["precision"] > 0.9


@pytest.mark.parametrize(("n", "with_exemplars"), [(12, False), (11, True)])
def test_few_rows_are_whitened_together_with_the_exemplars(rows, n, with_exemplars, monkeypatch):
    X, seen = rows[0], []
    model = RPML(6, n_neighbors=15, training="always", random_state=0).fit(X[:300])
    whiten = Stages.whiten
    monkeypatch.setattr(Stages, "whiten", lambda *a: seen.append(len(a[1])) or whiten(*a))
    n_exemplars = len(model.exemplars_.rows)
    model.update(X[300:312], X[:n])
    assert seen == [12 + n + with_exemplars * n_exemplars]
