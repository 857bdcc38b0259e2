"""The benchmark of the paper's protocol, called from Python."""

import json

import numpy as np
import pytest

from rpml.evaluation.protocol import from_file
from rpml.io.features import ReadOptions
from rpml.pages.benchmark import Benchmark
from rpml.runtime.errors import InputError
from rpml.runtime.files import locked


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 12)
    X = rng.normal(size=(8, 10))[y] + 0.5 * rng.normal(size=(96, 10))
    np.savez(tmp_path / "d.npz", X=X.astype(np.float32), y=y, train=y < 4)
    return from_file("folders", str(tmp_path / "d.npz"), ReadOptions())


def test_results_are_written_and_methods_run_once(data, tmp_path, monkeypatch):
    benchmark = Benchmark("folders", tmp_path / "out", dim=3, methods=("raw", "pca"))
    _, lines = benchmark.run(data)
    assert lines[0][0] == "method"
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["method"] for row in written["measured"]] == ["raw", "pca"]
    assert (tmp_path / "out" / "results.md").read_text().startswith("| method |")
    monkeypatch.setattr("rpml.evaluation.protocol.measure", None)  # not needed again
    assert benchmark.run(data)[1] == lines


def test_other_settings_do_not_replace_results(data, tmp_path):
    Benchmark("folders", tmp_path / "out", dim=3, methods=("raw",)).run(data)
    other = Benchmark("folders", tmp_path / "out", dim=2, methods=("raw",))
    with pytest.raises(InputError, match="other data or settings"):
        other.run(data)
    assert other.run(data, overwrite=True)[0]["dim"] == 2


def test_what_others_have_put_there_stays(data, tmp_path):
    benchmark = Benchmark("folders", tmp_path, dim=3, methods=("raw",))
    (tmp_path / "results.md").write_text("mine")
    with pytest.raises(InputError, match="is of other data"):
        benchmark.run(data)
    assert (tmp_path / "results.md").read_text() == "mine"
    with locked(tmp_path), pytest.raises(InputError, match="is being written by process"):
        benchmark.run(data, overwrite=True)


def test_wrong_names_are_refused_at_once(tmp_path):
    with pytest.raises(InputError, match="no dataset 'dogs'"):
        Benchmark("dogs", tmp_path)
    with pytest.raises(ValueError, match="nonsense"):
        Benchmark("cub", tmp_path, methods=("nonsense",))


def test_a_name_that_a_file_has_is_refused_at_once(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InputError, match="not a folder: choose another name"):
        Benchmark("folders", tmp_path / "taken", dim=3)
    assert (tmp_path / "taken").read_text() == "mine"
