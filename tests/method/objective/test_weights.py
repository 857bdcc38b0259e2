"""One property suite for every weight function, and the guard against collapse."""

from __future__ import annotations

import numpy as np
import pytest

from rpml.method.objective.weights import (
    WEIGHTS,
    as_columns,
    check_theta,
    logit_derivative,
    weight_function,
    weights_from_logits,
)
from tests.problems import ALL_WEIGHTS, random_problem

every_weight = pytest.mark.parametrize("name", ALL_WEIGHTS)
learnable = pytest.mark.parametrize("name", [n for n in ALL_WEIGHTS if n != "constant"])


def weights_at(name, X, triplets, theta, normalized=False):
    P = np.empty((len(X), 0)) if theta is None else X @ as_columns(theta, X.shape[1])
    return weights_from_logits(WEIGHTS[name].logits(P, triplets), normalized)


@every_weight
def test_weights_lie_between_zero_and_one(name):
    X, triplets, _, theta = random_problem(0, weight=name)
    w, _, factor = weights_at(name, 30 * X, triplets, theta)
    assert w.shape == (len(triplets),)
    assert factor == 1.0
    assert ((w >= 0) & (w <= 1)).all()


@every_weight
def test_a_start_is_accepted_and_has_the_right_shape(name):
    theta = WEIGHTS[name].initial(9, 3, np.random.default_rng(0))
    check_theta(name, theta, 9)
    again = WEIGHTS[name].initial(9, 3, np.random.default_rng(0))
    assert (theta is None) == (name == "constant")
    assert theta is None or np.array_equal(theta, again)


@learnable
def test_logits_along_a_line_are_the_stated_polynomial(name):
    X, triplets, _, theta = random_problem(1, weight=name)
    eta = np.random.default_rng(1).standard_normal(theta.shape)
    function = WEIGHTS[name]
    P, Q = X @ as_columns(theta, X.shape[1]), X @ as_columns(eta, X.shape[1])
    coefficients = function.on_line(P, Q, triplets)
    for t in (0.0, 0.5, -2.0):
        moved = X @ as_columns(theta + t * eta, X.shape[1])
        expected = function.logits(moved, triplets)
        along = sum(c * t**k for k, c in enumerate(coefficients))
        np.testing.assert_allclose(along, expected, atol=1e-10)


@learnable
@pytest.mark.parametrize("normalized", [False, True])
def test_pullback_equals_central_differences(name, normalized):
    X, triplets, _, theta = random_problem(2, weight=name)
    rng = np.random.default_rng(2)
    dw = rng.standard_normal(len(triplets))  # any linear function of the weights
    w, sigmoids, factor = weights_at(name, X, triplets, theta, normalized)
    ds = logit_derivative(sigmoids, w, dw, factor, normalized)
    function = WEIGHTS[name]
    rows = function.pullback(X @ as_columns(theta, X.shape[1]), triplets, ds)
    gradient = X.T @ rows if theta.ndim == 2 else (X.T @ rows).T.reshape(-1)
    eta = rng.standard_normal(theta.shape)
    h = 1e-6
    ahead, behind = (
        dw @ weights_at(name, X, triplets, theta + s * h * eta, normalized)[0] for s in (1, -1)
    )
    assert (ahead - behind) / (2 * h) == pytest.approx(np.vdot(gradient, eta), rel=1e-6)


@learnable
def test_guarded_weights_keep_their_mean_however_theta_moves(name):
    X, triplets, _, theta = random_problem(3, weight=name, positive=True)
    for scale in (0.1, 1.0, -5.0, -40.0):
        w, _, _ = weights_at(name, X, triplets, scale * np.abs(theta), normalized=True)
        assert w.mean() == pytest.approx(1.0)


def test_constant_is_one_and_takes_no_theta():
    X, triplets, _, _ = random_problem(4, weight="constant")
    w, _, _ = weights_at("constant", X, triplets, None)
    assert (w == 1).all()
    with pytest.raises(ValueError, match="no parameters"):
        check_theta("constant", np.zeros(3), 3)


def test_unknown_name():
    with pytest.raises(ValueError, match="weight must be one of"):
        weight_function("median")
