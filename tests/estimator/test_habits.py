"""What scikit-learn users expect beside fit and transform."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from rpml import RPML, compare
from rpml.evaluation.diagnostics import diagnose
from rpml.evaluation.metrics import recall_at_k
from rpml.runtime.rows import unit_rows
from rpml.runtime.threads import thread_count
from rpml.search import Index
from tests.problems import blobs


@pytest.fixture(scope="module")
def data():
    return blobs(classes=6, per_class=20, d=10)


@pytest.fixture(scope="module")
def model(data):
    return RPML(4, n_neighbors=10, random_state=0).fit(data[0])


def test_score_is_recall_at_1(model, data):
    X, y = data
    assert model.score(X, y) == pytest.approx(recall_at_k(model.transform(X), y, 1)[1])
    assert model.score(X, y.astype(str)) == model.score(X, y)
    assert cross_val_score(RPML(4, n_neighbors=10, random_state=0), X, y, cv=2).shape == (2,)
    with pytest.raises(ValueError, match="inconsistent"):
        model.score(X, y[:-1])


def test_fit_predict_gives_the_pseudo_labels(model, data):
    trained = clone(model).set_params(training="always").fit(data[0])
    again = clone(trained).fit_predict(data[0])
    np.testing.assert_array_equal(again, trained.labels_)
    assert not hasattr(model, "labels_")
    np.testing.assert_array_equal(clone(model).fit_predict(data[0]), trained.labels_)


def test_one_vector(model, data):
    X, _ = data
    np.testing.assert_allclose(model.transform_one(X[3]), model.transform(X[3:4])[0], atol=1e-12)
    assert model.transform_one(X[3].tolist(), n_components=2).shape == (2,)
    code = model.transform_one(X[3], output="int8")
    np.testing.assert_array_equal(code, model.transform(X, output="int8")[3])
    with pytest.raises(ValueError, match="one vector"):
        model.transform_one(X)
    with pytest.raises(ValueError, match="Reshape your data"):
        model.transform(X[3])


def test_a_column_of_vectors_of_several_sizes_names_the_first(data):
    for vectors, reason in (([[1.0, 2.0], [1.0]], "shape"), ([[1.0, 2.0], None], "is missing")):
        column = np.empty(2, object)
        column[:] = vectors
        with pytest.raises(ValueError, match=rf"X\[1\] .*{reason}.* X\[0\] has 2 numbers"):
            RPML(1).fit(column)


def test_a_clustering_needs_no_more_than_fit_predict(data):
    class Halves:
        def fit_predict(self, X):
            return np.arange(len(X)) % 2

    model = RPML(2, clustering=Halves(), training="always", random_state=0).fit(data[0])
    np.testing.assert_array_equal(model.labels_, np.arange(len(data[0])) % 2)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("normalize_input", [True, False])
def test_what_is_inverted_embeds_the_same(data, normalize, normalize_input):
    X, _ = data
    flags = {"normalize": normalize, "normalize_input": normalize_input}
    fitted = RPML(4, n_neighbors=10, random_state=0, whiten=0.5, **flags).fit(X)
    pre, Y = fitted.preprocessing_, fitted.transform(X)
    back = fitted.inverse_transform(Y)
    assert back.shape == X.shape
    if normalize and normalize_input:
        np.testing.assert_allclose(np.linalg.norm(back, axis=1), 1, atol=1e-9)
        np.testing.assert_allclose(fitted.transform(back), Y, atol=1e-9)
        start = unit_rows(X)
        error, spread = np.linalg.norm(back - start), np.linalg.norm(start - pre.mean)
        assert error < 0.9 * spread
    else:
        np.testing.assert_allclose((back - pre.mean) @ pre.matrix @ fitted.components_.T, Y)
    assert fitted.inverse_transform(Y[:, :2]).shape == X.shape
    with pytest.raises(ValueError, match=r"n_components=2.0: the model has 1 to 4"):
        fitted.transform(X, n_components=2.0)
    with pytest.raises(ValueError, match="1 to 4"):
        fitted.inverse_transform(np.ones((1, 5)))


def test_verbose_prints_and_still_reports(data, capsys):
    heard = []
    settings = {"n_neighbors": 10, "random_state": 0, "training": "always", "max_iter": 2}
    RPML(4, verbose=1, callback=lambda p: heard.append(p.stage), **settings).fit(data[0])
    stages = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert len(stages) == len(set(stages)) >= 3
    assert set(stages) <= set(heard)
    RPML(4, verbose=2, **settings).fit(data[0])
    steps = [s for s in capsys.readouterr().out.splitlines() if s.startswith("[RPML] optimize")]
    assert len(steps) > 1
    assert all(", loss " in step for step in steps[1:-1])


@pytest.mark.parametrize("n_jobs", [1, 3, None])
def test_n_jobs_bounds_the_threads(data, n_jobs):
    seen, expected = set(), n_jobs or thread_count()
    fitted = RPML(4, n_neighbors=10, random_state=0, n_jobs=n_jobs)
    fitted.callback = lambda progress: seen.add(thread_count()) and False
    fitted.fit(data[0])
    assert seen == {expected}
    with pytest.raises(ValueError, match="n_jobs"):
        fitted.set_params(n_jobs=0).fit(data[0])


def test_n_jobs_and_verbose_are_not_in_the_file(data, tmp_path):
    fitted = RPML(4, n_neighbors=10, random_state=0, n_jobs=1).fit(data[0])
    fitted.save(tmp_path / "m.rpml")
    assert RPML.load(tmp_path / "m.rpml").n_jobs is None


def test_a_column_of_vectors_is_fitted(model, data):
    column = pd.DataFrame({"embedding": list(data[0])})
    fitted = RPML(4, n_neighbors=10, random_state=0).fit(column)
    assert fitted.n_features_in_ == 10
    np.testing.assert_array_equal(fitted.transform(column), model.transform(data[0]))


def test_unknown_arguments_are_refused(data):
    for name in ("grups", "sample_weight"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            RPML(4).fit(data[0], **{name: None})


def test_labels_that_are_missing_are_missed(data):
    X, y = data
    unlabeled = RPML(4, n_neighbors=10, use_labels=True, random_state=0)
    for missing in (None, np.full(len(X), -1)):
        with pytest.warns(UserWarning, match="use_labels=True, but y") as caught:
            unlabeled.fit(X, missing)
        assert len(caught) == 1
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unlabeled.fit(X, y).update(X[:20])
        clone(unlabeled).set_params(use_labels=False).fit(X)


@pytest.mark.parametrize(
    ("settings", "inputs", "message"),
    [
        ({"clustering": [0, 1]}, {}, r"clustering must .* \(120\), got shape \(2,\)"),
        ({"use_labels": True}, {"y": [0, 1]}, r"^y must .* \(120\), got shape \(2,\)"),
        ({}, {"groups": [0, 1]}, r"groups must .* \(120\), got shape \(2,\)"),
        ({}, {"pairs": [0, 1]}, r"pairs must .* got int64 of shape \(2,\)"),
        ({}, {"pairs": [[0, 120]]}, r"pairs\[0\] = \[0, 120\] is outside the 120 rows"),
        ({}, {"must_link": 3}, r"must_link must be .* got int64 of shape \(\)"),
        ({}, {"comparisons": [[0, 1]]}, r"comparisons must be .* shape \(1, 2\)"),
        ({}, {"conflicts": "ask"}, "conflicts='ask'"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_before_any_work(data, settings, inputs, message):
    stages = []
    estimator = RPML(4, **settings, callback=lambda progress: stages.append(progress.stage))
    with pytest.raises(ValueError, match=message):
        estimator.fit(data[0], **inputs)
    assert not stages


@pytest.mark.parametrize(("kind", "row"), [("must_link", [3, 3]), ("comparisons", [3, 3, 5])])
def test_a_constraint_between_a_row_and_itself_is_refused(data, kind, row):
    """It says nothing, and would be a reason to train."""
    with pytest.raises(ValueError, match=rf"{kind}\[0\] = \[3, 3.* names one row twice"):
        RPML(2).fit(data[0], **{kind: [row]})


def test_names_and_containers_stay_outside(data):
    frame = pd.DataFrame(data[0]).add_prefix("x")
    fitted = RPML(4, n_neighbors=10, random_state=0).set_output(transform="pandas").fit(frame)
    plain = RPML(4, n_neighbors=10, random_state=0).fit(data[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X, rows in ((None, None), (frame, data[0])):
            suggested = fitted.suggest_labels(9, X)
            np.testing.assert_array_equal(suggested, plain.suggest_labels(9, rows))
        assert fitted.score(frame, data[1]) == plain.score(*data)
        figures = [diagnose(m, X, refits=0) for m, X in ((fitted, frame), (plain, data[0]))]
    assert figures[0] == figures[1]


@pytest.mark.parametrize(
    "function",
    [RPML.fit, RPML.transform, RPML.score, compare, Index.add, Index.search, recall_at_k],
)
def test_signatures_are_short(function):
    """A notebook shows them: names, not what NumPy's types are made of."""
    assert len(str(inspect.signature(function))) < 400
