"""The scatter within cross-fitted neighborhoods, and the whitening by it."""

from __future__ import annotations

import numpy as np

from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import (
    ScatterChoice,
    coordinates,
    cross_fitted_correlation,
    random_halves,
    scatter_of,
    shrinkage_share,
    whiten_by,
    whitening_map,
)
from tests.problems import blobs


def nuisance_rows(seed=0, classes=60, per_class=10, d=40):
    """Many classes in all directions, blurred most along the strongest directions."""
    return blobs(seed, classes, per_class, d, spread=np.linspace(2.0, 0.1, d))


def sampled(X, n_components=12):
    spectrum = principal_axes(X, unit_input=False, center=True)
    return coordinates(X, np.arange(len(X)), spectrum, False, n_components), spectrum


def test_coordinates_are_whitened_rows():
    X, _ = nuisance_rows()
    data, _ = sampled(X)
    np.testing.assert_allclose(data.W.T @ data.W / len(X), np.eye(data.W.shape[1]), atol=1e-4)


def test_halves_are_disjoint_complete_and_similar():
    rng = np.random.default_rng(0)
    for q in (4, 7, 50):
        half = random_halves(q, rng)
        assert half.shape == (q,)
        assert abs(int(half.sum()) - q / 2) <= 1
        pairs = half[: q // 2 * 2].reshape(-1, 2)
        assert (pairs.sum(axis=1) == 1).all()


def test_the_map_solves_the_whitening_problem():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((6, 6))
    scatter, total = A @ A.T, np.diag([9.0, 4, 2, 1, 0.5, 0.1])
    M = whitening_map(scatter, total, 0.5, 3)
    smoothed = scatter + 0.5 * np.trace(scatter) / 3 * np.eye(6)
    np.testing.assert_allclose(M.T @ smoothed @ M, np.eye(6), atol=1e-9)
    spread = M.T @ total @ M
    np.testing.assert_allclose(spread, np.diag(np.diag(spread)), atol=1e-9)
    assert (np.diff(np.diag(spread)) <= 1e-9).all()
    np.testing.assert_array_equal(whitening_map(scatter, total, np.inf, 3), np.eye(6))


def test_the_share_of_the_shrinkage_is_that_of_the_smoothed_scatter():
    X, _ = nuisance_rows()
    data, spectrum = sampled(X)
    scatter = scatter_of(
        cross_fitted_correlation(data, 2, np.random.default_rng(3)), data.deviations
    )
    choice = ScatterChoice("neighbors", 0.5, {})
    whitened = whiten_by(spectrum, scatter, choice, 12, False)
    L = np.eye(len(scatter), 12)
    share = shrinkage_share(whitened, choice, L)
    inner = whitened.matrix[:, :12]
    axes = spectrum.axes[:, : len(scatter)]
    np.testing.assert_allclose(
        inner.T @ axes @ scatter @ axes.T @ inner + share, np.eye(12), atol=1e-8
    )
    for none in (None, ScatterChoice("none", np.inf, {})):
        assert not shrinkage_share(whitened, none, L).any()


def test_rescaling_whitens_by_the_scatter_and_its_ridge():
    X, _ = nuisance_rows()
    data, spectrum = sampled(X)
    correlation = cross_fitted_correlation(data, 2, np.random.default_rng(3))
    scatter = scatter_of(correlation, data.deviations)
    choice = ScatterChoice("neighbors", np.inf, {}, ridge=1 / 32)
    inner = (
        spectrum.axes[:, : len(scatter)].T @ whiten_by(spectrum, scatter, choice, 12, True).matrix
    )
    smoothed = scatter + np.trace(scatter) / 32 * np.eye(len(scatter))
    np.testing.assert_allclose(inner.T @ smoothed @ inner, np.eye(len(scatter)), atol=1e-8)
    np.testing.assert_allclose(np.tril(inner, -1), 0, atol=1e-8)


def test_the_scatter_is_positive_definite_and_less_than_the_total():
    X, _ = nuisance_rows()
    data, _ = sampled(X)
    correlation = cross_fitted_correlation(data, 2, np.random.default_rng(2))
    scatter = scatter_of(correlation, data.deviations)
    assert np.linalg.eigvalsh(scatter)[0] > 0
    np.testing.assert_allclose(scatter, scatter.T)
    assert np.trace(scatter) < np.sum(data.deviations**2)


def test_every_two_axes_are_measured_together_by_three_halvings():
    from rpml.method.whitening.constants import SIDES
    from rpml.method.whitening.neighborhoods import _deal

    for q in (8, 31):
        together = np.zeros((q, q), int)
        hands = _deal(q, np.random.default_rng(q))
        for i, j in SIDES:
            half = hands[i] | hands[j]
            together[np.ix_(half, half)] += 1
        assert together.min() >= 1


def test_the_scatter_is_small_where_neighbors_agree():
    X, _ = nuisance_rows()
    data, spectrum = sampled(X)
    correlation = cross_fitted_correlation(data, 2, np.random.default_rng(2))
    shared = np.einsum("ij,jk,ik->i", spectrum.axes[:, :40], correlation, spectrum.axes[:, :40])
    assert shared[-10:].mean() > shared[:10].mean() + 0.1  # the last directions have no blur


def test_a_large_offset_does_not_blur_the_coordinates():
    X, _ = nuisance_rows()
    expected, shifted = sampled(X)[0].W, sampled(X + 1e8)[0].W
    np.testing.assert_allclose(np.abs(shifted), np.abs(expected), atol=1e-4)
