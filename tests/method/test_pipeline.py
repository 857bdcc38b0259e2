"""The stages of a fit through the public estimator: nothing is remembered between them."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from rpml import RPML, AuthorityAscentShift
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.knowledge.constraints import gather
from rpml.method.pipeline import Stages
from rpml.method.settings import FitInputs
from rpml.method.whitening.groups import no_groups, sample_rows
from rpml.runtime.context import Context


def blobs(n=240, d=10, classes=8, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(classes, d))[y] + 0.4 * rng.normal(size=(n, d)), y


class MemoryStore:
    """A checkpoint in a dictionary that counts what was found in it."""

    def __init__(self):
        self.stages, self.loaded = {}, []

    def load(self, name):
        if name not in self.stages:
            return None
        self.loaded.append(name)
        arrays, metadata = self.stages[name]
        return dict(reversed(arrays.items())), metadata  # in no particular order, as files are

    def save(self, name, arrays, metadata):
        self.stages[name] = (arrays, dict(metadata or {}))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("sampler", ["uniform", "semi-hard", "hard"])
def test_every_sampler_weight_and_solver_with_and_without_groups(sampler, grouped):
    X, y = blobs()
    groups = np.where(np.arange(len(X)) % 5 == 0, -1, np.arange(len(X)) // 16 * 8 + y)
    for weight, solver in itertools.product(
        ["concat", "bilinear", "constant"], ["cg", "stochastic", "gd"]
    ):
        model = RPML(
            4,
            sampler=sampler,
            weight=weight,
            solver=solver,
            training="always",
            n_neighbors=12,
            max_iter=3,
            tol=0.5,
            n_epochs=1,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, groups=groups if grouped else None)
        a, p, n = model.labels_[model.triplets_].T
        assert len(model.triplets_) > 0
        assert np.isfinite(model.transform(X)).all()
        if not grouped:
            assert (a == p).all()
            assert (a != n).all()


@pytest.mark.parametrize("settings", [{"n_neighbors": 20}, {"n_neighbors": 50}])
def test_neighbors_are_those_asked_for(settings):
    X, _ = blobs()
    context = Context(store=MemoryStore())
    for k, rows in ((settings["n_neighbors"], X), (30, X), (30, X[:100])):
        stages = Stages(RPML(n_neighbors=k), context)
        found = stages.cluster(rows, FitInputs(no_groups(len(rows))))[1]
        expected = nearest_neighbors(rows, k, metric="cosine")
        np.testing.assert_array_equal(found.indices, expected.indices)


def test_a_stage_is_found_again_for_the_same_inputs_only():
    X, _ = blobs()
    store = MemoryStore()
    settings = {"n_neighbors": 12, "training": "always", "tol": 1e-3, "random_state": 0}
    first = RPML(4, **settings).fit(X, store=store)
    assert store.loaded == []
    again = RPML(4, **settings).fit(X, store=store)
    np.testing.assert_array_equal(first.transform(X), again.transform(X))
    assert set(store.loaded) == {"neighbors"}
    for other, rows in (({**settings, "n_neighbors": 20}, X), (settings, X[::-1].copy())):
        mixed = RPML(4, **other).fit(rows, store=store)
        alone = RPML(4, **other).fit(rows)
        np.testing.assert_array_equal(mixed.labels_, alone.labels_)
        np.testing.assert_array_equal(mixed.transform(X), alone.transform(X))


def test_the_solver_is_stored_every_ten_iterations(monkeypatch):
    X, _ = blobs()
    store, stored = MemoryStore(), []
    save = store.save

    def listen(name, arrays, metadata):
        save(name, arrays, metadata)
        if name == "optimizer":
            stored.append(metadata["iteration"])

    monkeypatch.setattr(store, "save", listen)
    model = RPML(4, n_neighbors=12, training="always", tol=0.0, max_iter=25, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, store=store)
    assert stored == [10, 20]


def subsampled(X, **inputs):
    model = RPML(4, n_neighbors=8, max_iter=3, subsample=100, random_state=0, training="always")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, **inputs)


def test_a_subsample_decides_and_all_rows_make_the_axes(tmp_path):
    X, _ = blobs(n=600)
    model = subsampled(X)
    used = np.flatnonzero(model.labels_ >= 0)
    assert len(model.labels_) == 600
    assert 90 <= len(used) <= 100
    assert np.isin(model.triplets_, used).all()
    assert np.isin(model.exemplars_.rows, used).all()
    np.testing.assert_array_equal(model.exemplar_vectors_, X[model.exemplars_.rows])
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(model.preprocessing_.mean, unit.mean(axis=0), atol=1e-12)
    assert f"learned from {len(used)} of 600 rows" in model.message_
    model.save(tmp_path / "m.rpml", exemplars=True)
    again = RPML.load(tmp_path / "m.rpml")
    np.testing.assert_array_equal(again.labels_, model.labels_)
    assert len(again.predict(X)) == 600
    everything = clone(model).set_params(subsample=None, max_iter=100).fit(X)
    assert (everything.labels_ >= 0).all()
    assert "learned from" not in everything.message_


def test_without_training_a_subsample_changes_no_map():
    X, y = blobs(n=600)
    known = np.where(np.arange(600) % 7 == 0, y, -1)
    settings = {"n_neighbors": 8, "use_labels": True, "random_state": 0}
    whole, part = (RPML(4, subsample=n, **settings).fit(X, known) for n in (None, 200))
    assert whole.outcome_ == part.outcome_ == "PCA"
    assert whole.message_ == part.message_
    np.testing.assert_array_equal(whole.transform(X), part.transform(X))
    assert (whole.labels_ >= 0).all()
    assert 200 <= (part.labels_ >= 0).sum() < 300
    sample = RPML(4, subsample=200, random_state=0).fit(X)._sample
    assert len(np.unique(sample["rows"])) == 200
    np.testing.assert_array_equal(sample["vectors"], X[sample["rows"]])
    assert sample["rows"].max() > 500  # of all rows


def test_the_unit_of_rows_and_queries_changes_no_map():
    X, _ = blobs(d=24)
    queries = X[:80] + 3
    settings = {"n_neighbors": 8, "random_state": 0, "normalize_input": False}
    one, other = (
        RPML(4, **settings).fit(X * unit, queries=queries * unit) for unit in (1.0, 2.0**70)
    )
    assert one.whitening_.nuisance.used
    assert one.whitening_ == other.whitening_
    np.testing.assert_allclose(one.transform(X), other.transform(X * 2.0**70), atol=1e-6)


def test_a_subsample_has_all_rows_that_are_known():
    X, y = blobs(n=600)
    known = np.where(np.arange(600) % 7 == 0, y, -1)
    comparison = np.array([[3, 11, 580]])
    model = clone(subsampled(X)).set_params(use_labels=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, known, comparisons=comparison)
    assert (model.labels_[known >= 0] >= 0).all()
    np.testing.assert_array_equal(model.labeled_mask_, known >= 0)
    assert (model.triplets_ == comparison).all(axis=1).any()


def test_a_subsample_is_drawn_from_more_rows_only():
    groups = no_groups(100)
    assert FitInputs(groups).sample(100, np.random.default_rng(0)) is None
    assert len(np.unique(FitInputs(groups).sample(99, np.random.default_rng(0)))) == 99
    np.testing.assert_array_equal(sample_rows(groups, 100, None), np.arange(100))  # nothing drawn


def test_a_subsample_takes_groups_whole():
    X, _ = blobs(n=600)
    groups = np.arange(600) // 3
    used = subsampled(X, groups=groups).labels_ >= 0
    assert 0 < used.sum() < 200
    np.testing.assert_array_equal(used, np.repeat(used[::3], 3))


def test_given_clusters_are_subsampled_with_their_rows():
    X, y = blobs(n=600)
    model = RPML(4, clustering=y, max_iter=3, subsample=100, random_state=0).fit(X)
    used = model.labels_ >= 0
    assert used.sum() == 100
    pairs = {(a, b) for a, b in zip(model.labels_[used], y[used], strict=True)}
    assert len(pairs) == len(set(y))


def test_the_whitening_tells_how_far_it_is():
    X, _ = blobs()
    events = []
    RPML(4, n_neighbors=12, max_iter=2, random_state=0, callback=events.append).fit(X)
    steps = [(e.done, e.total) for e in events if e.stage == "whiten" and e.total > 1]
    assert len({total for _, total in steps}) == 1
    assert [done for done, _ in steps] == list(range(1, len(steps) + 1))
    assert steps[-1][1] - 8 <= steps[-1][0] < steps[-1][1]  # the last round may not be needed


SETTINGS = [
    dict(zip(("epsilon", "merge", "affinity", "method"), values, strict=True))
    for values in [
        ("auto", None, "gaussian", "auto"),
        ("auto", "average", "gaussian", "exact"),
        ("auto", "average", "cosine", "auto"),
        (0.2, None, "gaussian", "exact"),
        ("auto", "average", "gaussian", "ann"),
    ]
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_one_authority_ascent_shift(settings, seed):
    """RPML clusters as the estimator alone does, for every setting."""
    X, _ = blobs(n=160, classes=5 + seed, seed=seed)
    aas = AuthorityAscentShift(10, metric="cosine", **settings)
    settings = {"training": "always", "max_iter": 1, "tol": 1.0}
    model = RPML(4, clustering=aas, random_state=0, **settings).fit(X)
    alone = clone(aas).fit(model.preprocessing_.apply(X))
    assert alone.n_clusters_ < len(X)
    np.testing.assert_array_equal(model.labels_, alone.labels_)


@pytest.mark.parametrize(
    "setting",
    [
        {"epsilon": "typo"},
        {"method": "nonsense"},
        {"affinity": "linear"},
        {"merge": "all"},
        {"gamma": -1},
    ],
    ids=str,
)
def test_the_settings_of_the_clustering_are_checked(setting):
    X, _ = blobs()
    (name, value), *_ = setting.items()
    with pytest.raises(ValueError, match=f"'{name}' parameter of .*Got {value!r}"):
        RPML(4, clustering=AuthorityAscentShift(10, metric="cosine", **setting)).fit(X)


def test_an_interrupted_solver_continues_where_it_was():
    X, _ = blobs()
    store, seen = MemoryStore(), []

    def stop(progress):
        if progress.stage == "optimize" and progress.done == 12:
            raise KeyboardInterrupt

    settings = {"training": "always", "tol": 0.0, "max_iter": 15, "random_state": 0}
    with pytest.raises(KeyboardInterrupt):
        RPML(4, callback=stop, **settings).fit(X, store=store)
    with pytest.warns(ConvergenceWarning):
        RPML(4, callback=lambda p: seen.append((p.stage, p.done)), **settings).fit(X, store=store)
    assert min(done for stage, done in seen if stage == "optimize") > 1


def test_constraints_are_reason_to_train_and_labels_are_not():
    X, y = blobs()
    plain = RPML(4, n_neighbors=12, random_state=0).fit(X)
    assert plain.outcome_ == "PCA"
    pairs = np.array([[0, 8], [1, 9]])  # of one class each
    known = np.where(np.arange(len(X)) < 3, y, -1)
    for constraints in (
        {"must_link": pairs},
        {"cannot_link": [[0, 9], [1, 10]]},
        {"comparisons": [[0, 8, 1]]},
    ):
        model = RPML(4, n_neighbors=12, random_state=0).fit(X, **constraints)
        assert model.outcome_ == "learned axes, trained"
        assert model.whitening_.labels_ignored == ""  # nobody gave any
    model = RPML(4, n_neighbors=12, random_state=0, use_labels=True).fit(X, known)
    assert model.outcome_ == "PCA"
    whitened = RPML(4, n_neighbors=12, random_state=0, use_labels=True, whiten=0.5).fit(X, known)
    assert whitened.n_iter_ > 0  # nothing judges them


@pytest.mark.parametrize("sampler", ["uniform", "semi-hard", "hard"])
def test_negatives_are_those_of_the_sampler(sampler):
    X, y = blobs(d=24)
    settings = {"n_neighbors": 60, "max_iter": 1, "tol": 1.0, "random_state": 0}
    model = RPML(4, clustering=y, sampler=sampler, **settings).fit(X)
    Z = model.preprocessing_.apply(X)
    cosines = Z @ Z.T / np.outer(*2 * [np.linalg.norm(Z, axis=1)])
    np.fill_diagonal(cosines, -np.inf)
    rank = np.argsort(np.argsort(-cosines, axis=1), axis=1)
    a, p, n = model.triplets_.T
    near = rank[a, n] < 60
    assert (near.mean() > 0.9) == (sampler == "hard")
    if sampler == "hard":
        first = np.flatnonzero(np.diff(a, prepend=-1))  # the first triplet of each anchor
        others = np.where(y[None] == y[:, None], -np.inf, cosines)
        assert (others.argmax(axis=1)[a[first]] == n[first]).mean() > 0.9
    if sampler == "semi-hard":  # where the positive is not farther than all neighbors
        plain = RPML(4, clustering=y, **settings).fit(X).triplets_
        chosen = (plain != model.triplets_).any(axis=1)
        assert chosen.mean() > 0.2
        assert near[chosen].all()
        assert (cosines[a, n] < cosines[a, p])[chosen].all()


def test_triplets_of_given_classes_and_comparisons_have_weight_1():
    X, y = blobs()
    known = np.where(np.arange(len(X)) % 3 == 0, y, -1)
    given = FitInputs(no_groups(len(X)), gather(known, len(X), comparisons=[[1, 9, 2]]))
    labels = np.where(known >= 0, known, 100 + y)
    for weight in ("concat", "bilinear"):
        settings = RPML(4, weight=weight, weight_ridge=None)
        problem = Stages(settings, Context()).objective(X, None, labels, given)
        theta = 50 * np.ones(20) if weight == "concat" else 5 * np.ones((10, 4))
        problem.move_to(np.eye(10, 4), theta)
        certain = (known[problem.triplets] >= 0).all(axis=1)
        certain |= (problem.triplets == [1, 9, 2]).all(axis=1)
        weights = problem.weights_and_probabilities()[0]
        assert 0 < certain.sum() < len(certain)
        np.testing.assert_allclose(weights[certain], 1)
        assert weights[~certain].min() < 0.9


def test_sources_of_triplets_share_the_limit():
    X, y = blobs()
    known = gather(np.where(np.arange(len(X)) % 3 == 0, y, -1), len(X))
    groups = np.arange(len(X)) // 16 * 8 + y
    for inputs, n in ((FitInputs(groups), 90), (FitInputs(groups, known), 60)):
        stages = Stages(RPML(4, max_triplets=180), Context())
        triplets = stages.objective(X, None, y, inputs).triplets
        assert len(triplets) == 180
        a, p, _ = triplets.T
        assert (groups[a[n : 2 * n]] == groups[p[n : 2 * n]]).all()


@pytest.mark.parametrize(("size", "n_axes"), [(8, 256), (140, 280), (160, 300)])
def test_a_whitening_that_is_set_looks_at_256_axes_or_twice_the_components(size, n_axes):
    X = np.random.default_rng(0).standard_normal((400, 300))
    model = RPML(size, whiten=0.5, training="auto", max_iter=1, n_neighbors=5, random_state=0)
    assert model.fit(X).preprocessing_.matrix.shape == (300, n_axes)
