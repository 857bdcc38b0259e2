"""The formulas of the manifold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpml.method.solver.conjugate_gradient import (
    PolarCurve,
    inner,
    orthonormalize,
    project,
    random_subspace,
    retract,
)

shapes = st.tuples(st.integers(0, 1000), st.integers(1, 6), st.integers(0, 8))


def tangent(rng, L, length=1.0):
    xi = project(L, rng.standard_normal(L.shape))
    return length * xi


@settings(max_examples=40, deadline=None)
@given(shapes, st.floats(1e-3, 30))
def test_retraction_is_the_polar_factor_and_orthonormal(shape, length):
    seed, l, extra = shape
    rng = np.random.default_rng(seed)
    L = random_subspace(l + extra, l, rng)
    xi = tangent(rng, L, length)
    moved = retract(L, xi)
    U, _, Vt = np.linalg.svd(L + xi, full_matrices=False)
    np.testing.assert_allclose(moved, U @ Vt, atol=1e-9)
    # long steps: the eigenvalues of xi'xi are rounded relative to the largest
    np.testing.assert_allclose(moved.T @ moved, np.eye(l), atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(shapes)
def test_projection_is_horizontal_and_idempotent(shape):
    seed, l, extra = shape
    rng = np.random.default_rng(seed)
    L = random_subspace(l + extra, l, rng)
    xi = tangent(rng, L)
    assert np.abs(L.T @ xi).max() < 1e-12
    np.testing.assert_allclose(project(L, xi), xi, atol=1e-12)


def test_retraction_is_first_order():
    rng = np.random.default_rng(0)
    L = random_subspace(8, 3, rng)
    xi = tangent(rng, L)
    for t in (1e-3, 1e-4):
        error = np.linalg.norm(retract(L, t * xi) - (L + t * xi))
        assert error < 10 * t**2


def test_curve_is_the_retraction_up_to_its_rotation():
    rng = np.random.default_rng(1)
    L = random_subspace(9, 4, rng)
    xi = tangent(rng, L)
    curve = PolarCurve.through(L, xi)
    for t in (0.0, 0.5, 3.0):
        point = curve.point(t) @ curve.rotation.T
        np.testing.assert_allclose(point, retract(L, t * xi), atol=1e-12)


def test_inner_product_is_the_sum_over_the_parts():
    rng = np.random.default_rng(2)
    u, v = ((rng.standard_normal((6, 2)), rng.standard_normal(12)) for _ in range(2))
    assert inner(u, v) == pytest.approx(np.sum(u[0] * v[0]) + u[1] @ v[1])
    assert inner(u[:1], v[:1]) == pytest.approx(np.sum(u[0] * v[0]))


def test_random_points_depend_on_the_seed_alone():
    points = [random_subspace(5, 2, np.random.default_rng(s)) for s in (3, 3, 4)]
    np.testing.assert_array_equal(points[0], points[1])
    assert not np.allclose(points[0], points[2])


def test_orthonormalize_removes_drift():
    rng = np.random.default_rng(4)
    L = random_subspace(7, 3, rng)
    drifted = L + 1e-6 * rng.standard_normal(L.shape)
    fixed = orthonormalize(drifted)
    np.testing.assert_allclose(fixed.T @ fixed, np.eye(3), atol=1e-14)
    assert np.abs(fixed - drifted).max() < 5e-6
