"""The comparison: same split, honest intervals, marked references, resumable."""

import json

import numpy as np
import pytest
from sklearn.preprocessing import FunctionTransformer

import rpml
from rpml.evaluation import comparison
from rpml.evaluation.comparison import COMPARED_METHODS, compare, make_split
from rpml.evaluation.metrics import recall_at_k
from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.registry import METHODS, Method
from rpml.runtime.intervals import interval
from tests.problems import blobs

FAST = ("raw", "pca", "random", "lda")


@pytest.fixture(scope="module")
def data():
    return blobs(classes=10, per_class=12, d=16, spread=0.7, dtype=np.float32)


@pytest.fixture(scope="module")
def everything(data):
    return compare(*data, 5, methods=tuple(METHODS), seeds=(0,))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_scores(everything, name):
    (row,) = [row for row in everything.rows if row["method"] == name]
    assert "error" not in row
    for score in (
        "recall@1",
        "recall@2",
        "recall@4",
        "recall@8",
        "nmi",
        "f",
        "precision",
        "recall",
    ):
        assert 0 <= row[score] <= 1
    assert np.isfinite(row["seconds"])
    assert row["dim"] == {"raw": 16, "lda": 4}.get(name, row["dim"]) <= 16


def test_methods_that_see_labels_are_marked(everything):
    marked = {row["method"] for row in everything.rows if row["uses_labels"]}
    assert marked == {"lda", "nca"}
    assert "*LDA (uses labels)*" in everything.markdown()


def test_training_labels_reach_only_the_references(data):
    X, y = data
    split = make_split(X, y)
    shuffled = y.copy()
    train = np.isin(y, np.unique(split.y_train))
    shuffled[train] = np.random.default_rng(0).permutation(shuffled[train])
    one, two = (
        compare(X, labels, 4, train=train, seeds=(0,), methods=("pca", "rpml", "lda"))
        for labels in (y, shuffled)
    )
    for a, b in zip(one.cells, two.cells, strict=True):
        assert np.array_equal(a["ranks"], b["ranks"]) == (a["method"] != "lda")


def test_intervals_are_computed_once(data, monkeypatch):
    result = compare(*data, 5, methods=("raw", "pca"), seeds=(0,))
    count = []
    monkeypatch.setattr(comparison, "interval", lambda *a: count.append(a) or interval(*a))
    for _ in range(3):
        result.markdown()
    assert len(count) == 2 * (1 + len(KS))  # neighbors kept and each Recall@K, per method


def test_a_method_of_ones_own_is_compared(data):
    own = Method(
        "columns", "two columns", lambda size, seed: FunctionTransformer(lambda X: X[:, :2])
    )
    result = compare(*data, 5, methods=("pca", own), seeds=(0,))
    assert [row["title"] for row in result.rows] == ["PCA", "two columns"]


def test_split_by_class(data):
    split = make_split(*data)
    assert not set(split.y_train) & set(split.y_test)
    assert len(split.X_train) + len(split.X_test) == len(data[0])


def test_scores_are_those_of_the_metrics(data):
    found = compare(*data, 4, methods=("pca",), seeds=(0,))
    split = make_split(*data)
    Z = METHODS["pca"].build(4, 0).fit(split.X_train).transform(split.X_test)
    (row,) = found.rows
    for k, value in recall_at_k(Z, split.y_test).items():
        assert row[f"recall@{k}"] == pytest.approx(value)
        assert found.hits("pca", 4, k).mean() == pytest.approx(value)


def test_every_method_is_averaged_over_the_same_seeds(data):
    found = compare(*data, (3, 4), methods=FAST, seeds=(0, 1, 2))
    rows = {(row["method"], row["asked"]): row for row in found.rows}
    assert {row["seeds"] for row in rows.values()} == {3}
    assert (
        len({c["recall@1"] for c in found.cells if c["method"] == "pca" and c["asked"] == 3}) == 1
    )
    own = [c["recall@1"] for c in found.cells if c["method"] == "random" and c["asked"] == 3]
    assert rows["random", 3]["recall@1"] == pytest.approx(np.mean(own))


