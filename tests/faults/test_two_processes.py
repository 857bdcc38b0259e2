"""Two processes that write one output without --force: one succeeds, and its file stays."""

import os

import numpy as np
import pytest

from tests.cli.conftest import rpml, shared, vectors  # noqa: F401
from tests.faults.matrix import command

ROUNDS = 12
LINES = {
    "out.index": [f"index model.rpml x.npy -o out.index --dim {dim}" for dim in (2, 3)],
    "out.rpml": ["bridge x.npy y.npy -o out.rpml", "bridge y.npy x.npy -o out.rpml"],
}


def run_at_once(lines):
    """Run each command line in a fork of its own, released together; return their exit codes."""
    gate, release = os.pipe()
    children = []
    for line in lines:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                os.close(release)
                os.read(gate, 1)  # until the parent closes the other end
                code = command(line)
            finally:
                os._exit(code)
        children.append(child)
    os.close(gate)
    os.close(release)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


@pytest.mark.parametrize("name", list(LINES))
@pytest.mark.filterwarnings("ignore")
def test_one_of_two_writers_succeeds(shared, tmp_path, monkeypatch, name):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    for file in ("model.rpml", "x.npy"):
        (tmp_path / file).write_bytes((shared / file).read_bytes())
    np.save("y.npy", np.load("x.npy")[:, ::-1] ** 3)
    alone = []
    for line in LINES[name]:
        assert command(line) == 0
        alone.append((tmp_path / name).read_bytes())
        (tmp_path / name).unlink()
    assert alone[0] != alone[1]
    for _ in range(ROUNDS):
        codes = run_at_once(LINES[name])
        assert sorted(codes) == [0, 2]
        assert (tmp_path / name).read_bytes() == alone[codes.index(0)]
        assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
        (tmp_path / name).unlink()
