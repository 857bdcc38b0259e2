"""Inputs that were ignored, replaced or read twice without a word."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from rpml import RPML
from rpml.estimator import ResumableFit
from rpml.estimator.features import check_features
from rpml.estimator.fitted import describe_settings
from rpml.evaluation.diagnostics import diagnose
from rpml.io.features import Features
from rpml.method.clustering.pseudo_labels import class_of_nearest
from rpml.runtime.context import data_digest
from tests.problems import blobs


@pytest.fixture(scope="module")
def rows():
    return blobs(classes=8, per_class=40, d=20, spread=0.7)[0]


def fit(X, **settings):
    inputs = settings.pop("inputs", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return RPML(4, **{"n_neighbors": 15, "random_state": 0} | settings).fit(X, **inputs)


@pytest.mark.parametrize("constraints", ["comparisons", "cannot_link"])
def test_the_stochastic_solver_uses_constraints(rows, constraints):
    rng = np.random.default_rng(0)
    a, b, c = rng.permutation(len(rows))[:240].reshape(3, -1)
    near = np.abs(rows[a, 3] - rows[b, 3]) < np.abs(rows[a, 3] - rows[c, 3])
    given = np.stack([a, np.where(near, b, c), np.where(near, c, b)], axis=1)  # by one feature
    settings = {"solver": "stochastic", "training": "always", "n_epochs": 2}
    plain = fit(rows, **settings)
    if constraints == "cannot_link":
        given = given[:, :2]
    model = fit(rows, **settings, inputs={constraints: given})
    assert np.abs(model.components_ - plain.components_).max() > 1e-3
    if constraints == "comparisons":
        settings |= {"clustering": np.full(len(rows), -1), "n_epochs": 10}
        alone = fit(rows, **settings, inputs={constraints: given})
        assert satisfied(alone, rows, given) > satisfied(plain, rows, given) + 0.05


def satisfied(model, X, comparisons):
    a, b, c = model.transform(X)[comparisons.T]
    return np.mean(((a - b) ** 2).sum(axis=1) < ((a - c) ** 2).sum(axis=1))


def test_fixed_steps_resume_from_their_checkpoint(rows, tmp_path):
    model = RPML(4, solver="gd", training="always", max_iter=25, tol=0.0, random_state=0)
    whole = fit(rows, solver="gd", n_neighbors=50, training="always", max_iter=25, tol=0.0)

    def stop(progress):
        if progress.stage == "optimize" and progress.done == 14:
            raise KeyboardInterrupt

    job = ResumableFit(tmp_path / "m.rpml")
    with pytest.raises(KeyboardInterrupt):
        job.fit(clone(model).set_params(callback=stop), rows)
    seen = []
    model.set_params(callback=lambda p: seen.append(p.done) if p.stage == "optimize" else None)
    with pytest.warns(ConvergenceWarning):
        ResumableFit(tmp_path / "m.rpml", resume=True).fit(model, rows)
    assert min(seen) == 11  # 10 iterations were saved
    np.testing.assert_allclose(model.components_, whole.components_, atol=1e-12)


@pytest.mark.parametrize(
    "settings", [{"clustering": KMeans(8, n_init=1, random_state=0)}, {"clustering": "array"}]
)
def test_a_loaded_model_says_what_it_cannot_repeat(rows, tmp_path, settings):
    if settings["clustering"] == "array":
        settings = {"clustering": np.arange(len(rows)) % 8}
    model = fit(rows, training="always", max_iter=3, tol=1e-2, **settings)
    model.save(tmp_path / "m.rpml")  # with its labels, which it could not make again
    found = {d.key: d for d in diagnose(RPML.load(tmp_path / "m.rpml"), rows)}
    for key in ("stability", "seeds"):
        assert found[key].shown == "not measured"
        assert np.isnan(found[key].value)
    assert found["clusters"].value == 8
    if not isinstance(settings["clustering"], np.ndarray):
        known = {d.key: d for d in diagnose(model, rows, refits=0)}
        assert known["stability"].value > 0.1


def test_a_loaded_model_with_a_given_start_is_diagnosed(rows, tmp_path):
    p = fit(rows).components_.shape[1]
    model = fit(rows, init=np.eye(p, 4), training="always", tol=1e-2)
    model.save(tmp_path / "m.rpml")
    found = {d.key: d for d in diagnose(RPML.load(tmp_path / "m.rpml"), rows)}
    assert found["seeds"].shown == "not measured"
    assert found["stability"].value > 0


def test_diagnostics_print_as_a_table(rows):
    shown = repr(diagnose(fit(rows), rows, refits=0))
    assert "Diagnostic(" not in shown
    assert any(line.startswith("Hubness  ") for line in shown.splitlines())


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_an_update_does_not_depend_on_the_unit_of_the_rows(rows, scale):
    settings = {"normalize_input": False, "training": "always", "max_iter": 5}
    one = fit(rows[:200] * 1.0, **settings)
    other = fit(rows[:200] * scale, **settings)
    one.update(rows[200:], rows[:200])
    other.update(rows[200:] * scale, rows[:200] * scale)
    assert other.history_["loss"] == pytest.approx(one.history_["loss"], rel=1e-6)
    np.testing.assert_allclose(other.transform(rows * scale), one.transform(rows), atol=1e-6)
    np.testing.assert_array_equal(other.predict(rows * scale), one.predict(rows))


def test_after_an_update_only_new_rows_are_suggested(rows, tmp_path):
    model = fit(rows[:200], training="always", tol=1e-2)
    model.update(rows[200:], rows[:200])
    new = rows[200:]
    assert model.n_samples_ == len(new)
    for X in (None, new):
        suggested = model.suggest_labels(10, X)
        assert len(set(suggested.tolist())) == 10
        assert suggested.max() < len(new)
    model.save(tmp_path / "m.rpml", exemplars=True)
    loaded = RPML.load(tmp_path / "m.rpml")
    np.testing.assert_array_equal(loaded.suggest_labels(10, new), model.suggest_labels(10, new))
    with pytest.raises(ValueError, match=f"learned from {len(new)}: pass these"):
        model.suggest_labels(3, rows)


def test_arrays_within_settings_are_told_apart():
    centers = np.zeros((60, 50))
    others = centers.copy()
    others[30, 25] = 1  # repr shows the corners only
    one, two = (KMeans(60, init=start, n_init=1) for start in (centers, others))
    assert repr(one) == repr(two)
    assert data_digest(one) != data_digest(two)
    assert data_digest(one) == data_digest(clone(one))
    for name, values in (("clustering", (one, two)), ("init", (centers, others))):
        described = [describe_settings(RPML(**{name: value})) for value in values]
        assert described[0] != described[1]
        assert described[0][name].startswith("<")


def test_a_subsample_has_as_many_rows_as_asked_for(rows):
    model = fit(rows, subsample=100, training="always", max_iter=2)
    assert (model.labels_ >= 0).sum() == 100
    assert "learned from 100 of 320 rows" in model.message_
    pairs = np.arange(len(rows)) // 2
    model = fit(rows, subsample=100, training="always", max_iter=2, inputs={"groups": pairs})
    assert (model.labels_ >= 0).sum() == 100


def test_the_order_in_memory_changes_no_bit(rows):
    X = np.concatenate([rows, rows[::-1] + 0.1]).astype(np.float32)
    for settings in ({"training": "always", "max_iter": 3}, {"whiten": 0.5, "max_iter": 3}):
        plain = fit(X, **settings)
        for other in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2]):
            model = fit(other, **settings)
            np.testing.assert_array_equal(model.components_, plain.components_)
            np.testing.assert_array_equal(model.transform(other), plain.transform(X))


def test_the_class_of_the_nearest_row_needs_little_memory():
    import tracemalloc

    rng = np.random.default_rng(0)
    Z = rng.standard_normal((12_000, 4)).astype(np.float32)
    classes = rng.integers(0, 5, len(Z))
    tracemalloc.start()
    found = class_of_nearest(Z, classes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, classes)  # every row is its own nearest
    assert peak < 4 * len(Z) ** 2 / 2


def test_names_of_features_stay_with_the_model(rows):
    pd = pytest.importorskip("pandas")
    model = fit(pd.DataFrame(rows).add_prefix("x"))
    source = Features(rows, None, "id", [f"x{i}" for i in range(20)], "rows.csv")
    named = type("Source", (), {"n_features": 20, "feature_names": source.feature_names})
    named.name = "rows.csv"
    unnamed = check_features(model, named, "m.rpml")
    assert len(model.feature_names_in_) == 20
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(
            unnamed.transform(rows), model.transform(pd.DataFrame(rows).add_prefix("x"))
        )
