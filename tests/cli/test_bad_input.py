"""Bad input from the shell: one sentence, exit code 2, nothing written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


def cases(folder):
    """name -> arguments after `rpml`, and a word the sentence must have."""
    X = np.random.default_rng(0).normal(size=(20, 4))
    files = {
        "ragged.csv": "1,2\n3\n",
        "text.csv": "id,a,b\n1,2,3\n2,x,3\n",
        "nan.csv": "a,b\n1,2\nnan,1\n",
        "twice.csv": "id,a,b\nu,1,2\nu,3,4\n",
        "empty.npy": "",
        "words.xlsx": "hello",
        "ok.csv": "a,b,c,d\n" + "\n".join("1,2,3,4" for _ in range(5)),
        "y.csv": "label\n1\n2\n",
        "fake.rpml": "not a model",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    np.save(folder / "x y é.npy", X)
    np.save(folder / "objects.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.save(folder / "same.npy", np.ones((9, 3)))
    np.save(folder / "one.npy", X[:1])
    out = ["-o", "out.rpml"]
    return {
        "missing file": (["fit", "absent.npy", *out], "absent.npy: there is no such file"),
        "empty file": (["fit", "empty.npy", *out], "is empty"),
        "wrong suffix": (["fit", "words.xlsx", *out], "'.xlsx'"),
        "ragged": (["fit", "ragged.csv", *out], "line 2 has 1 column,"),
        "text": (["fit", "text.csv", *out], "line 3, column 'a' is 'x'"),
        "nan": (["fit", "nan.csv", *out], "line 3, column 'a' is NaN"),
        "duplicated ids": (["fit", "twice.csv", *out], "id 'u'"),
        "objects": (["fit", "objects.npy", *out], "Python objects"),
        "identical rows": (["fit", "same.npy", *out], "identical"),
        "one row": (["fit", "one.npy", *out], "1"),
        "no folder": (["fit", "x y é.npy", "-o", "no/out.rpml"], "does not exist"),
        "labels": (["evaluate", "x y é.npy", "--labels", "y.csv"], "2 values"),
        "no model": (["embed", "absent.rpml", "x y é.npy", "-o", "e.npy"], "there is no such file"),
        "nothing to inspect": (
            ["inspect", "absent.rpml"],
            "cannot read absent.rpml: there is no such",
        ),
        "no config": (["fit", "--config", "absent.toml"], "absent.toml: there is no such file"),
        "bad model": (["embed", "fake.rpml", "x y é.npy", "-o", "e.npy"], "not an rpml file"),
        "data as model": (["inspect", "fake.rpml"], "not an rpml file"),
        "bad output": (["embed", "fake.rpml", "x y é.npy", "-o", "e.doc"], "'.doc'"),
        "bad target": (["export", "fake.rpml", "--to", "onnx", "-o", "x"], "not an rpml file"),
    }


NAMES = [
    "missing file", "empty file", "wrong suffix", "ragged", "text", "nan", "duplicated ids",
    "objects", "identical rows", "one row", "no folder", "labels", "no model",
    "nothing to inspect", "no config", "bad model",
    "data as model", "bad output", "bad target",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_one_sentence(rpml, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    args, word = cases(tmp_path)[name]
    before = sorted(os.listdir())
    quiet = ["-q"] if args[0] != "export" else []
    assert word in rpml.refused(*args, *quiet)
    assert sorted(os.listdir()) == before


def test_every_case_is_run(tmp_path):
    assert set(cases(tmp_path)) == set(NAMES)


def test_spaces_and_unicode_are_fine(rpml, tmp_path, vectors):
    folder = tmp_path / "mes données 図"
    folder.mkdir()
    np.save(folder / "x y.npy", vectors[0])
    rpml("fit", folder / "x y.npy", "-o", folder / "modèle 1.rpml", "--dim", 2)
    rpml("embed", folder / "modèle 1.rpml", folder / "x y.npy", "-o", folder / "é e.csv")
    assert (folder / "é e.csv").stat().st_size > 100


AS_NOBODY = """
import json, os, sys
from typer.testing import CliRunner
import rpml.io.checkpoint, rpml.estimator, rpml.io.container
from rpml.cli.app import app
folder, *commands = json.loads(sys.argv[1])
runs = [CliRunner().invoke(app, ["inspect", folder + name]) for name in ("/x.npy", "/absent.npy")]
if os.getuid() == 0:  # only now, as the interpreter itself may be in a private folder
    os.setgid(65534)
    os.setuid(65534)
