"""The learning rate of every method is the one that the benchmark chose."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from rpml.deep.methods import METHODS

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "cub130_deep.json"


@pytest.mark.parametrize("name", METHODS)
def test_the_rate_is_the_best_on_the_halves(name):
    rows = json.loads(RESULTS.read_text(encoding="utf8"))["rows"]
    found = {}
    for row in rows:
        if row["problem"].startswith("half") and row["method"] == name:
            found.setdefault(row["learning_rate"], []).append(row["r1"] + row["nmi"])
    assert len(found) >= 2
    assert METHODS[name].learning_rate == max(found, key=lambda rate: np.mean(found[rate]))
