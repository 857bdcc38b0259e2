"""Preprocessing against scikit-learn's PCA and its own promises."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from rpml.method.whitening.linear_map import identity, principal_axes, whitening
from rpml.runtime import rows as shared
from rpml.runtime.rows import row_blocks, unit_rows


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((200, 12)) * np.linspace(3, 0.5, 12) + 2.0


@pytest.mark.parametrize("n", [200, 8])
def test_axes_and_variances_are_pcas(rows, n):
    X = rows[:n]
    spectrum = principal_axes(X, unit_input=False)
    pca = PCA(min(n - 1, 12)).fit(X)
    np.testing.assert_allclose(spectrum.variances * n / (n - 1), pca.explained_variance_)
    np.testing.assert_allclose(spectrum.mean, pca.mean_)
    overlap = np.abs(np.sum(spectrum.axes * pca.components_.T, axis=0))
    np.testing.assert_allclose(overlap, 1.0, atol=1e-9)


def test_full_whitening_gives_unit_covariance(rows):
    spectrum = principal_axes(rows, unit_input=False)
    Z = whitening(spectrum, 1.0, 12, False, False).apply(rows)
    covariance = Z.T @ Z / len(Z)
    np.testing.assert_allclose(covariance, covariance[0, 0] * np.eye(12), atol=1e-9)


def test_half_whitening_takes_the_square_root_of_the_deviations(rows):
    spectrum = principal_axes(rows, unit_input=False)
    Z = whitening(spectrum, 0.5, 12, False, False).apply(rows)
    expected = np.sqrt(spectrum.variances[0]) * np.sqrt(np.sqrt(spectrum.variances))
    np.testing.assert_allclose(Z.std(axis=0) ** 2, expected**2 / np.sqrt(spectrum.variances[0]))


def test_blocks_do_not_change_the_result(rows, monkeypatch):
    whole = principal_axes(rows, unit_input=True)
    Z = whitening(whole, 0.5, 6, True, True).apply(rows)
    monkeypatch.setattr(shared, "BLOCK_BYTES", 7 * 12 * 8)
    assert len(list(row_blocks(rows))) == 29
    blocked = principal_axes(rows, unit_input=True)
    np.testing.assert_allclose(blocked.axes, whole.axes, atol=1e-10)
    np.testing.assert_allclose(whitening(blocked, 0.5, 6, True, True).apply(rows), Z, atol=1e-10)


def test_float16_is_computed_in_float32(rows):
    half = rows.astype(np.float16)
    spectrum = principal_axes(half, unit_input=True)
    Z = whitening(spectrum, 0.0, 4, True, True).apply(half)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1.0, atol=1e-6)


def test_directions_without_variance_are_left_out(rows):
    X = np.hstack([rows, rows[:, :3] * 2, np.ones((200, 2))])
    assert len(principal_axes(X, unit_input=False).variances) == 12


def test_unit_rows_survive_zeros_and_huge_values():
    X = np.array([[0.0, 0.0], [3e200, 4e200], [3e-200, 4e-200]])
    np.testing.assert_allclose(unit_rows(X), [[0, 0], [0.6, 0.8], [0.6, 0.8]])


def test_identity_only_scales(rows):
    np.testing.assert_allclose(identity(12, True).apply(rows), unit_rows(rows))
    np.testing.assert_array_equal(identity(12, False).apply(rows), rows)


@pytest.mark.parametrize("row", [3, 1500])
def test_a_row_whose_embedding_overflows_is_named(row):
    X = np.ones((2000, 4), np.float32)
    X[row] = 3e38
    with pytest.raises(ValueError, match=rf"the embedding of row {row} \(counted from 0\)"):
        identity(4, False).embed(X, np.ones((1, 4)), unit=False)
