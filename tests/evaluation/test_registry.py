"""Each baseline against its definition, and all of them against the shared contract."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.utils.estimator_checks import parametrize_with_checks

from rpml.evaluation.metrics import recall_at_k
from rpml.evaluation.registry import LDA, METHODS, NCA, PCA, RandomProjection, Truncation

SUPERVISED = {"lda", "nca"}
LABEL_FREE = ("raw", "random", "pca", "pca-whitened", "half-whitened")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    known = y < 5
    return X[known], y[known], X[~known], y[~known]


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def same_up_to_sign(A, B):
    return np.allclose(np.abs(A), np.abs(B), atol=1e-6)


BASELINES = (
    *(Truncation(None), Truncation(1), RandomProjection(1), PCA(1)),
    *(LDA(1), NCA(1)),
)


@parametrize_with_checks(list(BASELINES))
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", [*LABEL_FREE, *sorted(SUPERVISED)])
def test_shared_contract(name, digits):
    X, y, new, _ = digits
    X = X.astype(np.float32)
    method = METHODS[name].build(4, 0).fit(X, y)
    Z = method.transform(new.astype(np.float32))
    assert Z.shape == (len(new), X.shape[1] if name == "raw" else 4)
    assert Z.dtype == np.float32
    assert np.allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-5)
    assert len(method.get_feature_names_out()) == Z.shape[1]
    assert np.allclose(method.transform(7 * new.astype(np.float32)), Z, atol=1e-5)
    assert np.array_equal(clone(method).fit(X, y).transform(new.astype(np.float32)), Z)
    assert method.uses_labels == METHODS[name].uses_labels == (name in SUPERVISED)


@pytest.mark.parametrize("name", LABEL_FREE)
def test_label_free_methods_ignore_labels(name, digits):
    X, y, new, _ = digits
    shuffled = np.random.default_rng(0).permutation(y)
    with_labels = METHODS[name].build(4, 0).fit(X, y).transform(new)
    assert np.array_equal(METHODS[name].build(4, 0).fit(X).transform(new), with_labels)
    assert np.array_equal(METHODS[name].build(4, 0).fit(X, shuffled).transform(new), with_labels)


def test_random_projection_is_orthonormal_and_follows_its_seed(digits):
    X = digits[0]
    first, second, other = (RandomProjection(10, random_state=s).fit(X) for s in (0, 0, 1))
    assert np.allclose(first.map_.matrix.T @ first.map_.matrix, np.eye(10), atol=1e-12)
    assert np.array_equal(first.map_.matrix, second.map_.matrix)
    assert not np.allclose(first.map_.matrix, other.map_.matrix)


@pytest.mark.parametrize("whiten", [False, True])
def test_pca_equals_scikit_learn(digits, whiten):
    X, _, new, _ = digits
    reference = SklearnPCA(8, whiten=whiten, svd_solver="full").fit(unit(X))
    ours = PCA(8, exponent=float(whiten)).fit(X).transform(new)
    assert same_up_to_sign(ours, unit(reference.transform(unit(new))))


def test_half_whitening_leaves_the_square_root_of_each_deviation(digits):
    X = digits[0]
    plain, half, full = (PCA(6, exponent=e).fit(X).map_ for e in (0, 0.5, 1))
    deviation = ((unit(X) - plain.mean) @ plain.matrix).std(axis=0)
    relative = deviation / deviation[0]
    assert np.allclose(half.matrix * np.sqrt(relative), plain.matrix, atol=1e-8)
    assert np.allclose(full.matrix * relative, plain.matrix, atol=1e-8)


def test_truncation_takes_the_first_columns(digits):
    X, _, new, _ = digits
    assert np.allclose(Truncation(20).fit(X).transform(new), unit(new[:, :20]))


def test_labels_help_on_the_classes_they_belong_to(digits):
    X, y, _, _ = digits
    plain = recall_at_k(PCA(4).fit(X).transform(X), y, ks=1)[1]
    for method in (LDA(4), NCA(4)):
        assert recall_at_k(method.fit(X, y).transform(X), y, ks=1)[1] > plain


def test_nca_learns_from_a_sample_of_many_rows(digits, monkeypatch):
    X, y, new, _ = digits
    monkeypatch.setattr("rpml.evaluation.registry.NCA_ROWS", 100)
    small = NCA(3, random_state=0)
    assert small.fit(X, y).transform(new).shape == (len(new), 3)


@pytest.mark.parametrize(
    ("method", "most"),
    [(RandomProjection(65), 64), (PCA(64), 61), (NCA(64), 61)],
    ids=lambda value: type(value).__name__,
)
def test_too_many_components_name_the_limit(method, most, digits):
    X, y, _, _ = digits
    said = rf"n_components={method.n_components} does not suit .* at most {most} here"
    with pytest.raises(ValueError, match=said):
        method.fit(X, y)


@pytest.mark.parametrize(
    ("method", "y", "message"),
    [
        (LDA(1), None, "requires y"),
        (LDA(1), [0, 1], "inconsistent numbers of samples"),
        (LDA(1), [0, 0, 0, 0], "at least 2 classes"),
        (NCA(1), None, "requires y"),
    ],
)
def test_bad_labels_and_settings_get_one_sentence(method, y, message):
    X = np.random.default_rng(0).normal(size=(4, 3))
    with pytest.raises(ValueError, match=message):
        method.fit(X, y)
