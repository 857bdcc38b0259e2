"""cluster, evaluate, inspect, recommend, and what all commands share."""

import errno
import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numba.core.codegen
import numpy as np
import pytest

from rpml import RPML, AuthorityAscentShift, recommend
from rpml import __version__ as version
from rpml.cli.app import GROUPS, app
from rpml.cli.command import exit_code, sentence
from rpml.evaluation.metrics import clustering_scores, recall_at_k
from tests.cli.json_schema import documented
from tests.labels import read_labels
from tests.languages import translations

COMMANDS = [c.name for c in app.registered_commands]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_in_its_help(rpml, name):
    text = rpml(name, "--help").stdout
    assert "Examples:" in text
    assert f"rpml {name}" in text.split("Examples:")[1]


def test_the_fixed_set_of_commands():
    expected = {"fit", "embed", "cluster", "evaluate", "compare", "inspect", "recommend", "export"}
    assert expected | {"demo"} <= set(COMMANDS)


def test_the_help_shows_commands_in_groups(rpml):
    text = rpml("--help").stdout
    places = [text.index(f"\n{title}:\n") for title in GROUPS]
    assert places == sorted(places)
    for names, start, end in zip(GROUPS.values(), places, [*places[1:], len(text)], strict=True):
        listed = re.findall(r"^  (\w+)  +\S", text[start:end], re.MULTILINE)
        assert listed == list(names)


def test_help_imports_nothing_heavy():
    """What makes `rpml --help` instant; the time itself is not asserted."""
    code = (
        "import sys, rpml.cli.app\n"
        "heavy = {'numpy', 'scipy', 'sklearn', 'numba', 'rich', 'torch', 'faiss', 'pyarrow',"
        " 'pandas', 'onnx', 'onnxruntime', 'safetensors', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_completion(rpml, monkeypatch):
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("bash", "/bin/bash"))
    assert "rpml" in rpml("--show-completion").stdout


def test_wrong_usage(rpml):
    rpml("fit", code=2)
    rpml("no-such-command", code=2)
    rpml("embed", "--no-such-option", code=2)


WRONG_WORDS = {
    "update m.rpml x.npy": "Missing option",
    "fit x.npy -o m.rpml --dim many": "--dim",
    "embed m.rpml x.npy -o z.npy --no-such-option": "No such option",
    "inspect m.rpml x.npy": "unexpected extra argument",
    "no-such-command x.npy": "No such command 'no-such-command'",
    "--no-such-option fit": "No such option",
    "-- --no-such-command": "No such option",
}


@pytest.mark.parametrize("words", WRONG_WORDS)
def test_wrong_usage_is_an_object_too(rpml, words):
    fields = rpml.json(*words.split(), code=2)
    assert fields["exit_code"] == 2
    assert WRONG_WORDS[words] in fields["error"]
    assert rpml(*words.split(), code=2).stdout == ""


def test_the_list_of_commands_fits_a_terminal(rpml):
    listed = rpml("--help", env={"COLUMNS": "80"}).stdout.split("Learn:")[1].split("A first")[0]
    assert "..." not in listed


def test_cluster(rpml, shared, vectors, tmp_path):
    fields = rpml.json("cluster", shared / "x.npy", "-o", tmp_path / "c.csv", "--neighbors", 15)
    expected = AuthorityAscentShift(15).fit_predict(vectors[0])
    labels = read_labels(tmp_path / "c.csv", 240)
    assert labels.tolist() == expected.tolist()
    assert fields["clusters"] == len(set(expected.tolist()))


def test_cluster_takes_every_setting_by_its_name(rpml, shared, tmp_path):
    run = ("cluster", shared / "x.npy")
    rpml(*run, "-o", tmp_path / "a.csv", "--set", "n_neighbors=15")
    rpml("cluster", shared / "x.npy", "-o", tmp_path / "b.csv", "--neighbors", 15)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    told = rpml.refused(*run, "-o", tmp_path / "c.csv", "-q", "--set", "n_neighbors=few")
    assert "--neighbors must be an integer" in told
    twice = ("--neighbors", 9, "--set", "n_neighbors=15")
    told = rpml.refused(*run, "-o", tmp_path / "c.csv", "-q", *twice)
    assert "--neighbors sets the same" in told


