"""Files of the user's that stand where a command would write: refused, and never touched."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from rpml.pages.items import match_images
from tests.cli.conftest import make_vectors, rpml, shared, vectors  # noqa: F401

PROGRAM = [sys.executable, "-c", "from rpml.cli.app import main; main()"]


def snapshot(folder):
    """Every file below the folder and what is in it; our hidden files too."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def place(shared, tmp_path, monkeypatch):  # noqa: F811
    """A folder to work in, with a model, vectors with ids, shards and photographs."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.rpml", "x.npy", "y.npy"):
        (tmp_path / name).write_bytes((shared / name).read_bytes())
    ids = "".join(f"{i}.jpg\n" for i in range(len(np.load("x.npy"))))
    (tmp_path / "x.ids.csv").write_text(f"id\n{ids}")
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "part-0.npy").write_bytes((tmp_path / "x.npy").read_bytes())
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("a photograph")
    (tmp_path / "m.parquet").write_text("one value per row")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    return tmp_path


ATLAS = ["export", "model.rpml", "x.npy", "--to", "atlas"]
TO_ITSELF = [
    ["embed", "model.rpml", "x.npy", "-o", "x.npy"],
    ["embed", "model.rpml", "x.npy", "-o", "x.ids.csv"],
    ["embed", "model.rpml", "x.npy", "-o", "./"],
    ["embed", "model.rpml", "shards/", "-o", "shards/"],
    ["embed", "model.rpml", "shards/", "-o", "shards/more.npy"],
    ["cluster", "x.npy", "-o", "x.npy"],
    ["suggest", "model.rpml", "--features", "x.npy", "-o", "x.npy"],
    ["update", "model.rpml", "x.npy", "-o", "model.rpml"],
    ["fit", "x.npy", "--labels", "labels.txt", "-o", "labels.txt"],
    ["fit", "shards/", "-o", "shards/model.rpml"],
    ["export", "model.rpml", "--to", "faiss", "-o", "model.rpml"],
    ["export", "model.rpml", "--to", "sentence-transformers", "-o", "."],
    [*ATLAS, "--images", "photos", "-o", "photos/m.parquet"],
    [*ATLAS, "--nuisance", "m.parquet", "-o", "m.parquet"],
    ["features", "photos/", "--backbone", "net.onnx", "-o", "photos/"],
    ["features", "photos/", "--backbone", "net.onnx", "-o", "photos/features.npy"],
    ["features", "photos/", "--backbone", "net.onnx", "--whitening", "w.npz", "-o", "w.npz"],
    ["features", "photos/a.jpg", "--backbone", "net.onnx", "-o", "photos/"],
    ["compare", "x.npy", "--labels", "y.csv", "-o", "y.csv"],
    ["index", "model.rpml", "x.npy", "-o", "model.rpml"],
    ["search", "hits.csv", "x.npy", "-o", "hits.csv"],
    ["bridge", "old.rpml", "x.npy", "-o", "old.rpml"],
    ["report", "model.rpml", "x.npy", "--labels", "y.html", "-o", "y.html"],
    ["figures", "x.npy", "--images", "photos", "-o", "photos"],
]


FILES = [
    ["embed", "model.rpml", "x.npy", "-o", "notes/", "--force"],
    ["export", "model.rpml", "--to", "sentence-transformers", "-o", "notes", "--force"],
    ["demo", "code", "-o", "notes"],
]


@pytest.mark.parametrize("line", FILES, ids=" ".join)
def test_a_file_where_a_folder_goes_is_noticed_before_the_work(place, rpml, line):  # noqa: F811
    (place / "notes").write_text("years of work")
    before = snapshot(place)
    assert "notes is there and not a folder" in rpml.refused(*line)
    assert snapshot(place) == before


@pytest.mark.parametrize("line", TO_ITSELF, ids=" ".join)
def test_force_replaces_no_input(place, rpml, line):  # noqa: F811
    before = snapshot(place)
    assert "the input" in rpml.refused(*line, "--force")
    assert snapshot(place) == before


INTO_FOLDERS = {
    "part-00000.npy": ["embed", "model.rpml", "x.npy", "-o", "mine/"],
    "modules.json": ["export", "model.rpml", "--to", "sentence-transformers", "-o", "mine"],
}


@pytest.mark.parametrize("name", INTO_FOLDERS)
def test_force_empties_no_folder(place, rpml, name):  # noqa: F811
    """Neither files, links and folders that rpml did not write, nor ours that were edited."""
    line = [*INTO_FOLDERS[name], "--force"]
    (place / "mine" / "empty").mkdir()
    (place / "mine" / "link").symlink_to("../photos")
    before = snapshot(place)
    for _ in range(2):
        rpml(*line, "-q")
    assert before.items() <= snapshot(place).items()
    assert (place / "mine" / "empty").is_dir()
    assert (place / "mine" / "link").is_symlink()
    (place / "mine" / name).write_text("edited")
    before = snapshot(place)
    assert name in rpml.refused(*line)
    assert snapshot(place) == before


def test_demo_does_not_write_into_a_folder_of_the_users(place, rpml):  # noqa: F811
    (place / "mine" / "model.rpml").write_text("not yours")
    before = snapshot(place)
    assert "not as an earlier run" in rpml.refused("demo", "-o", "mine")
    assert snapshot(place) == before


def test_a_folder_of_weights_is_no_checkpoint(place, rpml):  # noqa: F811
    (place / "bert.ckpt").mkdir()
    (place / "bert.ckpt" / "model.safetensors").write_text("weights")
    before = snapshot(place)
    for more in ([], ["--force"], ["--resume"]):
        assert "left as it is" in rpml.refused("fit", "x.npy", "-o", "bert", *more)
    assert snapshot(place) == before
    rpml("fit", "x.npy", "-o", "bert", "--no-checkpoint", "--max-iter", 1, "-q")
    (place / "bert").unlink()
    assert snapshot(place) == before


def test_a_file_where_the_checkpoint_goes_is_noticed_at_once(place, rpml):  # noqa: F811
    (place / "m.rpml.ckpt").write_text("mine")
    assert "in the way" in rpml.refused("fit", "x.npy", "-o", "m.rpml")


def test_ids_lead_nowhere_but_into_the_folder_of_images(place, rpml):  # noqa: F811
    (place / "secret.jpg").write_text("secret")
    (place / "photos" / "own.jpg").touch()
    n = len(np.load("x.npy"))
    for name in ("../secret.jpg", str(place / "secret.jpg")):
        ids = [*map(str, range(n - 1)), name]
        (place / "x.ids.csv").write_text("\n".join(["id", *ids]))
        line = ["figures", "x.npy", "--images", "photos", "-o", "figures"]
        assert "no image in photos is named like an id" in rpml.refused(*line)
        assert match_images(place / "photos", [*ids, "own"], n + 1)[-2:] == [
            None,
            place / "photos" / "own.jpg",
        ]


def test_wrong_kinds(place, rpml):  # noqa: F811
    assert "HTML" in rpml.refused("report", "model.rpml", "x.npy", "-o", "r.pdf")
    assert "not the name" in rpml.refused("export", "model.rpml", "--to", "faiss", "-o", "x.onnx")


@pytest.mark.parametrize("journal", ["forged", "[]", "pipe"])
def test_readers_leave_what_looks_like_an_interrupted_write(place, rpml, journal):  # noqa: F811
    """Whoever may write to a folder can plant files there: a reader neither obeys nor waits."""
    (place / "notes").write_text("of the user")
    status = (place / "notes").stat()
    if journal == "forged":
        journal = json.dumps({"notes": [status.st_ino, status.st_size, status.st_mtime_ns]})
    for name in ("x.npy", "model.rpml"):
        home = place / f".{name}.0123456789abcdef.rpml-new"
        (home / "old").mkdir(parents=True)
        (home / "new").mkdir()
        if journal == "pipe":
            os.mkfifo(home / "journal")
            os.mkfifo(place / f".{name}.1123456789abcdef.rpml-new")
        else:
            (home / "journal").write_text(journal)
    before = sorted(place.rglob("*")), snapshot(place)
    rpml("inspect", "x.npy")
    rpml("inspect", "model.rpml")
    rpml("evaluate", "x.npy", "--labels", "y.npy")
    assert (sorted(place.rglob("*")), snapshot(place)) == before


def test_two_fits_of_one_output(place):
    """Other data and another seed, started at once: one of them is told, the other is right."""
    X, _ = make_vectors(seed=1)
    np.save("z.npy", X)
    lines = [["x.npy", "--seed", "0"], ["z.npy", "--seed", "1"]]
    expected = []
    for i, line in enumerate(lines):
        end(start("fit", *line, "-o", f"alone{i}.rpml"), 0)
        expected.append((place / f"alone{i}.rpml").read_bytes())
    running = [start("fit", *line, "-o", "both.rpml") for line in lines]
    said = [process.communicate()[1] for process in running]
    codes = [process.returncode for process in running]
    assert sorted(codes) == [0, 2], said
    assert (place / "both.rpml").read_bytes() == expected[codes.index(0)]
    assert json.dumps(said).count("rpml: ") == 1
    assert not (place / "both.rpml.ckpt").exists()


def start(*line):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*PROGRAM, *line, "-q", "--neighbors", "10"], env=env, **pipes)


def end(process, code):
    said = process.communicate()[1]
    assert process.returncode == code, said
