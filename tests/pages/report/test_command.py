"""rpml report from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rpml.evaluation.metrics import recall_at_k
from tests.cli.conftest import Run
from tests.drawings import Sample

rpml = Run()


def test_writes_one_page(sample: Sample, tmp_path: Path) -> None:
    folder, out = sample.folder, tmp_path / "report.html"
    arguments = ["report", folder / "model.rpml", folder / "features.npy", "-o", out]
    arguments += ["--labels", folder / "labels.txt", "--ids", folder / "ids.txt"]
    fields = json.loads(rpml(*arguments, "--images", sample.images, "--json", "-q").stdout)
    assert fields == {"output": str(out), "rows": 300, "bytes": out.stat().st_size, "warnings": []}
    assert list(tmp_path.iterdir()) == [out]
    assert "exists" in rpml.refused(*arguments)
    rpml(*arguments, "--force", "--quiet")


def test_two_models_on_one_page(sample: Sample, tmp_path: Path) -> None:
    old, new, out = sample.folder / "model.rpml", tmp_path / "model.rpml", tmp_path / "r.html"
    new.write_bytes(old.read_bytes())
    features, labels = sample.folder / "features.npy", sample.folder / "labels.txt"
    rpml("report", old, new, features, "--labels", labels, "-o", out, "-q")
    page = out.read_text(encoding="utf8")
    assert f"{old} and {new} have 100.0% of the 10 nearest neighbors in common" in page
    said = rpml.refused("report", old, new, old, features, "-o", tmp_path / "s.html")
    assert "at most two models" in said


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--images", "nowhere"], "no such folder"),
        (["--ids", "nowhere.txt"], "there is no such file"),
        (["--labels", "nowhere.npy"], "there is no such file"),
        (["--texts", "nowhere.txt"], "cannot read nowhere.txt: there is no such file"),
    ],
)
def test_wrong_input_is_one_sentence(
    sample: Sample, tmp_path: Path, extra: list[str], sentence: str
) -> None:
    model, features = sample.folder / "model.rpml", sample.folder / "features.npy"
    said = rpml.refused("report", model, features, "-o", tmp_path / "r.html", *extra)
    assert sentence in said
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_is_named(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    model, features = sample.folder / "model.rpml", sample.folder / "features.npy"
    said = rpml.refused("report", model, features, "-o", tmp_path / "r.html")
    assert "rpml[report]" in said


PARTIAL = ["empty cells", "minus one", "only the labeled rows"]


@pytest.mark.parametrize("kind", PARTIAL)
def test_partial_labels_are_judged_on_the_labeled_rows(
    sample: Sample, tmp_path: Path, kind: str
) -> None:
    missing = {"empty cells": "", "minus one": "-1"}.get(kind)
    chosen = range(0, 300, 3)
    lines = ["id,label"]
    for i, name in enumerate(sample.ids):
        if i in chosen or missing is not None:
            lines.append(f"{name},{sample.labels[i] if i in chosen else missing}")
    labels, out = tmp_path / "labels.csv", tmp_path / "report.html"
    labels.write_text("\n".join(lines) + "\n", encoding="utf8")
    folder = sample.folder
    arguments = ["report", folder / "model.rpml", folder / "features.npy", "-o", out]
    rpml(*arguments, "--ids", folder / "ids.txt", "--labels", labels, "-q")
    page = out.read_text(encoding="utf8")
    assert "the 100 labeled items among 300 items" in page
    assert "100 of 300 items have a label" in page
    rows = np.array(chosen)
    expected = recall_at_k(
        sample.model.transform(sample.X)[rows], np.array(sample.labels)[rows], ks=(1,)
    )
    assert f"RPML {100 * expected[1]:.1f}%" in page


def test_a_label_column_of_the_features_is_enough(sample: Sample, tmp_path: Path) -> None:
    table, out = tmp_path / "table.csv", tmp_path / "report.html"
    columns = [f"x{i}" for i in range(sample.X.shape[1])]
    lines = [",".join([*columns, "kind"])]
    lines += [
        ",".join([*map(str, row.tolist()), label])
        for row, label in zip(sample.X, sample.labels, strict=True)
    ]
    table.write_text("\n".join(lines) + "\n", encoding="utf8")
    model = sample.folder / "model.rpml"
    rpml("report", model, table, "--label-column", "kind", "-o", out, "-q")
    assert "Recall@1" in out.read_text(encoding="utf8")
    features = sample.folder / "features.npy"
    said = rpml.refused("report", model, features, "--label-column", "kind", "-o", out, "--force")
    assert "has no columns; give a file of labels with --labels" in said


def test_labels_that_are_all_missing_are_refused(sample: Sample, tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.full(300, -1))
    model, features = sample.folder / "model.rpml", sample.folder / "features.npy"
    out = tmp_path / "r.html"
    said = rpml.refused("report", model, features, "--labels", tmp_path / "y.npy", "-o", out)
    assert "no row has a label" in said
    assert not out.exists()