def test_estimate_refuses_a_setting_given_twice(rpml):
    run = ("fit", "--dry-run", "200x8", "--dim", 3)
    assert "--dim sets the same" in rpml.refused(*run, "--set", "n_components=2")


def test_cluster_by_number_and_as_printed(rpml, shared, vectors, tmp_path):
    run = ("cluster", shared / "x.npy", "-o", tmp_path / "c.csv", "--neighbors", 15)
    fields = rpml.json(*run, "--clusters", 3, "--min-cluster-size", 20)
    sizes = np.bincount(read_labels(tmp_path / "c.csv", 240))
    assert fields["clusters"] == len(sizes) == 3
    assert sizes.min() >= 20
    rpml.json(*run, "--set", "merge=none", "--force")
    expected = AuthorityAscentShift(15, merge=None).fit_predict(vectors[0])
    assert read_labels(tmp_path / "c.csv", 240).tolist() == expected.tolist()
    said = rpml.refused(*run, "--set", "merge=none", "--clusters", 3, "--force")
    assert "use --set merge=average" in said


def test_cluster_with_a_wrong_threshold(rpml, shared, tmp_path):
    said = rpml.refused(
        "cluster", shared / "x.npy", "-o", tmp_path / "c.csv", "--set", "epsilon=big"
    )
    assert "--set epsilon must be" in said


def test_evaluate_is_what_the_metrics_say(rpml, shared, vectors):
    X, y = vectors
    fields = rpml.json("evaluate", shared / "x.npy", "--labels", shared / "y.npy", "--k", "1,3")
    expected = recall_at_k(X, y, ks=(1, 3))
    assert (fields["recall@1"], fields["recall@3"]) == (expected[1], expected[3])
    assert fields["recall@1_low"] < fields["recall@1"] < fields["recall@1_high"] < 1
    assert fields["nmi"] == clustering_scores(X, y, random_state=0)["nmi"]
    assert fields["classes"] == 8


def test_evaluate_finds_the_labels_beside_the_vectors(rpml, shared, vectors, tmp_path):
    X, y = vectors
    np.savez(tmp_path / "both.npz", X=X, y=y)
    words = ("evaluate", tmp_path / "both.npz", "--no-clustering")
    apart = rpml.json("evaluate", shared / "x.npy", "--labels", shared / "y.npy", "--no-clustering")
    assert rpml.json(*words, "--label-column", "y") == apart
    assert "--label-column NAME" in rpml.refused(*words)


def test_evaluate_counts_labeled_rows_only(rpml, shared, vectors, tmp_path):
    X, y = vectors
    part = np.where(np.arange(len(y)) % 3 == 0, -1, y)
    np.save(tmp_path / "part.npy", part)
    fields = rpml.json("evaluate", shared / "x.npy", "--labels", tmp_path / "part.npy", "--k", "1")
    rows = np.flatnonzero(part >= 0)
    assert fields["rows"] == len(rows)
    assert fields["unlabeled"] == len(y) - len(rows)
    assert fields["recall@1"] == pytest.approx(recall_at_k(X[rows], y[rows], ks=(1,))[1])


def test_json_has_the_warnings_that_quiet_hides(rpml, shared, tmp_path):
    np.save(tmp_path / "one.npy", np.zeros(240, int))
    args = ("evaluate", shared / "x.npy", "--labels", tmp_path / "one.npy", "--no-clustering")
    fields = rpml.json(*args, "-q")
    assert len(fields["warnings"]) == 1
    assert "all rows are of one class" in fields["warnings"][0]
    usual = rpml.json("evaluate", shared / "x.npy", "--labels", shared / "y.npy", "-q")
    assert usual["warnings"] == []


