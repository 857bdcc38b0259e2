"""Neighbour-scatter whitening: what it must find, and when it must stay with PCA."""

from __future__ import annotations

import numpy as np
import pytest

from rpml.evaluation.metrics import recall_at_k
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import (
    SHRINKAGES,
    ScatterChoice,
    coordinates,
    cross_scatter,
    neighbor_scatter,
    random_halves,
    shrinkage_share,
    split_half_agreement,
    whiten_by,
    whitening_map,
)


def nuisance_rows(seed=0, classes=60, per_class=10, d=40):
    """Many classes in all directions, blurred most along the strongest directions."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), per_class)
    rows = rng.standard_normal((classes, d))[y]
    blur = np.linspace(2.0, 0.1, d)  # the within-class spread, large where it misleads
    return rows + blur * rng.standard_normal(rows.shape), y


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


def test_the_share_of_the_floor_is_that_of_the_smoothed_scatter():
    X, _ = nuisance_rows()
    data, spectrum = sampled(X)
    scatter, _ = neighbor_scatter(data, np.random.default_rng(3))
    whitened = whiten_by(spectrum, scatter, 0.5, 12, False)
    L = np.eye(len(scatter), 12)
    share = shrinkage_share(whitened, ScatterChoice("neighbors", 0.5, {}), L)
    inner = whitened.matrix[:, :12]
    axes = spectrum.axes[:, : len(scatter)]
    np.testing.assert_allclose(
        inner.T @ axes @ scatter @ axes.T @ inner + share, np.eye(12), atol=1e-8
    )
    for none in (None, ScatterChoice("none", np.inf, {})):
        assert not shrinkage_share(whitened, none, L).any()


def test_the_scatter_is_positive_definite_and_less_than_the_total():
    X, _ = nuisance_rows()
    data, _ = sampled(X)
    scatter = cross_scatter(data, lambda half: data.W[:, half], 4, np.random.default_rng(2))
    assert np.linalg.eigvalsh(scatter)[0] > 0
    np.testing.assert_allclose(scatter, scatter.T)
    assert np.trace(scatter) < np.sum(data.deviations**2)


def test_retrieval_gains_where_the_strongest_directions_mislead():
    X, y = nuisance_rows()
    train, test = y < 40, y >= 40
    data, spectrum = sampled(X[train])
    scatter, choice = neighbor_scatter(data, np.random.default_rng(3))
    assert choice.source == "neighbors"
    assert set(choice.agreement) == set(SHRINKAGES)
    whitened = whiten_by(spectrum, scatter, choice.shrinkage, 12, False).apply(X[test])[:, :12]
    plain = whiten_by(spectrum, scatter, np.inf, 12, False).apply(X[test])[:, :12]
    gain = [recall_at_k(Z, y[test], ks=(1,))[1] for Z in (whitened, plain)]
    assert gain[0] > gain[1] + 0.03


def test_agreement_is_chance_on_noise_and_high_on_structure():
    rng = np.random.default_rng(4)
    noise, _ = sampled(rng.standard_normal((300, 40)))
    centres = np.repeat(rng.standard_normal((100, 40)), 3, axis=0)
    structure, _ = sampled(centres + 0.3 * rng.standard_normal((300, 40)))
    low = split_half_agreement(noise, np.eye(40), (np.inf,), rng)[0]
    high = split_half_agreement(structure, np.eye(40), (np.inf,), rng)[0]
    assert low < 0.03
    assert high > 0.3


def test_noise_stays_with_pca():
    data, _ = sampled(np.random.default_rng(6).standard_normal((400, 40)))
    _, choice = neighbor_scatter(data, np.random.default_rng(0))
    assert choice.source == "none"
    assert max(choice.agreement.values()) < 0.02


@pytest.mark.parametrize("shape", [(60, 30), (300, 3)])
def test_too_little_data_stays_with_pca(shape):
    data, _ = sampled(np.random.default_rng(5).standard_normal(shape), 2)
    _, choice = neighbor_scatter(data, np.random.default_rng(0))
    assert choice.source == "none"
    assert np.isinf(choice.shrinkage)


def test_the_same_seed_gives_the_same_choice():
    X, _ = nuisance_rows()
    data, _ = sampled(X)
    a, b = (neighbor_scatter(data, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(a[0], b[0])
    assert a[1] == b[1]
