"""Charts are well-formed, escaped, and their ticks are sensible."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpml.pages.report import section as charts
from rpml.pages.report.page import environment
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-1.5, "−1.5"),
        (12345, "12,345"),
        (1e-5, "1e−05"),
        (2.5e7, "2.5e+07"),
        (0.3, "0.3"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert charts.number(value) == text


def parse(chart: charts.Chart) -> ET.Element:
    macros = environment().get_template("macros.html").module
    root = ET.fromstring(macros.svg(chart).strip())
    assert root.get("role") == "img"
    assert root.get("aria-label")
    return root


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("values", [[3.0, 2.0, 1.5], [1.0, 1.0], [0.0, float("nan"), 2.0]])
def test_line_charts_take_what_a_solver_records(values: list[float], log: bool) -> None:
    root = parse(charts.line_chart(HOSTILE, [(HOSTILE, "rpml", values)], HOSTILE, log))
    assert root.find(".//script") is None


@pytest.mark.parametrize("values", [[0.5] * 20, np.random.default_rng(0).random(500), [1, 1, 30]])
@pytest.mark.parametrize("doubling", [False, True])
def test_histograms_count_every_value(values: list[float], doubling: bool) -> None:
    if doubling:
        values = np.ceil(np.asarray(values) * 9 + 1)
    root = parse(charts.histogram("sizes", values, "items", doubling))
    bars = [float(b.get("height")) for b in root if b.get("class") == "bar"]
    assert max(bars) == charts.BOTTOM - charts.TOP
    assert all(h >= 0 for h in bars)
