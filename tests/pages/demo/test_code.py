"""The second demonstration: its data, its table, its examples."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from rpml import RPML
from rpml.io.datasets.demos import load_solutions
from rpml.pages import demo
from rpml.pages.demo import LEARNED, run, text
from tests.cli.json_schema import check_fields


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return run(demo.demonstrate_code, tmp_path_factory.mktemp("demo") / "here")


def test_no_problem_is_on_both_sides_and_a_language_has_each_once():
    train, test = load_solutions()
    assert not set(train.problem) & set(test.problem)
    for part in (train, test):
        assert part.vectors.shape == (len(part), 384)
        assert len(set(part.language)) == 12
        assert {"cpp", "python", "typescript"} < set(part.language)
        assert part.titles.shape == part.vectors.shape
        for problem in list(set(part.problem))[:3]:  # one title per problem
            assert len(np.unique(part.titles[part.problem == problem], axis=0)) == 1
        pairs = set(zip(part.problem.tolist(), part.language.tolist(), strict=True))
        assert len(pairs) == len(part)


@pytest.mark.parametrize(
    ("name", "owner"), [("solutions_demo", "neetcode-gh"), ("omniglot_demo", "Brenden Lake")]
)
def test_each_file_of_data_has_its_license(name, owner):
    folder = files("rpml.io.datasets")
    assert (folder / f"{name}.npz").is_file()
    license_text = (folder / f"{name}.LICENSE.txt").read_text(encoding="utf8")
    assert owner in license_text
    assert "MIT License" in license_text


def test_the_data_that_ships_is_small():
    folder = files("rpml.io.datasets")
    stored = [f.read_bytes() for f in folder.iterdir() if f.name.endswith(".npz")]
    assert sum(map(len, stored)) < 2_000_000


def test_learning_finds_the_problem_and_not_the_language(result):
    recall = {row["method"]: row["recall@1"] for row in result["measured"]}
    assert [row["dim"] for row in result["measured"]] == [384] + [demo.CODE_SIZE] * 6
    assert recall[LEARNED] > recall["raw features"] + 0.05 > recall["PCA"] + 0.2
    assert result["verdict"].startswith("RPML helped")
    assert result["measured"][-1]["method"] == demo.KNOWN
    assert recall[demo.KNOWN] > recall[LEARNED]
    assert f"nuisance=language it reaches {100 * recall[demo.KNOWN]:.1f}" in result["verdict"]


def test_examples_name_a_right_neighbor_and_its_language_for_every_query(result):
    programs, _ = result["examples"].split("\n\n")
    lines = programs.splitlines()
    assert len(lines) == 3 * 4
    languages = set(load_solutions()[1].language)
    for query, before, after in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        problem, language = query.removeprefix("Nearest to ").removesuffix(":").split(" in ")
        assert before.split()[0] == "PCA"
        assert after.split()[0] == LEARNED
        for line in (before, after):
            named = re.findall(r"\((\w+)\)", line)
            assert len(named) == 5
            assert {language, *named} <= languages
        assert f"{problem} (" in after
    assert result["examples"] in text(result)


def test_titles_that_no_fit_has_seen_find_more_of_their_programs(result):
    assert list(result["ndcg"]) == ["raw features", "PCA", LEARNED, demo.WITH_TITLES]
    assert result["ndcg"][demo.WITH_TITLES] > result["ndcg"][LEARNED] + 0.005
    assert result["ndcg"][LEARNED] > result["ndcg"]["PCA"] + 0.08
    _, titles = result["examples"].split("\n\n")
    heading, figures, *lines = titles.splitlines()
    assert heading.startswith("138 titles of problems as queries for 2,661 programs")
    assert f"{demo.WITH_TITLES} {100 * result['ndcg'][demo.WITH_TITLES]:.1f}" in figures
    assert len(lines) == 3 * 3
    train, test = load_solutions()
    known, new = (
        {p.replace("-", " ").capitalize() for p in part.problem} for part in (train, test)
    )
    for query, before, after in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        title = query.removeprefix("Programs nearest to the title '").removesuffix("':")
        assert title in new - known
        assert before.split()[0] == "PCA"
        assert after.strip().startswith(demo.WITH_TITLES)


def test_files_are_written_and_can_be_read(result):
    assert result["picture"] is None
    stored = json.loads(Path(result["table"]).read_text(encoding="utf8"))
    assert stored["examples"] == result["examples"]
    check_fields("demo", {**stored, "warnings": []})
    model = RPML.load(result["model"])
    assert np.shape(model.components_)[0] == demo.CODE_SIZE
