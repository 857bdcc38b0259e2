"""Damaged and forged files: a sample by default, 50,000 in `make test-slow`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.mutations import READERS

ROOT = Path(__file__).parents[2]


def check(count, seed):
    """In a process of its own, whose memory is then known."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    line = [sys.executable, "-m", "tests.faults.mutations", str(count), str(seed)]
    done = subprocess.run(line, capture_output=True, text=True, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(text) for text in done.stdout.splitlines()]
    assert [row["kind"] for row in rows] == list(READERS)
    for row in rows:
        print(f"{row['kind']:20} {row['tried']:6} {row['accepted']:6} {row['refused']:6}")
        assert row["tried"] == row["accepted"] + row["refused"]
        assert row["wrong"] == []


def test_sample():
    check(150, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_many(seed):
    check(10_000, seed)
