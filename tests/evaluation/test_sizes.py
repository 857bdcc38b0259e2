"""Bytes in, configuration out: the table, the choice, and a model that has what its code needs."""

import numpy as np
import pytest

import rpml
from rpml.evaluation import codes
from rpml.evaluation.codes import recommend_size
from tests.languages import translations
from tests.problems import blobs


@pytest.fixture(scope="module")
def data():
    return blobs(classes=20, per_class=25, d=80, spread=0.5, dtype=np.float32)


@pytest.fixture(scope="module")
def advice(data):
    return rpml.recommend(data[0], bytes=4)


def test_the_table_has_a_row_per_size_and_the_raw_vectors(advice):
    assert [row["bytes"] for row in advice.table] == [4, 8, 16, 32, 64, 320]
    assert (
        advice.table[-1] | {"code": "float32", "dim": 80, "neighbors_kept": 1.0}
        == (advice.table[-1])
    )
    for row in advice.table:
        assert row["neighbors_kept_low"] <= row["neighbors_kept"] <= row["neighbors_kept_high"]
        assert "recall@1" not in row
    kept = [row["neighbors_kept"] for row in advice.table]
    assert kept == sorted(kept)
    assert "4 bytes per vector, 80 times smaller than the raw vectors" in str(advice)
    assert len(advice.lines()) == 7


def test_the_advice_can_be_followed(advice, data):
    X = data[0]
    assert advice.estimator.n_components == advice.n_components
    model = advice.fit(X)
    packed = model.transform(X, output=advice.output)
    assert packed.shape == (len(X), 4)
    assert model.codec(advice.output).decode(packed).shape == (len(X), advice.n_components)


@pytest.mark.parametrize("unit", [1e-300, 1e300])
def test_the_unit_of_the_rows_does_not_matter(advice, data, unit):
    X, (few, *_) = data[0].astype(np.float64), advice.table
    scaled = rpml.recommend(X * unit, bytes=4).table[0]
    assert scaled["dim"] == few["dim"]
    assert scaled["neighbors_kept"] == pytest.approx(few["neighbors_kept"], abs=0.02)
    usual = rpml.recommend(X, bytes=4, queries=X[:200]).table[0]["neighbors_kept"]
    found = rpml.recommend(X * unit, bytes=4, queries=X[:200] * unit).table[0]["neighbors_kept"]
    assert found == pytest.approx(usual, abs=0.02)
    one, other = (codes.compare_bytes(Y, None, (4,), methods=("pca",)) for Y in (X, X * unit))
    for row, same in zip(one, other, strict=True):
        assert same["neighbors_kept"] == pytest.approx(row["neighbors_kept"], abs=0.02)


def test_rows_of_one_direction_are_refused():
    with pytest.raises(ValueError, match="all the same after scaling to unit norm"):
        rpml.recommend(np.arange(1, 201)[:, None] * np.ones(8), bytes=4)


def test_labels_decide_by_recall(data):
    X, y = data
    found = rpml.recommend(X, bytes=8, y=y)
    row = next(row for row in found.table if row["bytes"] == 8)
    assert row["recall@1"] > 0.9
    assert "Recall@1 is" in str(found)


def test_labels_choose_the_dimensions_of_the_highest_recall():
    X, y = blobs(classes=20, per_class=25, d=80, spread=2.5)
    fits = codes._trial(X, y, {}, 0)
    recall = {size: fits.measure(size, "pq", 8)["recall@1"] for size in (32, 64, 80)}
    found = rpml.recommend(X, bytes=8, y=y)
    row = next(row for row in found.table if row["bytes"] == 8)
    assert row["recall@1"] == max(recall.values()) > min(recall.values())
    assert row["recall@1"] == recall[found.n_components]


def test_without_labels_the_fit_tells_the_dimensions(data):
    X = data[0]
    fits = codes._trial(X, None, {}, 0)
    learned = codes.has_learned_axes(fits.fit(80))
    for row in rpml.recommend(X, bytes=8).table[:-1]:
        usual = codes.product_size(row["bytes"], learned)
        assert (row["dim"], row["code"]) == (min(80, usual), "pq")


def test_real_queries_are_searched(data):
    X = data[0]
    found = rpml.recommend(X[20:], bytes=8, queries=X[:20])
    row = next(row for row in found.table if row["bytes"] == 8)
    assert 0 < row["neighbors_kept"] <= 1
    with pytest.raises(ValueError, match="queries must be rows of 80 columns"):
        rpml.recommend(X, bytes=8, queries=X[:20, :5])


def test_the_trials_and_the_fit_use_what_is_known():
    X, y, language = translations()
    X = X.astype(np.float32)
    plain = rpml.recommend(X, bytes=8, y=y)
    known = rpml.recommend(X, bytes=8, y=y, nuisance=language)
    best, worse = (next(r for r in a.table if r["bytes"] == 8) for a in (known, plain))
    assert best["recall@1"] > worse["recall@1"] + 0.1
    assert known.next_step == "rpml.recommend(X, bytes=8, nuisance=nuisance).fit(X)"
    model = known.fit(X)
    by_hand = known.estimator.fit(X, nuisance=language)
    np.testing.assert_array_equal(model.components_, by_hand.components_)
    assert model.whitening_.nuisance is not None
    asked = rpml.recommend(X, bytes=8, queries=X[::5] + 2)
    by_hand = asked.estimator.fit(X, queries=X[::5] + 2)
    np.testing.assert_array_equal(asked.fit(X).components_, by_hand.components_)


def test_the_fewest_bytes_that_keep_enough(data):
    X, y = data
    found = rpml.recommend(X, keep=0.9, y=y)
    assert found.n_bytes == 8
    assert [row["bytes"] for row in found.table] == [8, 320]
    much = rpml.recommend(X, keep=1.0)
    assert much.n_bytes == max(row["bytes"] for row in much.table[:-1])
    assert "keeps 100%; this one keeps the most" in str(much)


def test_advice_from_a_sample_says_so(data, advice, monkeypatch):
    assert "Measured among" not in str(advice)
    monkeypatch.setattr(codes, "TRIAL_ROWS", 300)
    sampled = rpml.recommend(data[0], bytes=4)
    assert "Measured among 300 of the rows: among all of them fewer neighbors stay." in str(sampled)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"bytes": 0}, "bytes=0 must be an integer of at least 1"),
        ({"bytes": "8"}, "bytes='8' must be an integer of at least 1"),
        ({"keep": 2.0}, r"keep=2.0 must lie in \[0, 1\]"),
        ({"bytes": 8, "keep": 0.5}, "either bytes, or the share"),
        ({"bytes": 8, "n_components": 4}, "leave out n_components"),
        ({"bytes": 900}, "No code of 900 bytes fits"),
    ],
)
def test_wrong_arguments(data, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        rpml.recommend(data[0], **change)
    if "bytes" in change:
        with pytest.raises(ValueError, match="50 rows of X are too few: at least 100 are needed"):
            recommend_size(data[0][:50], 8)
