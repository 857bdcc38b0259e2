"""Charts are well-formed, escaped, and their ticks are sensible."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpml.pages.report import charts
from tests.drawings import HOSTILE

finite = st.floats(-1e9, 1e9, allow_nan=False)


@given(finite, st.floats(1e-6, 1e9))
def test_ticks_lie_inside_evenly(low: float, span: float) -> None:
    high = low + span
    found = charts.ticks(low, high)
    assert 1 <= len(found) <= 6
    slack = 1e-6 * max(abs(low), abs(high), span)
    assert all(low - slack <= t <= high + slack for t in found)
    gaps = [b - a for a, b in itertools.pairwise(found)]
    assert all(g > 0 for g in gaps)


@given(st.floats(1e-9, 1e6), st.floats(1.05, 1e9))
def test_log_ticks_lie_inside(low: float, factor: float) -> None:
    high = low * factor
    found = charts.log_ticks(low, high)
    assert found == sorted(found)
    assert all(low * (1 - 1e-6) <= t <= high * (1 + 1e-6) for t in found)


def test_neighboring_ticks_have_different_texts() -> None:
    assert len(set(charts.tick_texts([9078.1, 9078.2, 9078.3]))) == 3
    assert charts.tick_texts([0, 0.5, 1]) == ["0", "0.5", "1"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (-1.5, "−1.5"), (12345, "12,345"), (1e-5, "1e−5"), (2.5e7, "2.5e7"), (0.25, "0.25")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert charts.number(value) == text


def parse(chart: charts.Chart) -> ET.Element:
    root = ET.fromstring(chart["svg"])
    assert root.get("role") == "img"
    assert root.get("aria-label")
    return root


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[3.0, 2.0, 1.5], [1.0], [0.0, float("nan"), 2.0], []])
def test_line_charts_take_what_a_solver_records(values: list[float], log: bool) -> None:
    root = parse(charts.line_chart(HOSTILE, [charts.Series(HOSTILE, "rpml", values)], HOSTILE, log))
    assert root.find(".//script") is None


@pytest.mark.parametrize(
    "values", [[0.5] * 20, [], np.random.default_rng(0).random(500), [1, 1, 30]]
)
@pytest.mark.parametrize("log_bins", [False, True])
def test_histograms_count_every_value(values: list[float], log_bins: bool) -> None:
    if log_bins:
        values = np.ceil(np.asarray(values) * 9 + 1)
    root = parse(charts.histogram("sizes", values, "items", log_bins))
    bars = [float(b.get("height")) for b in root if b.get("class") == "bar"]
    assert bool(bars) == bool(len(values))
    assert all(h >= 0 for h in bars)


def test_interval_chart_names_its_lines() -> None:
    gains = [
        charts.Series(HOSTILE, "raw", [1.0], [(0.5, 1.5)]),
        charts.Series("b", "pca", [-1], [(-2, 0)]),
    ]
    root = parse(charts.interval_chart("gain", gains, "points"))
    names = [t.text for t in root if t.get("class") == "name"]
    assert names == [HOSTILE[:24] + "…", "b"]
