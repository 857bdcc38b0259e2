"""fit(X, nuisance=...) and fit(X, queries=...): what they gain, when they are not used, errors."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from rpml import RPML
from rpml.estimator.description import decisions
from rpml.estimator.knowledge import as_nuisance
from rpml.io.datasets.demos import load_solutions
from tests.languages import recalls, translations

NAMES = np.array(["de", "en", "fr", "tr"])


def fitted(X, size=16, **known):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RPML(size, random_state=0).fit(X, **known)


def same_map(one, two):
    return np.array_equal(
        one.preprocessing_.matrix @ one.components_.T, two.preprocessing_.matrix @ two.components_.T
    )


def test_a_known_nuisance_finds_instances_across_its_values():
    X, y, v = translations()
    usual, known = fitted(X), fitted(X, nuisance=NAMES[v])
    before, after = (recalls(m.transform(X), y, v) for m in (usual, known))
    found = known.whitening_.nuisance
    assert known.whitening_.source == "nuisance"
    assert found.used
    assert found.n_removed == 3
    assert found.shared > 0.9
    assert found.shared_after < 0.5
    assert after[0] > before[0] + 0.3
    assert after[1] >= before[1]


def test_triplets_across_values_train_where_held_out_rows_support_it(monkeypatch):
    X, y, v = translations(240, languages=12)
    seen = y < 120
    trained = fitted(X[seen], 8, nuisance=v[seen])
    anchor, positive, negative = trained.triplets_.T
    v_seen = v[seen]
    assert trained.outcome_ == "learned axes, trained"
    assert "triplets across values" in trained.whitening_.nuisance.reason
    with pytest.raises(AttributeError, match="across the values of a nuisance, not from clusters"):
        _ = trained.labels_
    assert (v_seen[anchor] != v_seen[positive]).all()
    assert (v_seen[anchor] == v_seen[negative]).all()
    monkeypatch.setattr("rpml.method.solver.across.training_gain", lambda *_: 0.0)
    untrained = fitted(X[seen], 8, nuisance=v[seen])
    assert untrained.outcome_ == "learned axes"
    before, after = (
        recalls(m.transform(X[~seen]), y[~seen], v[~seen])[0] for m in (untrained, trained)
    )
    assert after > before
    always = RPML(8, training="always", solver="stochastic", random_state=0)
    always.fit(X[seen], nuisance=v_seen)  # its batches need clusters, so it solves as "cg" does
    assert (v_seen[always.triplets_[:, 0]] != v_seen[always.triplets_[:, 1]]).all()


def test_training_across_values_of_a_sample_of_the_rows():
    X, _, v = translations(240, languages=12)
    model = RPML(8, subsample=1500, max_triplets=300, random_state=0).fit(X, nuisance=v)
    anchor, positive, _ = model.triplets_.T
    assert model.outcome_ == "learned axes, trained"
    assert len(model.triplets_) == 300
    assert (v[anchor] != v[positive]).all()


def test_new_rows_need_no_value():
    X, y, v = translations(240)
    seen = y < 120
    usual, known = fitted(X[seen]), fitted(X[seen], nuisance=v[seen])
    before, after = (recalls(m.transform(X[~seen]), y[~seen], v[~seen]) for m in (usual, known))
    assert after[0] > before[0] + 0.2


def test_values_at_random_change_nothing():
    X, _, v = translations()
    known = fitted(X, nuisance=np.random.default_rng(1).permutation(v))
    assert not known.whitening_.nuisance.used
    assert "nothing to remove" in known.whitening_.nuisance.reason
    assert same_map(known, fitted(X))


def test_a_nuisance_that_is_the_class_is_not_removed():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 15)
    X = 2 * rng.standard_normal((40, 32))[y] + rng.standard_normal((600, 32))
    known = fitted(X, nuisance=y)
    assert not known.whitening_.nuisance.used
    assert same_map(known, fitted(X))


@pytest.mark.parametrize(
    "container", [list, pd.Series, pl.Series, lambda v: pd.DataFrame({"language": v})]
)
def test_a_nuisance_comes_in_any_container(container):
    X, _, v = translations()
    assert same_map(fitted(X, nuisance=NAMES[v]), fitted(X, nuisance=container(NAMES[v].tolist())))


def test_several_columns_and_missing_values():
    X, y, v = translations()
    rng = np.random.default_rng(0)
    length = rng.standard_normal(len(X))
    X = X + length[:, None] * rng.standard_normal(X.shape[1])
    language = np.where(rng.random(len(X)) < 0.1, None, NAMES[v])
    length[rng.random(len(X)) < 0.1] = np.nan
    table = {"language": language.tolist(), "length": length.tolist()}
    one, two = (fitted(X, nuisance=frame(table)) for frame in (pd.DataFrame, pl.DataFrame))
    assert one.whitening_.nuisance.used
    assert one.whitening_.nuisance.n_removed == 4
    assert same_map(one, two)
    assert recalls(one.transform(X), y, v)[0] > recalls(fitted(X).transform(X), y, v)[0] + 0.2


def test_numbers_and_categories():
    rng = np.random.default_rng(0)
    numbers, few = rng.standard_normal(100), np.tile([0.5, 1.5], 50)
    known = as_nuisance(np.stack([numbers, few], axis=1), 100)
    assert [column.dtype.kind for column in known.columns] == ["f", "i"]
    assert known.columns[0].std() == pytest.approx(1)
    assert known.values.max() + 1 == 8  # quarters of the numbers by two categories


def searched(n=400, d=48):
    """Documents, and a query for each that lies elsewhere."""
    rng = np.random.default_rng(0)
    meaning = rng.standard_normal((n, 20)) @ rng.standard_normal((20, d))
    documents, queries = (meaning + 3 * rng.standard_normal((n, d)) for _ in range(2))
    return documents, queries + 6 * rng.standard_normal(d)


def test_queries_and_documents_meet():
    documents, queries = searched()
    usual, known = fitted(documents), fitted(documents, queries=queries[:200])

    def found(model):
        scores = model.transform(queries[200:]) @ model.transform(documents).T
        return np.mean(scores.argmax(axis=1) == np.arange(200, 400))

    assert known.whitening_.source == "queries"
    assert known.whitening_.nuisance.used
    assert found(known) > found(usual) + 0.1


def test_twenty_queries_can_be_enough():
    documents, queries = searched()
    usual, known = fitted(documents), fitted(documents, queries=queries[:20])
    assert known.whitening_.nuisance.used
    scores = [m.transform(queries[200:]) @ m.transform(documents).T for m in (usual, known)]
    before, after = (np.mean(s.argmax(axis=1) == np.arange(200, 400)) for s in scores)
    assert after > before + 0.1


def test_queries_do_not_replace_training():
    train, test = load_solutions()
    first = np.unique(train.problem, return_index=True)[1]
    usual = fitted(train.vectors, 64)
    known = fitted(train.vectors, 64, queries=train.titles[first])
    assert known.whitening_.source == "queries"
    assert known.outcome_ == usual.outcome_ == "learned axes, trained"
    problems, first = np.unique(test.problem, return_index=True)

    def found(model):
        scores = model.transform(test.titles[first]) @ model.transform(test.vectors).T
        return np.mean(test.problem[scores.argmax(axis=1)] == problems)

    assert found(known) > found(usual) + 0.02  # 77% and 71%


def test_too_few_queries_change_nothing_although_the_fit_trains():
    programs = load_solutions()[1].vectors
    documents, queries = programs[:700], programs[700:710] + 0.15
    few = fitted(documents, queries=queries)
    assert few.outcome_ == "learned axes, trained"
    assert not few.whitening_.nuisance.used
    assert same_map(few, fitted(documents))


def test_documents_as_queries_change_nothing():
    documents, _ = searched()
    known = fitted(documents[:200], queries=documents[200:])
    assert not known.whitening_.nuisance.used
    assert same_map(known, fitted(documents[:200]))


def test_nuisance_with_groups_pairs_and_labels():
    X, y, v = translations()
    pairs = np.stack([np.arange(0, len(X), 4), np.arange(1, len(X), 4)], axis=1)
    for more in ({"groups": y}, {"pairs": pairs}):
        model = fitted(X, nuisance=v, **more)
        assert model.whitening_.nuisance.used
        assert recalls(model.transform(X), y, v)[0] > 0.6
    labeled = np.where(y < 40, y, -1)
    model = RPML(16, use_labels=True, random_state=0).fit(X, labeled, nuisance=v)
    assert recalls(model.transform(X), y, v)[0] > 0.6


def test_the_evidence_is_saved_and_said(tmp_path):
    X, _, v = translations()
    model = fitted(X, nuisance=v)
    model.save(tmp_path / "m.rpml")
    loaded = RPML.load(tmp_path / "m.rpml")
    assert loaded.whitening_ == model.whitening_
    said = decisions(loaded)["nuisance"]
    assert "of nearest neighbors share the nuisance" in said
    assert "after:" in said
    assert "3 directions removed" in said


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"nuisance": np.zeros(480)}, "one value for all rows"),
        ({"nuisance": np.arange(480)}, "another value for each of 480 rows"),
        ({"nuisance": np.arange(7) % 2}, r"one value per row \(480\), got the shape \(7,\)"),
        ({"nuisance": [None] * 480}, "no value"),
        ({"nuisance": pd.DataFrame({"a": np.tile([0, 1], 240), "b": 1})}, "column 'b' has one"),
        ({"nuisance": np.empty((480, 0))}, "no columns"),
        ({"queries": np.ones((5, 7))}, r"rows of 48 columns, as X has, got the shape \(5, 7\)"),
        ({"queries": np.ones(48)}, r"got the shape \(48,\)"),
        ({"queries": np.empty((0, 48))}, "queries are empty"),
        ({"queries": np.full((3, 48), np.nan)}, "queries contains NaN at row 0, column 0"),
    ],
)
def test_bad_input_gets_one_sentence(known, message):
    X, _, _ = translations()
    with pytest.raises(ValueError, match=message) as error:
        RPML(16).fit(X, **known)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("known", [{"nuisance": [0, 1] * 240}, {"queries": np.eye(3, 48)}])
def test_only_the_automatic_whitening_uses_it(known):
    X, _, _ = translations()
    (name,) = known
    with pytest.raises(ValueError, match=f"whiten=0.5 cannot use {name}, whiten='auto' can"):
        RPML(16, whiten=0.5).fit(X, **known)


def test_a_nuisance_may_be_an_arrow_table():
    arrow = pytest.importorskip("pyarrow")
    columns = {"language": ["de", "en", "fr"] * 20, "minutes": np.arange(60) / 7}
    table, frame = arrow.table(columns), pd.DataFrame(columns)
    np.testing.assert_array_equal(as_nuisance(table, 60).values, as_nuisance(frame, 60).values)
