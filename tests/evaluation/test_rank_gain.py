import importlib
from pathlib import Path

from rpml.method.calibration import CALIBRATION

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_calibration_is_what_was_measured(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    calibration = importlib.import_module("calibration")
    points = calibration.all_points()
    assert calibration.table(points) == CALIBRATION
    assert calibration.coverage(points) > 0.8  # what pages say of 4 of 5 other data sets
