"""rpml explore from the shell."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.drawings import Sample
from tests.pages.explorer.client import Client

rpml = Run()
PROGRAM = "from rpml.cli.app import main; main()"


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_it_says_where_it_listens_and_stops_on_ctrl_c(sample: Sample, host: str) -> None:
    folder = sample.folder
    models = [folder / "model.rpml"] * (2 if host == "127.0.0.1" else 1)
    arguments = ["explore", *models, folder / "features.npy", "--port", 0]
    arguments += ["--ids", folder / "ids.txt", "--images", sample.images, "--host", host]
    process = start(*arguments)
    try:
        said = process.stdout.readline()
        port = int(said.partition("://")[2].partition("/")[0].rpartition(":")[2])
        about = Client(port).json("/api/about")
        assert about["rows"] == len(sample.X)
        assert list(about["spaces"]) == ["raw", "rpml", "second"][: 1 + len(models)]
        assert Client(port).get("/picture/0").status == 200
        foreign = Client(port).get("/api/about", host="evil.example")
        assert foreign.status == 400
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert ("warning: the explorer listens on 0.0.0.0" in errors) == (host == "0.0.0.0")
    assert "Traceback" not in errors


WRONG = {
    "--images nowhere": "no such folder",
    "--ids nowhere.txt": "there is no such file",
    "--backbone nowhere.onnx": "nowhere.onnx",
    "--host 256.1.1.1": "cannot listen on 256.1.1.1",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_one_sentence(sample: Sample, words: str) -> None:
    model, features = sample.folder / "model.rpml", sample.folder / "features.npy"
    assert WRONG[words] in rpml.refused("explore", model, features, "--port", 0, *words.split())


def test_a_taken_port_is_said_before_anything_is_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = rpml.refused("explore", tmp_path / "m", tmp_path / "x.npy", "--port", port)
    assert f"port {port}" in said
    assert "--port" in said


def test_a_wrong_file_of_labels_is_said_before_anything_is_read(tmp_path: Path) -> None:
    words = ["explore", tmp_path / "m", tmp_path / "x.npy", "--port", 0, "--save-labels"]
    assert "must end in .csv" in rpml.refused(*words, tmp_path / "labels.txt")
    assert "does not exist" in rpml.refused(*words, tmp_path / "nowhere" / "labels.csv")
    (tmp_path / "language.csv").write_text("id,language\n")
    nuisance = tmp_path / "language.csv", "--nuisance", tmp_path / "language.csv"
    assert "is the input" in rpml.refused(*words, *nuisance)


def test_a_missing_extra_is_named(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    said = rpml.refused("explore", sample.folder / "model.rpml", sample.folder / "features.npy")
    assert "rpml[explore]" in said
