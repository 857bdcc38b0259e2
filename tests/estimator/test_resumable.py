"""Fits that survive an interruption, called from Python."""

import numpy as np
import pytest

from rpml import RPML
from rpml.estimator import ResumableFit
from rpml.runtime.errors import InputError
from tests.problems import dying_after_two_stages


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return rng.normal(size=(6, 8))[rng.integers(6, size=120)] + 0.3 * rng.normal(size=(120, 8))


def estimator(**settings):
    return RPML(3, n_neighbors=10, training="always", random_state=0, **settings)


@pytest.fixture
def killed(X, tmp_path, monkeypatch):
    """The path of a fit that died after its second stage."""
    path = tmp_path / "m.rpml"
    with dying_after_two_stages(monkeypatch), pytest.raises(RuntimeError, match="killed"):
        ResumableFit(path).fit(estimator(), X)
    return path


def test_resumed_fit_equals_an_uninterrupted_one(killed, X, tmp_path):
    whole = ResumableFit(tmp_path / "whole.rpml").fit(estimator(), X)
    resumed = ResumableFit(killed, resume=True).fit(estimator(), X)
    assert (whole.state, resumed.state) == ("fitted", "fitted")
    assert killed.read_bytes() == (tmp_path / "whole.rpml").read_bytes()
    assert {p.name for p in tmp_path.iterdir()} == {"m.rpml", "whole.rpml"}


@pytest.mark.parametrize("kind", [list, np.array])
def test_a_fit_of_other_pseudo_labels_is_another_fit(X, tmp_path, kind):
    labels = np.arange(120) % 6
    job = ResumableFit(tmp_path / "m.rpml", resume=True)
    assert job.fit(estimator(clustering=kind(labels)), X).state == "fitted"
    assert job.fit(estimator(clustering=kind(labels)), X).state == "complete"
    with pytest.raises(InputError, match="is not from this fit"):
        job.fit(estimator(clustering=kind(labels // 2)), X)


def test_forgetting_resume_loses_nothing(killed, X):
    with pytest.raises(InputError, match="unfinished"):
        ResumableFit(killed).fit(estimator(), X)
    assert ResumableFit(killed, resume=True).fit(estimator(), X).state == "fitted"


def test_a_finished_fit_is_not_repeated(X, tmp_path):
    run = ResumableFit(tmp_path / "m.rpml", resume=True)
    fitted = run.fit(estimator(), X).model
    again = run.fit(estimator(max_iter=100), X)
    assert again.state == "complete"
    np.testing.assert_allclose(again.model.transform(X), fitted.transform(X), atol=1e-6)


@pytest.mark.parametrize("name", ["must_link", "cannot_link"])
def test_every_input_counts(X, tmp_path, name):
    """The same pairs under another name are another fit."""
    path, pairs = tmp_path / "m.rpml", np.array([[0, 1]])
    ResumableFit(path).fit(estimator(), X, **{name: pairs})
    other = {"must_link", "cannot_link"} - {name}
    with pytest.raises(InputError, match="not from this fit"):
        ResumableFit(path, resume=True).fit(estimator(), X, **{other.pop(): pairs})


def test_a_stopped_fit_keeps_the_best_and_continues(X, tmp_path):
    path = tmp_path / "m.rpml"
    model = estimator(tol=0.0, callback=lambda p: p.stage == "optimize" and p.done >= 12)
    with pytest.warns(UserWarning, match="stopped"):
        outcome = ResumableFit(path).fit(model, X)
    assert outcome.state == "stopped"
    assert RPML.load(path).n_iter_ == outcome.model.n_iter_ < 100
    run = ResumableFit(path, resume=True)
    assert run.directory.is_dir()
    assert run.fit(estimator(tol=0.0), X).state == "fitted"
    whole = estimator(tol=0.0).fit(X)
    np.testing.assert_allclose(RPML.load(path).transform(X), whole.transform(X), atol=1e-6)
    assert not run.directory.exists()


def test_wrong_input_leaves_nothing(X, tmp_path):
    with pytest.raises(ValueError, match="must not exceed"):
        ResumableFit(tmp_path / "m.rpml").fit(RPML(9), X)
    with pytest.raises(InputError, match="data file"):
        ResumableFit(tmp_path / "m.npy").fit(estimator(), X)
    assert list(tmp_path.iterdir()) == []
