"""The scatter within cross-fitted neighborhoods, and the whitening by it."""

from __future__ import annotations

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.metrics import recall_at_k
from rpml.io.datasets.demos import load_solutions
from rpml.method.whitening.constants import KAPPA, NEIGHBORS, SIDES
from rpml.method.whitening.evidence import ScatterChoice
from rpml.method.whitening.linear_map import principal_axes
from rpml.method.whitening.neighborhoods import (
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
    spectrum = principal_axes(X, unit_input=False)
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
    from rpml.method.whitening.neighborhoods import _quarters

    for q in (8, 31):
        together = np.zeros((q, q), int)
        hands = _quarters(q, np.random.default_rng(q))
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


def test_the_scatter_is_that_within_the_classes():
    """Rows whose neighbors are of their class show the scatter that they were drawn with."""
    rng = np.random.default_rng(0)
    d, classes, per_class = 24, 60, 30
    between, within = np.linspace(1.5, 0.9, d), rng.permuted(np.linspace(0.25, 0.75, d))
    y = np.repeat(np.arange(classes), per_class)
    X = rng.standard_normal((classes, d))[y] * between + rng.standard_normal((len(y), d)) * within
    data, spectrum = sampled(X)
    found = scatter_of(cross_fitted_correlation(data, 3, rng) / KAPPA, data.deviations)
    centered = X - np.stack([X[y == c].mean(axis=0) for c in range(classes)])[y]
    axes = spectrum.axes[:, : len(found)]
    known = (centered @ axes).T @ (centered @ axes) / (len(y) - classes)
    # random neighbors of one class are correct; nearest ones are a little nearer
    assert np.trace(found) == pytest.approx(np.trace(known), rel=0.15)
    np.testing.assert_allclose(np.diag(found), np.diag(known), rtol=0.5)
    assert np.corrcoef(np.diag(found), np.diag(known))[0, 1] > 0.85


def literal_correlation(W, parts, seen):
    """Neighbors by two of the four parts of the axes, measured on the other two, pair by pair."""
    n, q = W.shape
    total, count = np.zeros((q, q)), np.zeros((q, q))
    for i, j in SIDES:
        rows = np.concatenate([seen[i], seen[j]], axis=1)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        pairs = []
        for a in range(n):
            cosines = rows @ rows[a]
            cosines[a] = -np.inf
            pairs += [(a, int(b)) for b in np.argsort(-cosines)[:NEIGHBORS]]
        ends = np.array(pairs + [(b, a) for a, b in pairs])
        unseen = np.flatnonzero(~(parts[i] | parts[j]))
        left, right = W[ends[:, 0]][:, unseen], W[ends[:, 1]][:, unseen]
        for u, x in enumerate(unseen):
            for v, z in enumerate(unseen):
                total[x, z] += np.corrcoef(left[:, u], right[:, v])[0, 1]
                count[x, z] += 1
    mean = total / np.maximum(count, 1)
    return mean * KAPPA / max(1.0, np.linalg.eigvalsh(mean)[-1])


def test_the_correlation_is_that_of_a_literal_computation():
    X, _ = blobs(1, classes=8, per_class=10, d=14, spread=np.linspace(1.0, 0.3, 14))
    data, _ = sampled(X, 6)
    W, q = data.W.astype(float), data.W.shape[1]
    rng = np.random.default_rng(5)

    def deal():
        part = rng.permuted(np.tile(np.arange(4), (-(-q // 4), 1)), axis=1).reshape(-1)[:q]
        return [part == i for i in range(4)]

    parts = deal()
    first = literal_correlation(W, parts, [(W * np.sqrt(data.deviations))[:, p] for p in parts])
    scatter = np.diag(data.deviations) @ (np.eye(q) - first) @ np.diag(data.deviations)
    parts, seen = deal(), []
    for part in parts:  # whitened by themselves: x'(S + tr S/q I)^-1 y are the inner products
        smoothed = scatter[np.ix_(part, part)] + np.trace(scatter) / q * np.eye(int(part.sum()))
        seen.append((W * data.deviations)[:, part] @ np.linalg.inv(np.linalg.cholesky(smoothed)).T)
    expected = literal_correlation(W, parts, seen)
    found = cross_fitted_correlation(data, 3, np.random.default_rng(5))
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_the_gain_on_the_programs_of_the_demonstration():
    """Nearly all of it is the whitening; half of the correlation would give 0.883."""
    train, test = load_solutions()
    scores = [
        recall_at_k(RPML(32, random_state=seed).fit(train.vectors).transform(test.vectors),
                    test.problem, ks=(1,))[1]
        for seed in range(2)
    ]  # fmt: skip
    assert 0.896 < np.mean(scores) < 0.914


@pytest.mark.parametrize("scatter", [-1e-9, 0.0, 1e-8])
def test_a_scatter_of_rounding_errors_whitens_nothing(scatter):
    spread = np.array([[3.0, 1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(whitening_map(scatter * np.eye(2), spread, 0.1, 2), np.eye(2))