runs = [CliRunner().invoke(app, command) for command in commands]
print(json.dumps([[run.exit_code, run.stderr] for run in runs]))
"""


def let_others_pass(path):
    """Temporary folders are private; the process without rights must reach the locked one."""
    for folder in [path, *path.parents]:
        status = folder.stat()
        if status.st_uid == os.getuid() and not status.st_mode & 0o001:
            folder.chmod(status.st_mode | 0o011)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_without_permission(tmp_path):
    """In a process that is not root, which no permission stops."""
    if not all(
        folder.stat().st_mode & 0o001 for folder in (Path(sys.prefix), *Path(sys.prefix).parents)
    ):
        pytest.skip("the environment is in a private folder, where another user cannot run it")
    np.save(tmp_path / "x.npy", np.eye(3))
    locked = tmp_path / "locked"
    locked.mkdir()
    np.save(locked / "x.npy", np.eye(3))
    let_others_pass(tmp_path)
    locked.chmod(0)
    commands = [
        ["inspect", f"{locked}"],
        ["inspect", f"{locked}/x.npy"],
        ["inspect", f"{locked}/m.rpml"],
        ["fit", f"{tmp_path}/x.npy", "-o", f"{locked}/m.rpml"],
    ]
    line = [sys.executable, "-c", AS_NOBODY, json.dumps([str(tmp_path), *commands])]
    cache = tmp_path / "cache"  # nobody may have no other folder for compiled code
    cache.mkdir()
    cache.chmod(0o777)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    found = subprocess.run(line, capture_output=True, text=True, check=True, env=env)
    locked.chmod(0o700)
    for code, message in json.loads(found.stdout):
        assert code == 2, message
        assert len(message.strip().splitlines()) == 1, message
        assert "ermission" in message


def test_the_missing_argument_is_named(rpml, shared):
    for command in ("report", "explore"):
        missing = rpml(command, shared / "model.rpml", code=2).stderr
        assert "Missing argument 'FEATURES'. Give one or two models and then FEATURES" in missing
    result = rpml("report", shared / "model.rpml", "-o", "r.html", "--json", code=2)
    assert json.loads(result.stdout)["error"].startswith("Missing argument 'FEATURES'.")


def test_messages_name_options_not_python(rpml, shared):
    fit = ("fit", shared / "x.npy", "-o", shared / "model.rpml")
    exists = rpml.refused(*fit)
    assert exists.endswith("exists: choose another name, or replace it with --force")
    told = rpml.refused(*fit, "--force", "--set", "foo=1")
    assert "there is no setting 'foo': the settings are alpha, average," in told
    assert "n_components" not in told


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("clustering=x", "--set clustering must be one of aas, got 'x'"),
        ("init=x", "--set init must be one of pca, random, got 'x'"),
        ("normalize=7", "--set normalize must be true or false, got 7"),
        ("alpha=x", "--set alpha must be a number in the range (0.0, 90.0), got 'x'"),
        ("whiten=3", "one of auto, a number in the range [0.0, 1.0] or none, got 3"),
    ],
)
def test_settings_are_explained_in_words_of_the_command_line(rpml, shared, setting, told):
    assert told in rpml.refused("fit", shared / "x.npy", "-o", "m.rpml", "--set", setting)


def test_options_are_checked_before_anything_is_read(rpml, shared, tmp_path):
    fit = ("fit", shared / "x.npy", "-o", tmp_path / "m.rpml")
    assert "--seed must be an integer in the range" in rpml.refused(*fit, "--seed", 2**33)
    assert "--conflicts x: choose from raise, weight" in rpml.refused(*fit, "--conflicts", "x")
    scored = ("evaluate", shared / "x.npy", "--labels", shared / "y.npy", "--metric", "x")
    assert "--metric x: choose from cosine, euclidean" in rpml.refused(*scored)
    explore = ("explore", shared / "model.rpml", shared / "x.npy", "--pool", "x")
    assert "--pool are of a network: give --backbone" in rpml.refused(*explore)


def test_what_is_wrong_is_said_once_and_without_python(rpml, shared, tmp_path):
    np.save(tmp_path / "narrow.npy", np.ones((3, 2)))
    model, narrow = shared / "model.rpml", tmp_path / "narrow.npy"
    told = rpml.refused("index", model, narrow, "-o", tmp_path / "x.index")
    assert told == f"rpml: {model} was fitted on 12 features, {narrow} has 2"
    np.save(tmp_path / "one.npy", np.ones((1, 2)))
    assert "1 of the 2 rows that are needed" in rpml.refused("recommend", tmp_path / "one.npy")
    rpml("fit", shared / "x.npy", "-o", tmp_path / "bare.rpml", "-q")
    told = rpml.refused("update", tmp_path / "bare.rpml", shared / "x.npy", "-o", "u.rpml")
    assert "use rpml fit --keep-exemplars, or fit it again" in told


@pytest.mark.parametrize("args", [["{}"], ["inspect", "{}"], ["fit", "x.npy", "--{}", "1"]])
def test_a_long_input_is_not_repeated(rpml, args):
    result = rpml(*[arg.format("a" * 70_000) for arg in args], code=2)
    assert "aaa...aaa" in result.stderr
    assert len(result.stderr) < 1000


def test_an_unknown_kind_of_file_is_named_by_inspect(rpml, tmp_path):
    (tmp_path / "x.arrow").write_bytes(b"ARROW1" + bytes(100))
    told = rpml.refused("inspect", tmp_path / "x.arrow")
    assert "neither a model nor an index; vectors are read from .npy" in told


@pytest.mark.parametrize("command", ["fit x.npy", "embed model.rpml x.npy", "cluster x.npy"])
def test_an_empty_output_is_refused(rpml, shared, command):
    name, *files = command.split()
    refused = rpml.refused(name, *(shared / file for file in files), "-o", "")
    assert "--output is empty: give the name of a file" in refused