def test_evaluate_a_model(rpml, shared, vectors):
    X, y = vectors
    args = ["evaluate", shared / "x.npy", "--labels", shared / "y.npy"]
    fields = rpml.json(*args, "--model", shared / "model.rpml", "--no-clustering")
    Z = RPML.load(shared / "model.rpml").transform(X)
    assert fields["recall@1"] == recall_at_k(Z, y)[1]
    assert fields["dim"] == 4
    assert "nmi" not in fields
    text = rpml(*args, "--model", shared / "model.rpml").stdout
    assert "R@1" in text


def test_evaluate_labels_in_the_same_table(rpml, vectors, tmp_path):
    X, y = vectors
    lines = ["id,species," + ",".join(f"f{i}" for i in range(12))]
    lines += [f"{i},class {y[i]}," + ",".join(map(str, row)) for i, row in enumerate(X)]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    path = tmp_path / "x.csv"
    fields = rpml.json("evaluate", path, "--labels", path, "--label-column", "species")
    assert fields["dim"] == 12
    assert fields["recall@1"] == recall_at_k(X, y)[1]


@pytest.mark.parametrize("k", ["0", "a", ""])
def test_evaluate_wrong_k(rpml, shared, k):
    said = rpml.refused("evaluate", shared / "x.npy", "--labels", shared / "y.npy", "--k", k)
    assert "--k must be positive integers" in said


