"""The report's section about a nuisance."""

import warnings

import numpy as np
import pandas as pd
import pytest

import rpml
from rpml.pages.explorer.answers import Answers, RequestError
from rpml.pages.explorer.catalog import make_catalog
from rpml.pages.items import make_items
from rpml.pages.report.sections.items import shared
from tests.cli.conftest import Run
from tests.languages import translations

NAMES = np.array(["de", "en", "fr", "tr"])


@pytest.fixture(scope="module")
def fitted():
    X, _, v = translations()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rpml.RPML(16, random_state=0).fit(X, nuisance=NAMES[v]), X, NAMES[v]


def test_the_section_has_shares_evidence_and_pairs(fitted):
    model, X, values = fitted
    page = rpml.report(model, X, nuisance=values).html
    section = page[page.index('id="knowledge"') :]
    assert "3 directions removed" in section
    assert "have the value of their nearest neighbor by the" in section
    assert "does their difference matter?" in section
    assert '"nuisance":' in page  # a color of the maps


def test_without_a_nuisance_only_turned_axes_have_a_section(fitted):
    _, X, _ = fitted
    turned = rpml.report(rpml.RPML(16, random_state=0, whiten=0.5, max_iter=0).fit(X), X).html
    assert "does their difference matter?" in turned
    pca = rpml.RPML(16, random_state=0, whiten=0, max_iter=0).fit(X)
    assert 'id="knowledge"' not in rpml.report(pca, X).html


def test_shares_of_items_with_a_value():
    before = np.array([[1], [0], [3], [2]])
    assert shared(before, np.array(["a", "b", "a", ""])) == 0
    assert shared(before, np.array(["a", "a", "b", "a"])) == pytest.approx(0.75 - 0.25)


def test_the_command_takes_a_file_or_a_column(fitted, tmp_path):
    model, X, values = fitted
    command, out = Run(), tmp_path / "r.html"
    model.save(tmp_path / "m.rpml")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "v.npy", values)
    table = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    table.assign(language=values).to_csv(tmp_path / "x.csv", index=False)
    for features, given in (("x.npy", tmp_path / "v.npy"), ("x.csv", "language")):
        arguments = ["report", tmp_path / "m.rpml", tmp_path / features, "-o", out, "-q", "--force"]
        command(*arguments, "--nuisance", given)
        assert "by the raw features" in out.read_text().replace("\n", " ")
    said = command.refused(*arguments[:2], tmp_path / "x.npy", *arguments[3:], "--nuisance", "lang")
    assert "--nuisance lang: there is no such file" in said


def test_several_columns_and_queries(fitted, tmp_path):
    model, X, values = fitted
    lengths = np.linspace(0.5, 9.5, len(X))
    queries = X[::40] + 3 * np.random.default_rng(0).standard_normal((12, X.shape[1]))
    page = rpml.report(model, X, nuisance={"language": values, "length": lengths}, queries=queries)
    section = page.html[page.html.index('id="knowledge"') :]
    assert "Of 12 queries," in section
    assert "The nearest item of a query, before and now" in section
    assert "7.25 to 9.5" in page.html
    np.save(tmp_path / "q.npy", queries)
    model.save(tmp_path / "m.rpml")
    table = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    table.assign(language=values, length=lengths).to_csv(tmp_path / "x.csv", index=False)
    command, out = Run(), tmp_path / "r.html"
    arguments = ["report", tmp_path / "m.rpml", tmp_path / "x.csv", "-o", out, "-q"]
    command(*arguments, "--nuisance", "language,length", "--queries", tmp_path / "q.npy")
    assert '"length":' in out.read_text()
    np.save(tmp_path / "narrow.npy", X[:, :5])
    narrow = ["--columns", "f*", "--force", "--queries", tmp_path / "narrow.npy"]
    refused = command.refused(*arguments, *narrow)
    assert "narrow.npy has 5 columns" in refused


def test_the_explorer_finds_neighbors_across_values(fitted):
    model, X, values = fitted
    catalog = make_catalog(model, X, make_items(len(X), nuisance={"language": values}))
    answers = Answers(catalog)
    found = answers.neighbors({"row": "3", "k": "20", "space": "rpml", "across": "language"})
    rows = [item["row"] for item in found["items"]]
    assert len(rows) == 20
    assert all(values[row] != values[3] for row in rows)
    scores = model.transform(X) @ model.transform(X[3:4])[0]
    expected = [row for row in np.argsort(-scores).tolist() if values[row] != values[3]]
    assert rows == expected[:20]
    assert answers.about({})["nuisance"] == ["language"]
    with pytest.raises(RequestError, match="across must be one of"):
        answers.neighbors({"row": "3", "across": "color"})


def test_the_explorer_colors_by_the_nuisance(fitted):
    model, X, values = fitted
    catalog = make_catalog(model, X, make_items(len(X), nuisance=values))
    assert catalog.category_names[0] == "nuisance"
    assert set(catalog.category("nuisance")["names"]) == set(NAMES)
