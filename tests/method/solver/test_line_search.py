"""The line search on functions whose minimum is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpml.method.solver.line_search import _from_slope, line_search


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e3), st.floats(1e-4, 1e4))
def test_finds_the_minimum_of_a_parabola_from_any_first_guess(minimum, curvature, factor):
    def phi(t):
        return curvature * (t - minimum) ** 2

    t, _ = line_search(phi, phi(0.0), -2 * curvature * minimum, first=minimum * factor)
    assert t == pytest.approx(minimum, rel=0.06)


@pytest.mark.parametrize("first", [1e-4, 1.0, 50.0])
def test_finds_the_minimum_of_a_skewed_function(first):
    def phi(t):
        return np.exp(t / 2) - 3 * np.log1p(2 * t)

    slope = 0.5 - 6.0
    t, _ = line_search(phi, phi(0.0), slope, first)
    grid = np.linspace(0.01, 8, 20000)
    best = grid[np.argmin([phi(t) for t in grid])]
    assert t == pytest.approx(best, rel=0.1)
    assert phi(t) < phi(0.0)


def test_a_function_without_minimum_ends_and_goes_down():
    calls = []

    def phi(t):
        calls.append(t)
        return -t

    best, trials = line_search(phi, 0.0, -1.0, first=1.0, max_trials=12)
    assert len(calls) == trials <= 12
    assert best == max(calls)


def test_no_decrease_anywhere_gives_a_zero_step():
    assert line_search(lambda t: 1.0 + t, 1.0, -1e-9, first=1.0)[0] == 0.0


def test_infinite_and_nan_values_are_walls():
    def phi(t):
        return np.nan if t > 2 else np.inf if t > 1.5 else (t - 1) ** 2

    t, _ = line_search(phi, 1.0, -2.0, first=100.0)
    assert t == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("minimum", [0.25, 3.0])
@pytest.mark.parametrize("t", [0.1, 7.0])
def test_value_and_slope_at_zero_and_one_value_give_the_vertex_of_a_parabola(minimum, t):
    def phi(t):
        return 2 * (t - minimum) ** 2

    assert _from_slope(phi(0), -4 * minimum, (t, phi(t))) == pytest.approx(minimum)


def test_a_value_below_the_tangent_asks_for_a_step_ten_times_as_long():
    assert _from_slope(1.0, -1.0, (0.5, 0.1)) == 5.0


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_unit_of_the_step_changes_nothing(unit):
    def phi(t):
        return np.exp(t / 2) - 3 * np.log1p(2 * t)

    t, trials = line_search(phi, phi(0.0), -5.5, first=0.1)
    scaled = line_search(lambda t: phi(t / unit), phi(0.0), -5.5 / unit, first=0.1 * unit)
    assert scaled == (pytest.approx(t * unit), trials)
