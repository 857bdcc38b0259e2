import numpy as np
import pytest

from rpml import RPML
from rpml.method.settings import fit_shape
from rpml.runtime.context import MIN_BLOCKS, WORKING_MEMORY, Shape, held, peak, working_memory

MILLION = Shape(n=1_000_000, d=128, n_components=64, n_neighbors=50, n_triplets=400_000)


def test_a_million_rows_as_measured(monkeypatch):
    """Not below what benchmarks/results/scaling.json measured on two cores, nor far above it."""
    monkeypatch.setattr("rpml.runtime.context.thread_count", lambda: 2)
    measured = 3012 * 2**20
    assert measured < peak(MILLION) < 1.2 * measured


def test_mapped_rows_take_nothing():
    mapped = Shape(**{**MILLION.__dict__, "mapped": True})
    assert held(MILLION) - held(mapped) == 4 * 128 * 1_000_000


def test_a_limit_leaves_smaller_blocks():
    need = held(MILLION)
    assert working_memory(MILLION, None) == WORKING_MEMORY
    assert working_memory(MILLION, 2 * need) == WORKING_MEMORY
    assert working_memory(MILLION, need + 2 * MIN_BLOCKS) == 2 * MIN_BLOCKS


def test_too_small_a_limit_is_refused_before_any_work():
    calls = []
    X = np.random.default_rng(0).normal(size=(500, 8))
    model = RPML(2, memory_limit=1_000_000, callback=calls.append)
    with pytest.raises(ValueError, match=r"memory_limit=1000000 .* needs about .* GB"):
        model.fit(X)
    assert calls == []


def test_smaller_blocks_give_the_same_model():
    X = np.random.default_rng(0).normal(size=(600, 12)).astype(np.float32)
    X[:300] += 2
    free = RPML(4, training="always", random_state=0).fit(X)
    shape = fit_shape(RPML(4), 600, X, mapped=False)
    tight = RPML(4, training="always", random_state=0, memory_limit=held(shape) + MIN_BLOCKS).fit(X)
    np.testing.assert_array_equal(free.labels_, tight.labels_)
    np.testing.assert_allclose(free.components_, tight.components_)
