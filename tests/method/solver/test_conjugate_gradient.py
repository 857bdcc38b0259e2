"""The solvers: monotone, orthonormal, as good as an independent implementation."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pymanopt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymanopt.manifolds import Euclidean, Grassmann, Product

from rpml.method.objective.triplet_loss import TripletObjective, loss_and_gradients
from rpml.method.solver.conjugate_gradient import (
    SolverState,
    Stopping,
    _reason_to_stop,
    descend,
    fit_triplets,
    random_subspace,
)
from tests.problems import ALL_WEIGHTS, random_problem

every_weight = pytest.mark.parametrize("weight", ALL_WEIGHTS)


def pymanopt_loss(X, triplets, L, theta, weight, iterations):
    """The loss an independent conjugate gradient reaches with the same objective."""
    d, l = L.shape
    parts = [Grassmann(d, l)] + ([] if theta is None else [Euclidean(*theta.shape)])
    manifold = Product(parts)

    def evaluate(L, theta=None):
        return loss_and_gradients(X, triplets, L, theta, weight)

    @pymanopt.function.numpy(manifold)
    def cost(*point):
        return evaluate(*point)[0]

    @pymanopt.function.numpy(manifold)
    def euclidean_gradient(*point):
        return [g for g in evaluate(*point)[1:] if g is not None]

    problem = pymanopt.Problem(manifold, cost, euclidean_gradient=euclidean_gradient)
    optimizer = pymanopt.optimizers.ConjugateGradient(
        max_iterations=iterations, verbosity=0, min_gradient_norm=1e-9
    )
    start = [L] + ([] if theta is None else [theta])
    return optimizer.run(problem, initial_point=start).cost


@every_weight
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_thirty_iterations_are_as_good_as_pymanopts(weight, seed):
    X, triplets, L, theta = random_problem(seed, n=60, d=12, l=4, T=300, weight=weight)
    ours = fit_triplets(X, triplets, L, theta, weight, max_iter=30)
    theirs = pymanopt_loss(X, triplets, L, theta, weight, 30)
    assert ours.loss <= theirs * 1.005
    assert ours.n_iter <= 30


@pytest.mark.parametrize("seed", range(5))
def test_fixed_weights_reach_the_same_optimum_from_every_start(seed):
    X, triplets, _, _ = random_problem(7, n=60, d=10, l=3, T=300)
    L = random_subspace(10, 3, np.random.default_rng(seed))
    ours = fit_triplets(X, triplets, L, np.zeros(20), learn_weights=False, max_iter=500)
    assert ours.converged
    assert not ours.theta.any()
    reference = min(pymanopt_loss_fixed(X, triplets, s) for s in (100, 101))
    assert ours.loss == pytest.approx(reference, rel=1e-7)


def pymanopt_loss_fixed(X, triplets, seed):
    """Optimum over L alone, r = 0, from another start."""
    d, l = X.shape[1], 3
    manifold = Grassmann(d, l)
    r = np.zeros(2 * d)

    @pymanopt.function.numpy(manifold)
    def cost(L):
        return loss_and_gradients(X, triplets, L, r)[0]

    @pymanopt.function.numpy(manifold)
    def euclidean_gradient(L):
        return loss_and_gradients(X, triplets, L, r)[1]

    problem = pymanopt.Problem(manifold, cost, euclidean_gradient=euclidean_gradient)
    optimizer = pymanopt.optimizers.ConjugateGradient(verbosity=0, min_gradient_norm=1e-8)
    start = random_subspace(d, l, np.random.default_rng(seed))
    return optimizer.run(problem, initial_point=start).cost


@every_weight
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 1000), guarded=st.booleans())
def test_loss_never_increases_and_L_stays_orthonormal(weight, dtype, seed, guarded):
    X, triplets, L, theta = random_problem(seed, n=50, d=12, l=4, T=200, weight=weight)
    guard = 0.01 if guarded else None
    result = fit_triplets(
        X.astype(dtype), triplets, L, theta, weight, max_iter=100, weight_ridge=guard, tol=0.0
    )
    assert (np.diff(result.history["loss"]) <= 0).all()
    tolerance = 1e-6 if dtype == np.float32 else 1e-12
    assert np.abs(result.L.T @ result.L - np.eye(4)).max() < tolerance
    assert result.L.dtype == dtype
    assert len(result.history["loss"]) == result.n_iter + 1


def test_the_printed_objective_collapses_on_positive_features_and_the_guard_prevents_it():
    X, triplets, L, theta = random_problem(11, positive=True, T=200)
    printed = fit_triplets(X, triplets, L, theta, max_iter=400)
    assert printed.loss == pytest.approx(200 * np.log(2), rel=1e-4)
    guarded = fit_triplets(X, triplets, L, theta, max_iter=400, weight_ridge=0.01)
    assert guarded.loss > 1.02 * 200 * np.log(2)


def test_reasons_to_stop_are_told():
    X, triplets, L, theta = random_problem(12)
    assert fit_triplets(X, triplets, L, theta, max_iter=0).message == "max_iter reached"
    assert fit_triplets(X, triplets, L, theta, max_iter=0).n_iter == 0
    stopped = fit_triplets(X, triplets, L, theta, callback=lambda state: state.iteration == 2)
    assert (stopped.n_iter, stopped.message) == (2, "stopped early on request")
    loose = fit_triplets(X, triplets, L, theta, tol=0.5)
    assert loose.converged
    assert "relative decrease" in loose.message
    constant = fit_triplets(X, triplets, L, None, "constant", max_iter=2000, tol=0.0)
    assert constant.converged


def test_a_start_that_is_not_orthonormal_is_made_so():
    X, triplets, L, theta = random_problem(13)
    skewed = L @ np.array([[2.0, 1, 0], [0, 1, 0], [0, 0, 5]])
    result = fit_triplets(X, triplets, skewed, theta, max_iter=0)
    np.testing.assert_allclose(result.L.T @ result.L, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(result.L @ result.L.T, L @ L.T, atol=1e-10)


def test_fixed_steps_follow_the_papers_updates():
    X, triplets, L, theta = random_problem(14)
    result = fit_triplets(X, triplets, L, theta, solver="gd", max_iter=1, learning_rate=0.7)
    _, grad_L, grad_r = loss_and_gradients(X, triplets, L, theta)
    eta = 0.7 / len(triplets)
    U, _, Vt = np.linalg.svd(L - eta * grad_L + eta * L @ (L.T @ grad_L), full_matrices=False)
    np.testing.assert_allclose(result.L, U @ Vt, atol=1e-12)
    np.testing.assert_allclose(result.theta, theta - eta * grad_r, atol=1e-12)


def test_small_fixed_steps_go_down():
    X, triplets, L, theta = random_problem(15)
    result = fit_triplets(X, triplets, L, theta, solver="gd", max_iter=30, learning_rate=0.1)
    assert (np.diff(result.history["loss"]) < 0).all()


def test_a_saved_state_continues_exactly():
    X, triplets, L, theta = random_problem(16, n=60, T=400)
    from rpml.method.objective.triplet_loss import TripletObjective

    saved = []

    def keep(state: SolverState) -> None:
        if state.iteration == 10:
            saved.append(replace(state, gradient=(), history=deepcopy(state.history)))

    problem = TripletObjective(X, triplets, weight_ridge=0.01)
    stopping = Stopping(25, gradient=0.0, decrease=0.0)
    whole = descend(problem, SolverState(L, theta), stopping, keep)
    fresh = TripletObjective(X, triplets, weight_ridge=0.01)
    resumed = descend(fresh, saved[0], stopping)
    assert whole.n_iter == resumed.n_iter > 10
    np.testing.assert_array_equal(whole.L, resumed.L)
    np.testing.assert_array_equal(whole.theta, resumed.theta)
    assert whole.history == resumed.history


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"L0": np.eye(9, 10)}, r"L0 must have shape \(9, l\) with l <= 9"),
        ({"L0": np.ones(9)}, r"L0 must have shape \(9, l\) with l <= 9, got \(9,\)"),
        ({"max_iter": -1}, "max_iter must not be negative, got -1"),
        ({"solver": "adam"}, "solver must be 'cg' or 'gd', got 'adam'"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    X, triplets, L, theta = random_problem(17)
    with pytest.raises(ValueError, match=message):
        fit_triplets(**({"X": X, "triplets": triplets, "L0": L, "theta0": theta} | change))


def test_steps_that_climb_have_not_converged():
    X, triplets, L, theta = random_problem(18)
    steps = {"solver": "gd", "learning_rate": 10.0, "max_iter": 20, "tol": 1e-5}
    result = fit_triplets(X, triplets, L, theta, weight_ridge=1.0, **steps)
    assert result.n_iter == 20
    assert result.history["loss"][-1] > 1e6 * result.history["loss"][0]
    assert (result.converged, result.message) == (False, "max_iter reached")


def test_a_gradient_of_zero_is_within_any_tolerance():
    problem = TripletObjective(np.zeros((3, 4)), [[0, 1, 2]], "constant", 45.0)
    result = descend(problem, SolverState(np.eye(4, 2), None), Stopping(gradient=0.0))
    assert (result.n_iter, result.message) == (0, "converged: gradient norm below tolerance")


def test_double_precision_ends_at_a_gradient_of_a_hundred_millionth_per_triplet():
    X, triplets, L, _ = random_problem(3, T=50)
    result = fit_triplets(X, triplets, L, weight="constant", max_iter=500, tol=0.0)
    *before, last = np.array(result.history["gradient_norm"]) / len(triplets)
    assert result.message == "converged: gradient norm below tolerance"
    assert last <= 1e-8 < min(before)


def test_a_direction_that_climbs_gives_way_to_steepest_descent():
    X, triplets, L, theta = random_problem(19)
    problem = TripletObjective(X, triplets, weight_ridge=0.01)
    start = SolverState(L, theta)
    descend(problem, start, Stopping(0))
    wrong = replace(start, direction=start.gradient, history=deepcopy(start.history))
    expected, found = (descend(problem, state, Stopping(1)) for state in (start, wrong))
    assert found.n_iter == 1
    np.testing.assert_array_equal(found.L, expected.L)
    np.testing.assert_array_equal(found.theta, expected.theta)


@pytest.mark.parametrize(("loss", "norm"), [(np.nan, 1.0), (np.inf, 1.0), (1.0, np.nan)])
def test_what_is_not_finite_has_failed(loss, norm):
    X, triplets, L, _ = random_problem(20)
    state = SolverState(L, None, loss, history={"gradient_norm": [norm], "loss": [loss]})
    reason = _reason_to_stop(TripletObjective(X, triplets, "constant"), Stopping(), state)
    assert reason == "failed: the loss is not finite"


@pytest.mark.parametrize("solver", ["cg", "gd"])
@pytest.mark.parametrize("ridge", [None, 0.01])
def test_without_triplets_the_start_is_the_end(solver, ridge):
    X, _, L, theta = random_problem(21)
    nothing = np.empty((0, 3), int)
    result = fit_triplets(X, nothing, L, theta, solver=solver, weight_ridge=ridge)
    assert (result.n_iter, result.loss, result.converged) == (0, 0.0, True)
    np.testing.assert_array_equal(result.L, L)
