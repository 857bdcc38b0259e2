"""A fit asks before it works: what it makes, and what is made when somebody asks for it."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from rpml import RPML, AuthorityAscentShift
from rpml.estimator.description import outcome_lines, result_line
from rpml.estimator.fitted import MADE_IF_ASKED
from rpml.evaluation.diagnostics import diagnose
from tests.method.whitening.test_evidence import nuisance
from tests.problems import blobs, classes_with_nuisance


@pytest.fixture(scope="module")
def rows():
    return blobs(classes=8, per_class=40, d=20, spread=0.5)[0]


@pytest.fixture(scope="module")
def fitted(rows):
    return RPML(6, n_neighbors=15, random_state=0).fit(rows)


def test_a_fit_that_is_pca_searches_clusters_and_draws_nothing(rows):
    stages = []
    model = RPML(6, random_state=0, callback=lambda p: stages.append(p.stage)).fit(rows)
    assert model.outcome_ == "PCA"
    assert set(stages) == {"whiten"}
    assert model.message_.startswith("not trained: ")
    assert (model.n_iter_, model.converged_, model.n_samples_) == (0, True, len(rows))


@pytest.mark.parametrize("whiten", ["auto", 0])
def test_pca_may_subtract_a_part_of_the_mean(rows, tmp_path, whiten):
    settings = {"whiten": whiten, "random_state": 0}
    whole, half = (RPML(6, center=c, **settings).fit(rows + 2) for c in (1.0, 0.5))
    assert half.outcome_ == "PCA"
    np.testing.assert_array_equal(half.preprocessing_.mean, 0.5 * whole.preprocessing_.mean)
    np.testing.assert_array_equal(half.preprocessing_.matrix, whole.preprocessing_.matrix)
    half.save(tmp_path / "m.rpml")
    loaded = RPML.load(tmp_path / "m.rpml")
    np.testing.assert_allclose(loaded.transform(rows), half.transform(rows), atol=1e-6)
    assert outcome_lines(loaded)["meaning"].startswith(
        "PCA of unit-length rows, 50% of the mean subtracted"
    )


def test_learned_axes_are_centered():
    X = classes_with_nuisance()[0]
    whole, half = (RPML(6, center=c, random_state=0).fit(X + 2) for c in (1.0, 0.5))
    assert half.outcome_ != "PCA"
    np.testing.assert_array_equal(half.transform(X), whole.transform(X))


def test_an_update_does_not_take_the_part_of_a_part(rows):
    model = RPML(6, center=0.5, n_neighbors=15, random_state=0, max_iter=2).fit(rows + 2)
    mean = model.preprocessing_.mean
    model.update(rows[:100] + 2)
    np.testing.assert_allclose(model.preprocessing_.mean, mean)


@pytest.mark.parametrize("name", MADE_IF_ASKED)
def test_what_the_fit_did_not_make_says_how_to_get_it(fitted, name):
    with pytest.raises(AttributeError, match=rf"{name} .*PCA.*training='always'.*AuthorityAscent"):
        getattr(fitted, name)
    with pytest.raises(AttributeError, match=rf"object has no attribute '{name}'"):
        getattr(RPML(), name)


def test_always_makes_them_and_a_second_fit_forgets_them(rows):
    model = RPML(6, n_neighbors=15, training="always", random_state=0).fit(rows)
    assert model.outcome_ == "learned axes, trained"
    assert all(hasattr(model, name) for name in MADE_IF_ASKED)
    model.set_params(training="auto").fit(rows)
    assert not any(hasattr(model, name) for name in MADE_IF_ASKED)


def test_outcomes(rows):
    X, _ = nuisance(classes=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        untrained = RPML(12, max_iter=0, random_state=0).fit(X)
    assert untrained.outcome_ == "learned axes"
    assert RPML(12, random_state=0).fit(X).outcome_ == "learned axes, trained"
    plain = {"clustering": np.zeros(len(rows), int), "random_state": 0}
    with pytest.warns(UserWarning, match="No triplet"):
        assert RPML(6, whiten=0.5, **plain).fit(rows).outcome_ == "PCA, rescaled"
    with pytest.warns(UserWarning, match="No triplet"):
        assert RPML(6, whiten=0, **plain).fit(rows).outcome_ == "PCA"


@pytest.mark.parametrize("whiten", [0, 0.5])
def test_a_whitening_that_is_set_is_not_evidence_for_training(whiten):
    X, _ = nuisance(classes=40)
    model = RPML(12, whiten=whiten, random_state=0).fit(X)
    assert model.n_iter_ == 0
    assert model.message_ == "not trained: there is no evidence with a whitening that is set"
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    reference = PCA(12, svd_solver="full").fit(unit)
    if whiten == 0:
        expected = reference.transform(unit)
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(np.abs(model.transform(X)), np.abs(expected), atol=1e-6)
    assert RPML(12, whiten=whiten, training="always", random_state=0).fit(X).n_iter_ > 0


def test_the_map_is_that_of_the_leading_axes(fitted, rows):
    np.testing.assert_array_equal(fitted.components_, np.eye(6, fitted.components_.shape[1]))
    np.testing.assert_array_equal(clone(fitted).fit(rows).transform(rows), fitted.transform(rows))


def test_clusters_are_made_when_somebody_asks(fitted, rows):
    alone = AuthorityAscentShift(15, metric="cosine", merge=None)
    expected = alone.fit_predict(fitted.preprocessing_.apply(rows))
    np.testing.assert_array_equal(clone(fitted).fit_predict(rows), expected)
    trained = clone(fitted).set_params(training="always").fit(rows)  # has the same clusters
    np.testing.assert_array_equal(trained.labels_, expected)
    exemplars, vectors = fitted._clustered()
    np.testing.assert_array_equal(exemplars.labels, trained.exemplars_.labels)
    np.testing.assert_array_equal(vectors, rows[exemplars.rows])
    np.testing.assert_array_equal(fitted.predict(vectors), exemplars.labels)
    suggested = fitted.suggest_labels(8)
    assert len(set(expected[suggested])) > 5
    assert len(set(expected[fitted.suggest_labels(8, rows)])) > 5
    found = {d.key: d for d in diagnose(fitted, rows, refits=0)}
    sizes = np.bincount(expected)
    assert found["clusters"].value == (sizes > 1).sum()
    assert "weights" not in found


def test_exemplars_are_in_the_file_if_asked_for(fitted, rows, tmp_path):
    fitted.save(tmp_path / "with.rpml", exemplars=True)
    loaded = RPML.load(tmp_path / "with.rpml")
    assert loaded.outcome_ == "PCA"
    assert not hasattr(loaded, "labels_")
    np.testing.assert_array_equal(loaded.predict(rows), fitted.predict(rows))
    np.testing.assert_array_equal(loaded.suggest_labels(5), fitted.suggest_labels(5))
    assert loaded.update(rows[:50]).drift_ < 1e-9
    fitted.save(tmp_path / "without.rpml")
    bare = RPML.load(tmp_path / "without.rpml")
    assert bare.n_samples_ == len(rows)
    for call in (bare.predict, bare.update):
        with pytest.raises(ValueError, match="saved without its exemplars"):
            call(rows)
    np.testing.assert_array_equal(bare.suggest_labels(5, rows), fitted.suggest_labels(5, rows))


def test_the_result_line_is_the_same_everywhere(fitted, rows, tmp_path):
    line = result_line(fitted)
    assert line == (
        "PCA; 20 to 6 dimensions; 320 rows; knowledge used: none; expected gain over PCA: none"
    )
    assert outcome_lines(fitted)["outcome"] == line
    assert repr(fitted) == f"{clone(fitted)!r}  # {line}"
    fitted.save(tmp_path / "m.rpml")
    assert result_line(RPML.load(tmp_path / "m.rpml")) == line
    shown = fitted._repr_mimebundle_()["text/html"]
    assert shown.startswith("<table>")
    assert "<th>expected gain over PCA</th><td>none</td>" in shown
    assert "<table>" not in clone(fitted)._repr_mimebundle_()["text/html"].split("<style>")[0]
    with sklearn.config_context(display="text"):
        assert fitted._repr_mimebundle_() == {"text/plain": repr(fitted)}


def test_the_result_names_knowledge_and_gain():
    X, y = nuisance(classes=40)
    line = result_line(RPML(12, random_state=0).fit(X))
    assert line.startswith("learned axes, trained; ")
    assert "expected gain over PCA: +" in line
    assert " points of Recall@1 (+" in line
    assert "knowledge" not in line  # constraints of a training are not stored
    X, y = classes_with_nuisance()
    for labels, used in ((y, True), (np.where(y < 2, y, -1), False)):
        known = RPML(8, random_state=0, use_labels=True, n_neighbors=15).fit(X, labels)
        assert ("knowledge used: labels" in result_line(known)) == used


def test_scikit_learn_prints_parameters_as_ever(fitted, rows):
    many = RPML(6, n_neighbors=15, training="never", weight="bilinear", solver="gd", max_iter=7)
    assert repr(many).count("\n") == 1  # broken into lines
    assert "RPML(n_components=6, n_neighbors=15, random_state=0)" in repr(make_pipeline(fitted))
    assert "#" not in repr(make_pipeline(fitted))
