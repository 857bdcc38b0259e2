import numpy as np
import pytest

from rpml.method.calibration import SCALE_LEVELS, AxisRanges, SimilarityScale
from rpml.runtime.rows import unit_rows


@pytest.fixture(scope="module")
def scale():
    rng = np.random.default_rng(0)
    return SimilarityScale.from_rows(
        rng.normal(size=(400, 8)) + np.repeat(np.eye(8), 50, axis=0) * 4
    )


def test_the_quantile_is_the_share_of_less_similar_pairs():
    rng = np.random.default_rng(1)
    Y = rng.normal(size=(300, 6))
    Z = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    pairs = (Z @ Z.T)[np.triu_indices(300, 1)]
    scale = SimilarityScale.from_rows(Y)
    for similarity in (-0.5, 0.0, 0.3, 0.8):
        assert scale.quantile(similarity) == pytest.approx(np.mean(pairs < similarity), abs=0.005)


def test_it_rises_from_zero_to_one(scale):
    values = scale.quantile(np.linspace(-1, 1, 101))
    assert values[0] == 0
    assert values[-1] == 1
    assert (np.diff(values) >= 0).all()


def test_neighbors_are_a_harder_measure_than_random_pairs(scale):
    assert scale.quantile(0.8, "nearest") < 0.5 < 0.85 < scale.quantile(0.8)


def test_the_tail_is_finer_than_the_rest(scale):
    assert 1 - scale.levels[-2] == pytest.approx(1e-6, rel=0.1)


def test_other_pairs_are_refused(scale):
    with pytest.raises(ValueError, match="random, nearest"):
        scale.quantile(0.5, "farthest")


@pytest.mark.parametrize("n", [2, 3, 500])
def test_quantiles_are_those_of_numpy(n):
    Y = np.random.default_rng(2).normal(size=(n, 5)).astype(np.float32)
    Z = unit_rows(Y)
    pairs = (Z @ Z.T)[np.triu_indices(n, 1)]
    scale = SimilarityScale.from_rows(Y)
    np.testing.assert_allclose(
        scale.random, np.quantile(pairs.astype(float), SCALE_LEVELS), atol=2e-5
    )


def test_rows_without_a_first_component_do_not_say_how_prefixes_grow():
    Y = np.array([[0.0, 1.0, 0.0], [0.0, 0.6, 0.8]])
    np.testing.assert_array_equal(AxisRanges.from_rows(Y, unit=True).growth, 1)
    Y = np.append(Y, [[0.6, 0.0, 0.8]], axis=0)
    np.testing.assert_allclose(AxisRanges.from_rows(Y, unit=True).growth, [1 / 0.6, 1 / 0.6, 1])
