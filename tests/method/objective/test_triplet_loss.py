"""The objective against the paper's loops, finite differences, and its own invariances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpml.method.objective.triplet_loss import (
    TripletObjective,
    angular_factor,
    as_float_rows,
    loss_and_gradients,
)
from rpml.method.solver.conjugate_gradient import PolarCurve
from tests import paper_loops
from tests.problems import ALL_WEIGHTS, random_problem

every_weight = pytest.mark.parametrize("weight", ALL_WEIGHTS)
guards = pytest.mark.parametrize("weight_ridge", [None, 0.03])


@pytest.mark.parametrize("weight", ["concat", "bilinear", "constant"])
@pytest.mark.parametrize("alpha", [20.0, 45.0, 60.0])
def test_equals_the_papers_loops(weight, alpha):
    X, triplets, L, theta = random_problem(1, weight=weight)
    loss, grad_L, grad_theta = loss_and_gradients(X, triplets, L, theta, weight, alpha)
    expected = paper_loops.objective(X, triplets, L, theta, weight, alpha)
    assert loss == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(grad_L, expected[1], rtol=1e-10, atol=1e-12)
    if weight == "constant":
        assert grad_theta is None
    else:
        np.testing.assert_allclose(grad_theta, expected[2], rtol=1e-10, atol=1e-12)


def test_equals_the_papers_matrix_form():
    X, triplets, L, r = random_problem(2, n=60, d=11, l=4, T=200)
    loss, grad_L, grad_r = loss_and_gradients(X, triplets, L, r)
    expected = paper_loops.matrix_form(X, triplets, L, r)
    assert loss == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(grad_L, expected[1], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(grad_r, expected[2], rtol=1e-10, atol=1e-12)


@every_weight
@guards
def test_gradients_equal_central_differences(weight, weight_ridge):
    X, triplets, L, theta = random_problem(3, weight=weight)
    problem = TripletObjective(X, triplets, weight, weight_ridge=weight_ridge)
    rng = np.random.default_rng(0)

    def loss_at(L, theta):
        problem.move_to(L, theta)
        return problem.gradients()[0]

    problem.move_to(L, theta)
    _, grad_L, grad_theta = problem.gradients()
    h = 1e-5
    for _ in range(3):
        dL = rng.standard_normal(L.shape)
        dt = None if theta is None else rng.standard_normal(theta.shape)
        ahead = loss_at(L + h * dL, None if theta is None else theta + h * dt)
        behind = loss_at(L - h * dL, None if theta is None else theta - h * dt)
        slope = np.vdot(grad_L, dL) + (0 if theta is None else np.vdot(grad_theta, dt))
        assert (ahead - behind) / (2 * h) == pytest.approx(slope, rel=1e-6)


@every_weight
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_invariant_under_rotations_of_L(weight, seed):
    X, triplets, L, theta = random_problem(seed, weight=weight)
    B, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((L.shape[1],) * 2))
    loss, grad_L, _ = loss_and_gradients(X, triplets, L, theta, weight)
    rotated, grad_rotated, _ = loss_and_gradients(X, triplets, L @ B, theta, weight)
    assert rotated == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(grad_rotated, grad_L @ B, atol=1e-10)


@every_weight
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    exponent=st.integers(-30, 30),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_finite_for_any_scale_of_input(weight, seed, exponent, dtype):
    X, triplets, L, theta = random_problem(seed, weight=weight)
    X = (X * 10.0**exponent).astype(dtype)
    with np.errstate(over="raise", invalid="raise"):
        loss, grad_L, grad_theta = loss_and_gradients(X, triplets, L, theta, weight)
    assert np.isfinite(loss)
    assert loss >= 0
    if exponent <= 15:
        assert np.isfinite(grad_L).all()
        assert grad_theta is None or np.isfinite(grad_theta).all()


@every_weight
def test_float32_agrees_with_float64(weight):
    X, triplets, L, theta = random_problem(4, n=80, T=300, weight=weight)
    loss, grad_L, grad_theta = loss_and_gradients(X, triplets, L, theta, weight)
    loss32, grad32, theta32 = loss_and_gradients(X.astype(np.float32), triplets, L, theta, weight)
    assert loss32 == pytest.approx(loss, rel=1e-6)
    assert grad32.dtype == np.float32
    np.testing.assert_allclose(grad32, grad_L, atol=1e-5 * np.abs(grad_L).max())
    if theta is not None:
        np.testing.assert_allclose(theta32, grad_theta, atol=1e-5 * np.abs(grad_theta).max())


@every_weight
@guards
def test_a_line_needs_no_products_and_equals_full_evaluations(weight, weight_ridge):
    X, triplets, L, theta = random_problem(5, weight=weight)
    rng = np.random.default_rng(1)
    xi = rng.standard_normal(L.shape)
    xi -= L @ (L.T @ xi)
    d_theta = None if theta is None else rng.standard_normal(theta.shape)
    problem = TripletObjective(X, triplets, weight, weight_ridge=weight_ridge)
    problem.move_to(L, theta)
    curve = PolarCurve.through(L, xi)
    problem.begin_line_search(curve, d_theta)
    products = problem.products
    fresh = TripletObjective(X, triplets, weight, weight_ridge=weight_ridge)
    for t in (0.0, 0.1, 1.0, 7.0):
        fresh.move_to(curve.point(t), None if theta is None else theta + t * d_theta)
        assert problem.line_value(t) == pytest.approx(fresh.gradients()[0], rel=1e-12)
    problem.accept_step(0.3)
    assert problem.products == products
    fresh.move_to(curve.point(0.3), None if theta is None else theta + 0.3 * d_theta)
    for mine, theirs in zip(problem.gradients(), fresh.gradients(), strict=True):
        if theirs is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)


def test_many_triplets_are_cut_between_threads_without_changing_the_sum():
    X, triplets, L, theta = random_problem(6, n=200, d=5, l=2, T=40_000)
    whole = loss_and_gradients(X, triplets, L, theta)
    parts = [loss_and_gradients(X, part, L, theta) for part in np.array_split(triplets, 7)]
    assert whole[0] == pytest.approx(sum(p[0] for p in parts), rel=1e-12)
    np.testing.assert_allclose(whole[1], sum(p[1] for p in parts), rtol=1e-9, atol=1e-9)
    again = loss_and_gradients(X, triplets, L, theta)
    assert whole[0] == again[0]
    np.testing.assert_array_equal(whole[1], again[1])


def test_terms_are_the_papers_probabilities():
    X, triplets, L, r = random_problem(7)
    problem = TripletObjective(X, triplets)
    problem.move_to(L, r)
    w, p = problem.weights_and_probabilities()
    a, pos, n = (X[rows] for rows in triplets.T)
    averages = (a + pos) / 2
    far = ((n - averages) @ L) ** 2
    z = (((a - pos) @ L) ** 2).sum(axis=1) - 4 * far.sum(axis=1)
    np.testing.assert_allclose(w, 1 / (1 + np.exp(-np.hstack([averages, n]) @ r)))
    np.testing.assert_allclose(p, 1 / (1 + np.exp(w * np.log1p(np.exp(z)))))
    assert problem.gradients()[0] == pytest.approx(-np.log(p).sum())


def test_no_triplets_give_zero():
    X, _, L, r = random_problem(8)
    loss, grad_L, grad_r = loss_and_gradients(X, np.empty((0, 3), int), L, r)
    assert loss == 0.0
    assert not grad_L.any()
    assert not grad_r.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"triplets": [[0, 1, 99]]}, r"triplets\[0\] = \[0, 1, 99\] is outside the 40 rows"),
        ({"triplets": [[0, 1, 2], [3, 4, 99]]}, r"triplets\[1\] = \[3, 4, 99\] is outside"),
        ({"triplets": [[0, 1, -1]]}, r"outside the 40 rows"),
        ({"triplets": [[0.0, 1.0, 2.0]]}, "integer array of shape"),
        ({"triplets": [[0, 1]]}, "integer array of shape"),
        ({"L": np.eye(4)}, r"L must have shape \(9, l\)"),
        ({"theta": np.zeros(5)}, r"theta for weight='concat' must have shape \(18,\), got \(5,\)"),
        ({"theta": None}, "must have shape"),
        (
            {"theta": np.zeros(9), "weight": "bilinear"},
            r"theta for weight='bilinear' must have shape \(9, q\), got \(9,\)",
        ),
        ({"weight": "constant"}, "has no parameters"),
        ({"weight": "quadratic"}, "weight must be one of"),
        ({"alpha": 90.0}, "between 0 and 90 degrees, got 90"),
        ({"X": np.zeros(9)}, "X must be a matrix"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    X, triplets, L, theta = random_problem(9)
    arguments = {"X": X, "triplets": triplets, "L": L, "theta": theta} | change
    with pytest.raises(ValueError, match=message):
        loss_and_gradients(**arguments)


def test_angle_of_45_degrees_gives_four():
    assert angular_factor(45.0) == pytest.approx(4.0)


@pytest.mark.parametrize(("size", "dtype"), [(1e14, "float32"), (1e16, "float64")])
def test_rows_whose_squares_overflow_are_float64(size, dtype):
    assert as_float_rows(np.full((2, 3), size, np.float32)).dtype == dtype
