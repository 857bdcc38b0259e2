"""The second demonstration: its data, its table, its examples."""

from __future__ import annotations

import json
from importlib.resources import files

import numpy as np
import pytest

from rpml import RPML
from rpml.io.datasets.solutions import load_solutions
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
        assert set(part.language) == set(range(1, 13))
        pairs = set(zip(part.problem.tolist(), part.language.tolist(), strict=True))
        assert len(pairs) == len(part)


@pytest.mark.parametrize(
    ("name", "owner"), [("solutions_demo", "neetcode-gh"), ("omniglot_demo", "Brenden Lake")]
)
def test_data_is_small_and_its_license_stands_beside_it(name, owner):
    folder = files("rpml.io.datasets")
    assert len((folder / f"{name}.npz").read_bytes()) < 2 * 2**20
    license_text = (folder / f"{name}.LICENSE.txt").read_text(encoding="utf8")
    assert owner in license_text
    assert "MIT License" in license_text


def test_learning_finds_the_problem_and_not_the_language(result):
    recall = {row.method: row.recall[1] for row in result.rows}
    assert [row.dim for row in result.rows] == [384] + [demo.CODE_SIZE] * 5
    assert recall[LEARNED] > recall["raw features"] + 0.05 > recall["PCA"] + 0.2
    assert result.verdict.startswith("RPML helped")


def test_examples_name_a_right_neighbor_for_every_query(result):
    lines = result.examples.splitlines()
    assert len(lines) == 3 * 4
    for query, before, after in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        problem = query.removeprefix("Nearest to ").split(" in language")[0]
        assert before.split()[0] == "PCA"
        assert after.split()[0] == LEARNED
        assert before.count("(") == after.count("(") == 5
        assert f"{problem} (" in after
    assert result.examples in text(result)


def test_files_are_written_and_can_be_read(result):
    assert result.picture is None
    stored = json.loads(result.table.read_text(encoding="utf8"))
    assert stored["examples"] == result.examples
    check_fields("demo", {**stored, "warnings": []})
    model = RPML.load(result.model)
    assert np.shape(model.components_)[0] == demo.CODE_SIZE
