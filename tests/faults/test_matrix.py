"""The fault matrix as tests: a sample by default, all of it in `make test-slow`."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from rpml import RPML
from rpml.search import Index
from tests.cli.conftest import make_vectors
from tests.faults.matrix import CASES
from tests.vision.conftest import noise_image, tiny_network

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """What the commands read."""
    folder = tmp_path_factory.mktemp("faults") / "template"
    folder.mkdir()
    X, _ = make_vectors(60, 8, 4)
    np.save(folder / "x.npy", X)
    (folder / "x.ids.csv").write_text("id\n" + "".join(f"row {i}\n" for i in range(60)))
    lines = [f"row {i},note {i},{','.join(map(str, row))}\n" for i, row in enumerate(X.tolist())]
    (folder / "x.csv").write_text(f"id,note,{','.join('abcdefgh')}\n{''.join(lines)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # five iterations need not converge
        model = RPML(4, n_neighbors=8, random_state=0, training="always", max_iter=5).fit(X)
    model.save(folder / "model.rpml", True)
    Index(model).add(X).save(folder / "x.index")
    for i in range(8):
        path = folder / "photos" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise_image(i, (30, 20)).save(path)
    tiny_network(folder / "net.onnx")
    return folder


def check(template, tmp_path, name, step):
    """Run one row of the matrix in a process of its own, and print it."""
    folder = shutil.copytree(template, tmp_path / "work")
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    line = [sys.executable, "-m", "tests.faults.matrix", str(folder), name, str(step)]
    done = subprocess.run(line, capture_output=True, text=True, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(text) for text in done.stdout.splitlines()]
    assert [row["fault"] for row in rows] == ["kill", "EIO", "ENOSPC"]
    for row in rows:
        print(f"{row['command']:30} {row['fault']:7} {row['tried']:4} {row['whole']:4}")
        assert row["tried"] > 0
        assert row["wrong"] == []


@pytest.mark.parametrize(("name", "step"), [("embed-npy", 45), ("fit", 120)])
def test_sample(template, tmp_path, name, step):
    check(template, tmp_path, name, step)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_every_moment(template, tmp_path, name):
    check(template, tmp_path, name, 1)
