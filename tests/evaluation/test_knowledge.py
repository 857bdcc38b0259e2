"""A nuisance and queries in comparisons and recommendations."""

import numpy as np
import pytest

import rpml
from rpml.estimator.knowledge import fit_knowledge, known_subset, nuisance_values
from rpml.evaluation.metrics.retrieval import recall_across
from tests.languages import recalls, translations

NAMES = np.array(["de", "en", "fr", "tr"])


@pytest.fixture(scope="module")
def data():
    X, y, v = translations()
    return X.astype(np.float32), y, v


def test_the_nuisance_of_some_rows(data):
    X, _, v = data
    mixed = {"language": NAMES[v], "length": np.arange(len(X)) + 0.5}
    pandas = pytest.importorskip("pandas")
    known = known_subset(fit_knowledge(X, pandas.DataFrame(mixed)), np.arange(0, len(X), 2))
    assert list(known) == ["nuisance"]
    assert known["nuisance"].shape == (len(X) // 2, 2)
    assert len(np.unique(nuisance_values(known, len(X) // 2))) > 4
    with pytest.raises(ValueError, match="one value for all rows"):
        fit_knowledge(X, np.zeros(len(X), int))
    with pytest.raises(ValueError, match="queries must be rows of 48 columns"):
        fit_knowledge(X, None, X[:, :5])


def test_recall_across_values(data):
    X, y, v = data
    assert recall_across(X, y, v) == pytest.approx(recalls(X, y, v)[1])
    partly = np.where(np.arange(len(X)) % 5 == 0, -1, v)
    known = partly >= 0
    assert recall_across(X, y, partly) == recall_across(X[known], y[known], v[known])


def test_a_comparison_shows_the_fit_with_the_knowledge(data):
    X, y, v = data
    table = rpml.compare(X, y, 16, methods=("pca", "rpml"), seeds=(0,), nuisance=NAMES[v])
    rows = {row["method"]: row for row in table.rows}
    assert list(rows) == ["pca", "rpml", "rpml-known"]
    assert rows["rpml-known"]["recall@1"] > rows["rpml"]["recall@1"] + 0.1
    assert rows["rpml-known"]["recall@1 across"] > rows["pca"]["recall@1 across"]
    assert "R@1 across" in table.short_lines()[0]
    queries = rpml.compare(X, None, 16, methods=("pca",), seeds=(0,), queries=X[::5] + 2)
    assert [row["method"] for row in queries.rows] == ["pca", "rpml-known"]


def test_knowledge_that_the_evidence_supports_is_recommended(data):
    X, y, v = data
    found = rpml.recommend(X, 16, nuisance=NAMES[v])
    assert (found.choice, found.known) == ("rpml-known", ("nuisance",))
    assert found.next_step == "rpml.RPML(16).fit(X, nuisance=nuisance)"
    assert "share the nuisance" in str(found)
    assert len(found.separated) == 3
    assert all(v[a] == v[b] for a, b in found.separated)
    assert "Does their difference matter?" in str(found)
    labeled = rpml.recommend(X, 16, y=y, nuisance=NAMES[v], methods=("pca", "rpml"))
    assert (labeled.choice, labeled.known) == ("rpml-known", ("nuisance",))


def test_values_at_random_are_not_recommended(data):
    X, _, v = data
    shuffled = np.random.default_rng(0).permutation(v)
    found = rpml.recommend(X, 16, nuisance=shuffled, methods=("pca", "rpml"))
    assert found.known == ()
    assert "not used, because" in str(found)
    assert found.choice == rpml.recommend(X, 16, methods=("pca", "rpml")).choice


def test_bytes_with_a_nuisance(data):
    X, _, v = data
    size = rpml.recommend(X, bytes=4, nuisance=NAMES[v])
    usual = rpml.recommend(X, bytes=4)
    assert size.table[-1] == usual.table[-1]
    assert size.table[0]["neighbors_kept"] < usual.table[0]["neighbors_kept"]
    assert size.fit(X, nuisance=NAMES[v]).whitening_.nuisance.used
