"""Rows of any size and of no variety: the unit does not matter, rounding is not structure."""

import warnings

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.metrics import recall_at_k
from rpml.runtime.rows import common_scale

DTYPES = [np.float32, np.float64]


def rows(dtype=np.float64):
    rng = np.random.default_rng(0)
    classes = rng.normal(size=(6, 8))[np.arange(90) % 6]
    return (classes + 0.3 * rng.normal(size=(90, 8))).astype(dtype)


def fit(X, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        settings = {"n_neighbors": 8, "training": "always", "max_iter": 5, **settings}
        return RPML(3, random_state=0, **settings).fit(X)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("settings", [{}, {"normalize_input": False}], ids=["unit", "as given"])
def test_the_unit_of_the_rows_does_not_matter(dtype, settings):
    X = rows(dtype)
    expected = fit(X, **settings).transform(X)
    for power in (-100, -66, -10, 7, 66, 100):  # 2^100 is 1e30
        scaled = X * dtype(2.0**power)
        model = fit(scaled, **settings)
        assert model.n_iter_ > 0
        np.testing.assert_allclose(model.transform(scaled), expected, atol=1e-4)
        np.testing.assert_array_equal(model.exemplar_vectors_, scaled[model.exemplars_.rows])


@pytest.mark.parametrize("scale", [1e150, 1e300, 1e-150])
@pytest.mark.parametrize("settings", [{}, {"normalize_input": False}], ids=["unit", "as given"])
def test_rows_beyond_single_precision(scale, settings, tmp_path):
    X = rows() * scale
    model = fit(X, **settings)
    assert np.isfinite(model.transform(X)).all()
    model.save(tmp_path / "m.rpml")
    found, expected = (m.transform(X) for m in (RPML.load(tmp_path / "m.rpml"), model))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_numbers_of_a_dtype(dtype):
    X = rows(dtype)
    largest = X / np.abs(X).max() * np.finfo(dtype).max
    np.testing.assert_allclose(fit(largest).transform(X), fit(X).transform(X), atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_on_one_line_vary_in_one_direction(dtype):
    rng = np.random.default_rng(1)
    X = np.outer(rng.uniform(1, 2, 200), rng.normal(size=16)).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = RPML(random_state=0, n_neighbors=8, normalize_input=False).fit(X)
    assert model.transform(X).shape == (200, 1)
    with pytest.raises(ValueError, match="1 direction in which"):
        RPML(4, normalize_input=False).fit(X)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_on_both_sides_of_the_origin_are_two_points(dtype):
    """Of unit norm; single-precision moments have several axes more, all of rounding errors."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.normal(size=400), rng.normal(size=16)).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = RPML(random_state=0, n_neighbors=8, training="always").fit(X)
    assert model.transform(X).shape == (400, 1)
    assert len(set(model.labels_.tolist())) == 2


def test_rows_that_differ_by_rounding_alone_are_the_same():
    X = np.outer(np.random.default_rng(1).uniform(1, 2, 200), np.arange(1.0, 17)).astype("f4")
    with pytest.raises(ValueError, match="all the same after scaling to unit norm"):
        RPML().fit(X)
    far = (rows() + 1e7).astype("f4")
    with pytest.raises(ValueError, match="by no more than rounding errors"):
        RPML(normalize_input=False).fit(far)


def test_common_scale_is_a_power_of_two_near_the_norms():
    for factor in (1e-300, 1.0, 1e300):
        scale = common_scale(rows() * factor)
        assert np.frexp(scale)[0] == 0.5
        norms = np.linalg.norm(rows() / (scale / factor), axis=1)
        assert 0.5 < np.sqrt(np.mean(norms**2)) < 2
    assert common_scale(np.zeros((2, 2))) == 1


@pytest.mark.parametrize(
    ("y", "ks", "reason"),
    [
        (np.zeros(90, int), 1, "one class"),
        (np.arange(90), 1, "no class has two rows"),
        (np.arange(90) % 6, (1, 100), "all 89 other rows"),
    ],
)
def test_a_recall_that_says_nothing_is_not_reported_in_silence(y, ks, reason):
    with pytest.warns(UserWarning, match=reason):
        recall_at_k(rows(), y, ks)