def test_inspect_model(rpml, shared, tmp_path):
    fields = rpml.json("inspect", shared / "model.rpml")
    assert fields["kind"] == "model"
    assert (fields["features"], fields["dim"]) == (12, 4)
    assert fields["training"]["n_rows"] == 240
    assert fields["trained_on"] == "x.npy"
    assert sum(array["share"] for array in fields["arrays"].values()) == pytest.approx(1)
    assert fields["arrays"]["exemplar_vectors"]["shape"][1] == 12
    assert "exemplar_vectors" in rpml("inspect", shared / "model.rpml").stdout
    shown = rpml("inspect", shared / "model.rpml").stdout
    assert "outcome: " in shown
    assert "n_neighbors=10," in shown
    assert "None" not in shown.split("settings:")[0]
    assert max(map(len, shown.splitlines())) <= 100 + len(str(shared))
    fitted = rpml.json("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 4)
    assert fitted["outcome"] == rpml.json("inspect", tmp_path / "m.rpml")["outcome"] == "PCA"
    assert fitted["loss"] is fitted["clusters"] is fitted["triplets"] is None
    always = ("--set", "training=always", "--force")
    fitted = rpml.json("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 4, *always)
    assert rpml.json("inspect", tmp_path / "m.rpml")["loss"]["last"] == fitted["loss"] < 1


def test_inspect_features_counts_what_a_fit_would_refuse(rpml, tmp_path):
    X = np.ones((5, 3))
    X[1] = 0
    X[2, 1] = np.nan
    np.save(tmp_path / "x.npy", X)
    fields = rpml.json("inspect", tmp_path / "x.npy")
    assert fields["rows"] == 5
    assert fields["not_finite"] == 1
    assert "row 2, column 1" in fields["first_not_finite"]
    assert fields["zero_rows"] == 1
    np.save(tmp_path / "x.npy", np.ones((5, 3)))
    assert rpml.json("inspect", tmp_path / "x.npy")["constant_columns"] == 3


def test_version(rpml):
    assert rpml("--version").stdout == f"rpml {version}\n"
    assert "Missing command" in rpml("--verbose", code=2).stderr
    fields = rpml.json("--version", "--verbose")
    assert fields["packages"]["numpy"] == np.__version__
    assert fields["extras"]["parquet"]["install"] is None
    text = rpml("--version", "--verbose").stdout
    assert "extra" in text


def test_errors_as_json(rpml, tmp_path):
    result = rpml("inspect", tmp_path / "absent.npy", "--json", code=2)
    assert json.loads(result.stdout)["exit_code"] == 2


def test_estimate(rpml, shared):
    fields = rpml.json("fit", shared / "x.npy", "--dim", 4, "--dry-run")
    assert (fields["rows"], fields["features"]) == (240, 12)
    assert fields["memory_gb"] > 0.1
    assert fields["seconds"] > 0
    assert fields["seconds"] == pytest.approx(sum(fields["stages"].values()), abs=0.01)
    assert " GB (this machine has " in rpml("fit", "200x8", "--dim", 3, "--dry-run").stdout


def test_a_dry_run_writes_nothing_and_a_fit_needs_an_output(rpml, shared, tmp_path):
    rpml("fit", shared / "x.npy", "--dim", 4, "--dry-run", "-o", tmp_path / "m.rpml")
    assert list(tmp_path.iterdir()) == []
    assert "with -o MODEL, or --dry-run" in rpml.refused("fit", shared / "x.npy")
    assert "at least two rows" in rpml.refused("fit", "1x8", "--dry-run")
    assert "cannot read 7by8" in rpml.refused("fit", "7by8", "--dry-run")


def test_estimate_of_a_size_that_no_fit_would_take(rpml):
    told = rpml.refused("fit", "200x8", "--dim", 9, "--dry-run")
    assert "--dim 9 must not exceed the 8 features" in told


def test_compare(rpml, shared, tmp_path):
    args = ["compare", shared / "x.npy", "--labels", shared / "y.npy", "--dim", 4, "--seeds", 1]
    result = rpml(*args, "--methods", "raw,pca,rpml", "-o", tmp_path / "table.csv")
    assert "pca, 4 dimensions, seed 0" in result.stderr
    assert "vs PCA" in result.stdout
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["method", "raw", "pca", "rpml"]
    fields = rpml.json(*args, "--methods", "raw,pca")
    assert [row["method"] for row in fields["measured"]] == ["raw", "pca"]
    assert "--force" in rpml.refused(*args, "-o", tmp_path / "table.csv")


def test_the_json_of_every_command_is_documented():
    assert set(documented()) == {*COMMANDS, "fit --dry-run", "--version --verbose"}
    assert all(documented().values())


def test_the_json_of_the_others_is_as_documented(rpml, shared, tmp_path):
    model, x = shared / "model.rpml", shared / "x.npy"
    rpml.json("export", model, "--to", "numpy", "-o", tmp_path / "m.npz")
    rpml.json("index", model, x, "-o", tmp_path / "x.index")
    rpml.json("report", model, x, "-o", tmp_path / "report.html")
    rpml.json("embed", model, x, "-o", tmp_path / "z.npy")
    rpml.json("cluster", x, "-o", tmp_path / "c.csv")
    rpml.json("recommend", x, "--dim", 4)


def test_recommend_ends_with_the_next_step(rpml, shared):
    fields = rpml.json("recommend", shared / "x.npy", "--labels", shared / "y.npy", "--dim", 4)
    assert fields["uses_labels"]
    text = rpml("recommend", shared / "x.npy", "--dim", 4).stdout
    assert text.splitlines()[-1].startswith("Next: ")


@pytest.mark.parametrize("command", ["recommend", "compare"])
def test_the_next_step_can_be_pasted(command, rpml, vectors, tmp_path, monkeypatch):
    """It reads the same columns as the command that named it, and no label becomes a feature."""
    monkeypatch.chdir(tmp_path)
    X, y = vectors
    head = ["name", *(f"v{i}" for i in range(X.shape[1])), "kind"]
    rows = ([f"r{i}", *row, y[i]] for i, row in enumerate(X.tolist()))
    lines = [",".join(map(str, row)) for row in (head, *rows)]
    Path("my rows.csv").write_text("\n".join(lines), encoding="utf8")
    reading = ("--id-column", "name", "--label-column", "kind", "--dim", 4)
    text = rpml(command, "my rows.csv", *reading).stdout.strip()
    words = shlex.split(text[text.index("Next: ") :])[1:]
    assert words[:2] == ["rpml", "fit"]
    fields = rpml.json(*words[1:])
    assert (fields["output"], fields["features"]) == ("model.rpml", X.shape[1])


def test_bytes_choose_the_dimensions_and_the_code(rpml, shared, tmp_path):
    x, y, model = shared / "x.npy", shared / "y.npy", tmp_path / "small.rpml"
    fields = rpml.json("recommend", x, "--bytes", 4)
    assert (fields["bytes"], fields["output"]) == (4, "pq")
    text = rpml("recommend", x, "--keep", 0.5, "--labels", y).stdout
    assert text.splitlines()[-1].startswith(f"Next: rpml fit {x} --bytes ")
    fitted = rpml.json("fit", x, "--bytes", 4, "-o", model)
    assert (fitted["dim"], fitted["codes"]) == (fields["n_components"], "pq")
    rpml("embed", model, x, "-o", tmp_path / "codes.npy", "--codes", "pq")
    assert np.load(tmp_path / "codes.npy").shape == (240, 4)
    shorter = ["index", model, x, "-o", tmp_path / "x.index", "--codes", "pq", "--dim", 2]
    assert "no codebooks at this size" in rpml.refused(*shorter)
    assert "leave out --dim" in rpml.refused("recommend", x, "--bytes", 4, "--dim", 4)
    for own in ("--dim 4", "--set n_components=4", "--set center=1"):
        refused = rpml.refused("fit", x, "--bytes", 4, *own.split(), "-o", tmp_path / "m.rpml")
        assert f"--bytes does not go with {own.split('=')[0].removesuffix(' 4')}" in refused
    assert "No code of 900 bytes fits" in rpml.refused("recommend", x, "--bytes", 900)


def test_the_command_and_python_fit_the_same_codes(rpml, shared, tmp_path):
    X, model = np.load(shared / "x.npy"), tmp_path / "small.rpml"
    rpml("fit", shared / "x.npy", "--bytes", 4, "--seed", 5, "-o", model)
    here = recommend(X, bytes=4, random_state=5).fit(X).transform(X, output="pq")
    np.testing.assert_array_equal(RPML.load(model).transform(X, output="pq"), here)


def test_bytes_are_spent_with_what_is_known(rpml, tmp_path):
    X, _, language = translations()
    x, v, q = (tmp_path / name for name in ("x.npy", "v.npy", "q.npy"))
    np.save(x, X.astype(np.float32))
    np.save(v, language)
    np.save(q, X[::5].astype(np.float32) + 2)
    for known in (["--nuisance", v], ["--queries", q]):
        text = rpml("recommend", x, "--bytes", 8, *known).stdout
        assert f"--bytes 8 {known[0]} {known[1]} -o" in text
        advised = rpml.json("recommend", x, "--bytes", 8, *known)
        model = tmp_path / f"m{known[0]}.rpml"
        fitted = rpml.json("fit", x, "--bytes", 8, *known, "-o", model)
        assert (fitted["dim"], fitted["codes"]) == (advised["n_components"], advised["output"])
        assert RPML.load(model).transform(X[:2], output=fitted["codes"]).shape == (2, 8)


def test_a_deleted_current_folder_is_named(rpml, tmp_path, shared, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "current folder" in rpml.refused("fit", shared / "x.npy", "-o", "m.rpml", "-q")


def test_ctrl_c_while_numba_compiles_is_an_interruption():
    error = RuntimeError("no compiled object yet for <Library 'f' at 0x7f>")
    assert "no compiled object yet" in inspect.getsource(numba.core.codegen)
    assert (exit_code(error), sentence(error)) == (130, "interrupted")


def test_a_read_only_file_system_is_a_mistake_of_the_user():
    error = OSError(errno.EROFS, "Read-only file system", "figures")
    assert (exit_code(error), sentence(error)) == (2, "figures: Read-only file system")
