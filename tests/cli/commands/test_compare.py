"""rpml compare: a table with labels, a verdict without, clear refusals."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from rpml import recommend
from rpml.cli.app import app
from rpml.runtime.intervals import Interval
from tests.problems import blobs


@pytest.fixture
def files(tmp_path):
    X, y = blobs(classes=8, per_class=12, d=16)
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    np.save(tmp_path / "y.npy", y)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, ["compare", *map(str, words)])


def test_table_and_verdict(files):
    out = files / "t.md"
    result = run(files / "x.npy", "--labels", files / "y.npy", "--dim", 4, "--seeds", 1,
                 "--methods", "raw,pca,lda", "-o", out)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "LDA (uses labels)" in result.stdout
    assert out.read_text().startswith("| method")
    again = run(files / "x.npy", "--methods", "pca", "-o", out)
    assert again.exit_code == 2


@pytest.mark.parametrize(
    ("methods", "scale", "why"),
    [
        ("pca,rpml", 0, "All 48 rows of the vectors are identical"),
        ("lda", 1, "All methods see the labels: compare one that does not."),
    ],
)
def test_nothing_to_recommend_is_one_sentence(files, methods, scale, why):
    np.save(files / "x.npy", scale * np.load(files / "x.npy"))
    result = run(files / "x.npy", "--labels", files / "y.npy", "--dim", 4, "--seeds", 1,
                 "--methods", methods, "--quiet")  # fmt: skip
    assert result.exit_code == 2, result.stderr
    assert result.stderr.startswith(f"rpml: {why}")


def test_the_reason_of_a_row_without_figures_is_printed(files):
    X = np.load(files / "x.npy")
    X[:, 8:] = X[:, :8]
    np.save(files / "x.npy", X)
    result = run(files / "x.npy", "--labels", files / "y.npy", "--dim", 12, "--seeds", 1,
                 "--methods", "raw,pca")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "PCA is not compared: n_components=12 does not suit PCA" in result.stderr


def test_without_labels_as_json(files):
    result = run(files / "x.npy", "--dim", 4, "--methods", "raw,pca", "--json", "-q")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert "recall@1" not in found["measured"][0]
    for row in found["measured"]:
        for name in ("neighbors_kept", "effective_rank", "hubness"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
    advice = recommend(np.load(files / "x.npy"), 4, methods=("raw", "pca"))
    assert found["verdict"]["choice"] == advice.choice
    assert found["verdict"]["reasons"] == list(advice.reasons)


def test_without_labels_the_verdict_is_about_the_fits_of_the_table(files, monkeypatch):
    """On half of the rows RPML is PCA here, on all of them it is not."""
    from rpml.evaluation import recommendation

    strong = SimpleNamespace(gain=Interval(0.3, 0.2, 0.4))
    monkeypatch.setattr(recommendation, "untrained_fit", lambda *_: (None, strong))
    X = np.random.default_rng(0).standard_normal((300, 20)).astype(np.float32)
    np.save(files / "noise.npy", X)
    result = run(files / "noise.npy", "--dim", 4, "--methods", "pca,rpml", "--seeds", 1, "--json")
    found = json.loads(result.stdout)
    pca, own = found["measured"]
    assert own["neighbors_kept"] == pca["neighbors_kept"]
    assert found["verdict"]["choice"] == "pca"
    assert "RPML itself is PCA here" in " ".join(found["verdict"]["reasons"])


def test_figures_without_labels_have_intervals(files, rpml):
    X, _ = blobs(classes=12, per_class=12, d=16)
    np.save(files / "more.npy", X.astype(np.float32))
    words = (files / "more.npy", "--dim", 4, "--methods", "raw,pca,half-whitened")
    found = rpml.json("compare", *words)["verdict"]
    for figure in (found["neighbors_kept"]["4"], found["evidence"]["half-whitened"]):
        assert figure["low"] < figure["value"] < figure["high"]
    shown = run(*words).stdout
    kept = found["neighbors_kept"]["4"]
    assert f"4 dimensions {kept['value']:.1%} ({100 * kept['low']:.1f} to " in shown.replace(
        "\n", " "
    )
    assert "±: half the width of the 95% interval" in shown
    assert "100.0 ±" not in shown  # raw features keep their neighbors by definition
    row = next(line for line in shown.splitlines() if line.startswith("PCA"))
    assert row.count("±") == 3  # neighbors kept, effective rank, hubness


def test_figures_with_labels_have_intervals_in_a_narrow_table(files, rpml):
    words = ("compare", files / "x.npy", "--labels", files / "y.npy", "--dim", 2, "--seeds", 2,
             "--methods", "pca,half-whitened")  # fmt: skip
    rows = rpml.json(*words)["measured"]
    for row in rows:
        for name in ("recall@1", "recall@8", "nmi", "neighbors_kept"):
            assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"]
    shown = rpml(*words, "-q").stdout.splitlines()
    assert " ".join(shown[0].split()) == "method dim R@1 vs PCA R@8 NMI kept seconds"
    assert max(len(line) for line in shown[:3]) <= 88
    nmi = rows[0]["nmi"], (rows[0]["nmi_high"] - rows[0]["nmi_low"]) / 2
    assert f"{100 * nmi[0]:.1f} ±{100 * nmi[1]:.1f}" in shown[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--methods", "umap"], "there is no method 'umap'"),
        (["--dim", "99"], "--dim 99 must be"),
        (["-o", "table.txt"], "must end in"),
    ],
)
def test_refusals(files, words, sentence):
    result = run(files / "x.npy", *words)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_only_labeled_rows_are_compared(files):
    y = np.load(files / "y.npy")
    y[::4] = -1
    np.save(files / "part.npy", y)
    words = (files / "x.npy", "--labels", files / "part.npy", "--dim", 4, "--methods", "pca")
    result = run(*words, "--seeds", 1)
    assert result.exit_code == 0, result.stderr
    assert "72 of 96 rows have a label" in result.stderr


def test_codes_by_bytes(rpml, shared, tmp_path):
    args = ["compare", shared / "x.npy", "--labels", shared / "y.npy", "--bytes", "2,4"]
    rows = rpml.json(*args, "--methods", "pca", "-o", tmp_path / "codes.md")["measured"]
    assert {row["method"] for row in rows} == {"raw", "pca"}
    assert rows[0]["bytes"] == 48
    for row in rows:
        assert row["neighbors_kept_low"] <= row["neighbors_kept"] <= row["neighbors_kept_high"]
        assert row["recall@1_low"] <= row["recall@1"] <= row["recall@1_high"]
    assert "| 4 | PCA | int8 | 4 |" in (tmp_path / "codes.md").read_text()
    assert "leave out --dim" in rpml.refused(*args, "--dim", 4)
    assert "--bytes must be positive integers" in rpml.refused(*args[:4], "--bytes", "8,x")
    assert "there is no method" in rpml.refused(*args, "--methods", "none", "-q")


def test_the_help_names_every_method():
    from rpml.cli.commands.compare import EXAMPLES
    from rpml.evaluation.registry import METHODS

    listed = EXAMPLES.partition("Methods: ")[2]
    assert set(re.findall(r"[a-z0-9-]+", listed)) - {"with", "labels", "and"} == set(METHODS)
