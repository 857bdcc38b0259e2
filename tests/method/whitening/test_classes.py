"""A few labels: the scatter they give, what they do to a fit, and that none change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rpml import RPML
from rpml.estimator.description import decisions
from rpml.evaluation.metrics import recall_at_k
from rpml.method.knowledge.constraints import gather
from rpml.method.objective.weights import PINNED_LOGIT, PinnedWeights, weight_function
from rpml.method.settings import FitInputs
from rpml.method.whitening import choice, classes, constants
from rpml.method.whitening.choice import scatter_rows
from rpml.method.whitening.classes import (
    _judged,
    count_pairs,
    held_out_gains,
    label_scatter,
    label_spread,
    nearest_class,
    with_labeled,
)
from rpml.method.whitening.constants import JUDGED_ROWS, LABEL_CHUNK, LABEL_SHRINKAGES
from rpml.method.whitening.evidence import neighbor_scatter
from rpml.method.whitening.groups import no_groups, within_scatter
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import coordinates, whitening_map
from tests.problems import blobs, classes_with_nuisance


def hidden_classes(seed=0, classes=24, per_class=30, d=40):
    """Classes told apart by weak directions that strong ones, common to all, drown."""
    return blobs(seed, classes, per_class, d, spread=np.where(np.arange(d) < d // 2, 3.0, 0.4))


def some_labels(y, per_class, seed=0):
    rng = np.random.default_rng(seed)
    known = np.full(len(y), -1)
    for c in np.unique(y):
        known[rng.permutation(np.flatnonzero(y == c))[:per_class]] = c
    return known


@pytest.fixture(scope="module")
def problem():
    X, y = hidden_classes()
    seen = y < 16
    return X[seen], y[seen], X[~seen], y[~seen]


def scatter_of(X, known, n_components=8):
    spectrum = principal_axes(X, unit_input=True)
    data = coordinates(X, np.arange(len(X)), spectrum, True, n_components)
    prior = neighbor_scatter(data, np.random.default_rng(0))
    return data, prior, label_scatter(data, known, prior, np.random.default_rng(0))


def test_pairs_are_labeled_rows_less_classes():
    assert count_pairs(np.array([0, 0, 0, 1, -1, 2, 2])) == 3
    assert count_pairs(np.array([-1, -1])) == 0


def test_too_few_labels_leave_the_scatter_as_it_was(problem):
    X, y, *_ = problem
    enough = np.where(y < 4, some_labels(y, 6), -1)
    one_less = enough.copy()
    one_less[np.flatnonzero(enough >= 0)[0]] = -1
    for known, few in (
        (some_labels(y, 1), "0 pairs in 0 classes"),
        (np.where(y < 3, y, -1), "87 pairs in 3 classes"),
        (one_less, "19 pairs in 4 classes"),
    ):
        _, prior, found = scatter_of(X, known)
        assert found[0] is prior[0]
        assert found[1] == replace(prior[1], labels_ignored=f"{few} are too few to tell")
    assert "too few" not in scatter_of(X, enough)[2][1].labels_ignored


def test_all_labels_give_the_scatter_within_classes(problem):
    X, y, *_ = problem
    data, _, (scatter, choice) = scatter_of(X, y)
    assert choice.source == "labels"
    truth = within_scatter(data, y)
    assert np.linalg.norm(scatter - truth) < 0.2 * np.linalg.norm(truth)


def test_a_few_labels_come_closer_to_it_than_neighbors(problem):
    X, y, *_ = problem
    data, prior, (scatter, _) = scatter_of(X, some_labels(y, 5))
    truth = within_scatter(data, y)

    def miss(S):
        return np.linalg.norm(S / np.trace(S) - truth / np.trace(truth))

    assert miss(scatter) < miss(prior[0])


@pytest.mark.parametrize("most", [1 / 512, 1 / 8, np.inf])
def test_labels_whiten_no_less_than_the_rows_do_without_them(problem, most):
    X, y, *_ = problem
    data, (scatter, choice), _ = scatter_of(X, y)
    prior = (scatter, replace(choice, shrinkage=most))
    _, found = label_scatter(data, y, prior, np.random.default_rng(0))
    tried = list(found.evidence)
    assert tried == [s for s in LABEL_SHRINKAGES if s <= max(most, LABEL_SHRINKAGES[0])]
    assert found.shrinkage == max(tried, key=found.evidence.get)
    assert found.trains == choice.trains


def test_axes_are_ranked_by_the_spread_of_the_labeled_rows(problem):
    """With few labels as with all: the directions that lead are those between classes."""
    X, y, *_ = problem
    for known in (some_labels(y, 10), y):
        data, _, (scatter, choice) = scatter_of(X, known)
        assert np.isfinite(choice.shrinkage)  # otherwise any axes are the principal ones
        of_labeled = label_spread(data, known, scatter)
        truth = label_spread(data, y, within_scatter(data, y))
        leading, right = (
            np.linalg.qr(whitening_map(scatter, spread, choice.shrinkage, 8)[:, :8])[0]
            for spread in (of_labeled, truth)
        )
        assert np.linalg.norm(leading.T @ right) ** 2 > 0.8 * 8


def test_many_labels_choose_among_more_axes_and_keep_as_many_as_without():
    X, y = hidden_classes(d=120)
    few, many = (
        RPML(8, use_labels=True, n_neighbors=15, max_iter=0, random_state=0).fit(X[:240], labels)
        for labels in (some_labels(y[:240], 1), y[:240])
    )
    assert "labels" in many.whitening_.source
    assert few.components_.shape == many.components_.shape == (8, 80)
    assert np.linalg.norm(many.components_[:, :8]) ** 2 > 8 - 1e-9  # L starts with the first axes


def test_rows_go_to_the_class_of_the_nearest_mean():
    rows = np.array([[1.0, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.8, 0]])
    named = nearest_class(rows, np.array([4, -1, 7, -1, -1]))
    np.testing.assert_array_equal(named, [4, 4, 7, 7, 4])


def test_labeled_rows_join_a_sample():
    known = np.full(100, -1)
    known[[3, 50, 99]] = 0
    rows = with_labeled(np.arange(10), known, np.random.default_rng(0))
    assert {3, 50, 99} <= set(rows.tolist())
    assert len(rows) == 12


def test_a_few_labels_help_on_classes_never_seen(problem):
    X, y, X_new, y_new = problem

    def score(known):
        model = RPML(8, use_labels=True, n_neighbors=15, random_state=0).fit(X, known)
        return recall_at_k(model.transform(X_new), y_new, ks=(1,))[1]

    none, few, everything = score(np.full(len(y), -1)), score(some_labels(y, 6)), score(y)
    assert few > none + 0.03
    assert everything > none + 0.05


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_no_label_at_all_is_exactly_the_unsupervised_fit(problem, missing):
    X, *_ = problem
    y = np.full(len(X), missing, object)
    settings = {"n_neighbors": 15, "training": "always", "random_state": 0}
    plain = RPML(6, **settings).fit(X)
    for none in (y, np.full(len(X), -1)):
        model = RPML(6, use_labels=True, **settings).fit(X, none)
        np.testing.assert_array_equal(model.components_, plain.components_)
        np.testing.assert_array_equal(model.triplets_, plain.triplets_)
        np.testing.assert_array_equal(model.transform(X), plain.transform(X))


def test_strings_and_numbers_are_the_same_labels(problem):
    X, y, *_ = problem
    known = some_labels(y, 3)
    words = np.array([None if k < 0 else f"class {k:02d}" for k in known], object)
    one, two = (RPML(6, use_labels=True, n_neighbors=15, random_state=0).fit(X, labels)
                for labels in (known, words))  # fmt: skip
    np.testing.assert_array_equal(one.components_, two.components_)


def test_known_labels_are_kept_and_their_triplets_weigh_most(problem):
    X, y, *_ = problem
    known = some_labels(y, 4)
    for solver in ("cg", "stochastic"):
        model = RPML(
            6,
            use_labels=True,
            training="always",
            n_neighbors=15,
            solver=solver,
            n_epochs=1,
            random_state=0,
        ).fit(X, known)
        np.testing.assert_array_equal(model.labels_[known >= 0], known[known >= 0])
        sure = (known[model.triplets_] >= 0).all(axis=1)
        assert 0 < sure.sum() < len(sure)
        weights = model.triplet_weights_
        assert weights[sure].min() == pytest.approx(weights.max(), rel=1e-6)


def test_constraints_reach_the_fit(problem):
    X, *_ = problem
    first = np.arange(0, len(X), 10)
    same = np.stack([first, first + 1], axis=1)
    apart = np.stack([first[:-3], first[3:]], axis=1)
    closer = np.stack([first[:-3], first[:-3] + 2, first[3:]], axis=1)
    model = RPML(6, n_neighbors=15, random_state=0)
    model.fit(X, must_link=same, cannot_link=apart, comparisons=closer)
    labels = model.labels_
    assert (labels[same[:, 0]] == labels[same[:, 1]]).all()
    assert (labels[apart[:, 0]] != labels[apart[:, 1]]).all()
    np.testing.assert_array_equal(model.triplets_[-len(closer) :], closer)
    with pytest.raises(ValueError, match=r"cannot_link\[0\]"):
        model.fit(X, must_link=same, cannot_link=same)
    with pytest.warns(UserWarning, match="1 constraint left out") as caught:
        model.fit(X, must_link=same, cannot_link=same[:1], conflicts="weight")
    assert caught[0].filename == __file__


@pytest.mark.parametrize("name", ["concat", "bilinear"])
def test_certain_triplets_feel_no_gradient(name):
    rng = np.random.default_rng(0)
    triplets = rng.integers(0, 20, (12, 3)).astype(np.int32)
    certain = np.arange(12) < 5
    weight = PinnedWeights(weight_function(name), certain)
    P, Q = rng.standard_normal((2, 20, 2 if name == "concat" else 3))
    assert (weight.logits(P, triplets)[:, certain] == PINNED_LOGIT).all()
    first, *others = weight.on_line(P, Q, triplets)
    assert (first[:, certain] == PINNED_LOGIT).all()
    assert all((other[:, certain] == 0).all() for other in others)
    ds = rng.standard_normal((len(first), 12))
    rest = weight_function(name).pullback(P, triplets[~certain], ds[:, ~certain])
    np.testing.assert_allclose(weight.pullback(P, triplets, ds.copy()), rest, atol=1e-12)


def misleading_labels(y, per_class=4):
    """Of which half are exchanged for each other."""
    known, rng = some_labels(y, per_class), np.random.default_rng(0)
    labeled = np.flatnonzero(known >= 0)
    wrong = labeled[rng.random(len(labeled)) < 0.5]
    known[wrong] = rng.permutation(known[wrong])
    return known


def test_right_labels_bring_held_out_rows_nearer_to_their_class():
    X, y = classes_with_nuisance()
    known = some_labels(y, 8)
    data, prior, (_, choice) = scatter_of(X, known)
    assert choice.source == "labels"
    assert choice.labels_ignored == ""
    assert choice.reason.startswith("the rank gain of held-out labeled rows is 0.")
    tried = list(choice.evidence)
    gains = held_out_gains(data, known, prior, tried, np.random.default_rng(0))
    assert gains.shape == (len(tried), (known >= 0).sum())
    assert gains.mean(axis=1).max() > 0.1


def test_misleading_labels_are_ignored_and_the_fit_is_that_without(tmp_path):
    X, y = classes_with_nuisance()
    known = misleading_labels(y)
    _, prior, (scatter, choice) = scatter_of(X, known)
    assert scatter is prior[0]
    assert choice == replace(prior[1], labels_ignored=choice.labels_ignored)
    settings = {"random_state": 0, "max_iter": 5, "tol": 1e-2}
    model = RPML(8, use_labels=True, **settings).fit(X, known)
    without = RPML(8, **settings).fit(X)
    assert without.whitening_.labels_ignored == ""
    np.testing.assert_array_equal(model.transform(X), without.transform(X))
    np.testing.assert_array_equal(model.labels_[known >= 0], known[known >= 0])
    reason = "ignored, because the rank gain of held-out labeled rows is -0."
    assert decisions(model)["labels"].startswith(reason)
    assert "labels" not in decisions(without)
    model.save(tmp_path / "m.rpml")
    assert RPML.load(tmp_path / "m.rpml").whitening_ == model.whitening_


@pytest.mark.parametrize(("gain", "ignored"), [(-0.1, True), (0.05, True), (0.07, False)])
def test_labels_are_used_where_they_clearly_help_and_do_not_train(
    problem, monkeypatch, gain, ignored
):
    X, y, *_ = problem
    per_row = gain + np.tile([-0.3, 0.3], 50)  # standard error 0.03
    monkeypatch.setattr(classes, "held_out_gains", lambda *_: np.tile(per_row, (4, 1)))
    known = some_labels(y, 8)
    model = RPML(8, random_state=0, use_labels=True).fit(X, known)
    assert bool(model.whitening_.labels_ignored) == ignored
    assert (model.whitening_.source == "labels") == (not ignored)
    assert model.outcome_ == ("PCA" if ignored else "learned axes")
    assert model.n_iter_ == 0
    np.testing.assert_array_equal(model.labels_[known >= 0], known[known >= 0])


def test_labels_that_say_nothing_new_change_nothing():
    """Trained with them, the rows would lose what PCA has."""
    X, y = blobs(0, 12, 40, 30)
    known = some_labels(y, 5)
    settings = {"random_state": 0, "n_neighbors": 15}
    model = RPML(8, use_labels=True, **settings).fit(X, known)
    without = RPML(8, **settings).fit(X)
    assert model.outcome_ == without.outcome_ == "PCA"
    assert "rank gain of held-out labeled rows" in decisions(model)["labels"]
    np.testing.assert_array_equal(model.transform(X), without.transform(X))


def test_constraints_stay_where_labels_are_ignored():
    X, y = classes_with_nuisance()
    known = misleading_labels(y)
    apart = [tuple(np.flatnonzero(known < 0)[[0, -1]])]
    model = RPML(8, random_state=0, use_labels=True, max_iter=2, tol=1e-2)
    model.fit(X, known, cannot_link=apart)
    assert model.whitening_.labels_ignored
    assert model.n_classes_ == known.max() + 1
    i, j = apart[0]
    assert model.labels_[i] != model.labels_[j]


@pytest.mark.parametrize("per_class", [2, 900])
def test_many_labels_are_judged_by_a_part_of_them_that_has_pairs(per_class):
    labels = np.repeat(np.arange(5400 // per_class), per_class)
    labels[-400:] = -1
    rows = _judged(labels, np.random.default_rng(0))
    assert len(rows) == len(set(rows)) == JUDGED_ROWS // 2 + 400
    sizes = np.bincount(labels[rows][labels[rows] >= 0])
    assert set(sizes[sizes > 0]) == {2} if per_class == 2 else (sizes >= 200).all()


def test_a_large_class_does_not_displace_the_small_ones_that_judge():
    labels = np.concatenate([np.full(3000, 0), np.repeat(np.arange(1, 401), 5)])
    sizes = np.bincount(labels[_judged(labels, np.random.default_rng(0))])
    assert sizes[0] == LABEL_CHUNK
    assert set(sizes[1:]) == {0, 5}


def test_the_rows_that_choose_the_whitening_have_the_labeled_ones_among_them(monkeypatch):
    monkeypatch.setattr(constants, "SCATTER_ROWS", 20)
    labels = np.where(np.arange(100) < 15, np.arange(100) % 3, -1)
    inputs = FitInputs(no_groups(100), gather(labels, 100))
    rows = scatter_rows(inputs, np.random.default_rng(0))
    assert 20 <= len(rows) <= 30
    assert (rows < 15).sum() >= 10
    for n_others, n_labeled in ((20, 10), (5, 15), (8, 12)):
        rows = with_labeled(np.arange(15, 15 + n_others), labels, np.random.default_rng(0))
        assert len(rows) == n_others + n_labeled


def test_many_labels_tell_something_of_more_axes(monkeypatch):
    rng, widths = np.random.default_rng(0), []

    def listen(data, *rest):
        widths.append(data.W.shape[1])
        return label_scatter(data, *rest)

    monkeypatch.setattr(choice, "label_scatter", listen)
    X = rng.standard_normal((150, 120))
    for per_class in (3, 5):  # 20 and 40 pairs, besides what 150 rows tell
        known = np.where(np.arange(150) < 10 * per_class, np.arange(150) % 10, -1)
        RPML(4, use_labels=True, random_state=0).fit(X, known)
    assert widths == [50, 80]
