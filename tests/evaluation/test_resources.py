import numpy as np
import pytest

from rpml.evaluation import resources
from rpml.evaluation.resources import estimate_resources


def test_small_fits_are_measured_whole():
    found = estimate_resources(300, 8, n_components=3, n_neighbors=10, training="always")
    assert (found.n_rows, found.n_features, found.pilot_rows) == (300, 8, 300)
    assert found.memory > 300 * 8 * 4
    assert found.seconds == pytest.approx(sum(found.stages.values()))
    assert {"neighbors", "optimize"} <= set(found.stages)


def test_larger_fits_are_extrapolated(monkeypatch):
    monkeypatch.setattr(resources, "_FIRST_PILOT", 100)
    monkeypatch.setattr(resources, "_LAST_PILOT", 200)
    X = np.random.default_rng(0).normal(size=(400, 6))
    small, large = (
        estimate_resources(n, 6, X=X, n_components=2, n_neighbors=5, subsample=None)
        for n in (10_000, 1_000_000)
    )
    assert small.pilot_rows == large.pilot_rows == 200
    assert large.memory > small.memory + 900_000 * 5 * 16  # neighbors and graph of each row


def test_each_stage_grows_in_its_own_way():
    at = {
        stage: [resources._growth(stage, 10_000, n) for n in (10_000, 100_000, 1_000_000)]
        for stage in ("whiten", "neighbors", "labels")
    }
    assert at["labels"] == pytest.approx([1, 10, 100])
    assert at["whiten"] == pytest.approx([1, 2, 2])  # of 20,000 rows
    assert at["neighbors"][:2] == pytest.approx([1, 10**1.75])  # exact: almost quadratic
    assert at["neighbors"][1] < at["neighbors"][2] < 10 * at["neighbors"][1]


def test_a_pilot_beyond_the_subsample_took_what_the_fit_takes(monkeypatch):
    pilot = 40_000, {"prepare": 1.0, "neighbors": 2.0, "labels": 3.0}, 0.0
    monkeypatch.setattr(resources, "_run_pilots", lambda *arguments: pilot)
    found = estimate_resources(40_000, 8, n_components=3, subsample=20_000)
    assert found.stages == pilot[1]


def test_mapped_vectors_take_no_memory(monkeypatch):
    own = [
        estimate_resources(300, 8, n_components=3, n_neighbors=10, mapped=m).memory
        for m in (False, True)
    ]
    assert own[0] > own[1]


def test_impossible_shapes():
    with pytest.raises(ValueError, match="at least two rows"):
        estimate_resources(1, 8)
    with pytest.raises(ValueError, match=r"X has the shape \(30, 6\).*d=8"):
        estimate_resources(100, 8, X=np.ones((30, 6)))