def test_differences_are_paired(data):
    found = compare(*data, 4, methods=FAST, seeds=(0, 1))
    same = found.difference("pca", "pca", 4)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    gain = found.difference("raw", "pca", 4)
    assert gain.low <= gain.value <= gain.high
    rows = {row["method"]: row for row in found.rows}
    assert gain.value == pytest.approx(rows["raw"]["recall@1"] - rows["pca"]["recall@1"])


def test_only_random_methods_are_fitted_once_per_seed(data):
    fits = []

    def build(n_components, seed):
        fits.append((n_components, seed))
        return METHODS["pca"].build(n_components, seed)

    for is_random, seeds in ((False, [5]), (True, [5, 6])):
        method = Method("mine", "mine", build, is_random=is_random)
        table = compare(*data, [2, 3], methods=[method], seeds=(5, 6))
        assert fits == [(dim, seed) for dim in (2, 3) for seed in seeds]
        assert [(c["asked"], c["seed"]) for c in table.cells] == [(2, 5), (2, 6), (3, 5), (3, 6)]
        fits.clear()


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_are_not_random_ignore_the_seed(data, name):
    X, y = data
    one, other = (METHODS[name].fit(X, y, 3, seed)[0].transform(X) for seed in (0, 1))
    assert METHODS[name].is_random or np.array_equal(one, other)


def test_without_labels(data):
    found = compare(data[0], None, 4, methods=("raw", "pca"), seeds=(0,))
    assert "recall@1" not in found.rows[0]
    assert found.rows[0]["neighbors_kept"] == 1
    with pytest.raises(ValueError, match="they learn from labels"):
        compare(data[0], None, 4, methods=("lda",))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"seeds": ()}, "at least one number of components and one seed"),
        ({"n_components": []}, "at least one number of components and one seed"),
        ({"y": "unique"}, "No class of y has two test rows"),
    ],
)
def test_nothing_to_measure_is_said(data, more, message):
    X, y = data
    if "y" in more:
        more, y = {}, np.arange(len(X))
    with pytest.raises(ValueError, match=message):
        compare(X, y, **{"n_components": 4, "methods": ("pca",), **more})


def test_frame_and_files(data, tmp_path):
    pytest.importorskip("pandas")
    found = compare(*data, 4, methods=FAST, seeds=(0,))
    frame = found.frame()
    assert list(frame["method"]) == list(FAST)
    for name in ("t.csv", "t.json", "t.md"):
        found.write(tmp_path / name)
    assert json.loads((tmp_path / "t.json").read_text())[1]["method"] == "pca"
    assert (tmp_path / "t.csv").read_text().count("\n") == 5
    assert (tmp_path / "t.md").read_text().startswith("| method")
    assert "random projection" in str(found)
    with pytest.raises(ValueError, match="must end in"):
        found.write(tmp_path / "t.txt")


def test_a_method_that_refuses_is_a_row_with_its_reason():
    X, y = blobs(classes=6, per_class=8, d=12)
    X[:, 4:] = 0
    found = compare(X, y, 8, methods=("raw", "pca"), seeds=(0,))
    assert "rank" in found.rows[1]["error"]
    assert "–" in found.markdown()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n_components": 99}, "n_components=99"),
        ({"n_components": "many"}, "n_components='many' must be an integer"),
        ({"methods": "umap"}, "there is no method 'umap'"),
        ({"methods": ("umap",)}, "there is no method 'umap'"),
        ({"train": np.ones(120, bool)}, "both sides"),
        ({"train": np.ones(3, bool)}, "for each of the 120 rows"),
        ({"y": np.zeros(120)}, "1 class,"),
        ({"y": np.zeros(7)}, "one class for each"),
    ],
)
def test_wrong_arguments(data, change, sentence):
    given = {"X": data[0], "y": data[1], "n_components": 4, **change}
    with pytest.raises(ValueError, match=sentence):
        compare(**given)


def test_the_row_of_a_nan_is_that_of_the_user(data):
    X = data[0].copy()
    X[77, 2] = np.nan
    with pytest.raises(ValueError, match="X contains NaN at row 77, column 2"):
        compare(X, n_components=4)


def test_public_name():
    # importing a module must not hide the function: that is why it is not rpml/compare.py
    assert rpml.compare is compare
    assert set(COMPARED_METHODS) <= set(METHODS)
