"""rpml report from the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.drawings import Sample

rpml = Run()


def test_writes_one_page(sample: Sample, tmp_path: Path) -> None:
    folder, out = sample.folder, tmp_path / "report.html"
    arguments = ["report", folder / "model.rpml", folder / "features.npy", "-o", out]
    arguments += ["--labels", folder / "labels.txt", "--ids", folder / "ids.txt"]
    fields = json.loads(rpml(*arguments, "--images", sample.images, "--json", "-q").stdout)
    assert fields == {"output": str(out), "rows": 300, "bytes": out.stat().st_size}
    assert list(tmp_path.iterdir()) == [out]
    assert "exists" in rpml.refused(*arguments)
    rpml(*arguments, "--force", "--quiet")


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--images", "nowhere"], "no such folder"),
        (["--ids", "nowhere.txt"], "there is no such file"),
        (["--labels", "nowhere.npy"], "there is no such file"),
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
