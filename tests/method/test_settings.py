import re

import numpy as np
import pytest

from rpml import RPML
from rpml.method.settings import MIN_BLOCKS, fit_memory, search_memory
from rpml.runtime.context import WORKING_MEMORY

MILLION = RPML(64, subsample=None)
LIKE = np.empty((0, 128), np.float32)


def test_a_million_rows_as_measured(monkeypatch):
    """Not below what benchmarks/results/scaling.json measured on two cores, nor far above it."""
    monkeypatch.setattr("rpml.method.settings.thread_count", lambda: 2)
    measured = 3012 * 2**20
    assert measured < fit_memory(MILLION, 1_000_000, LIKE, mapped=False)[1] < 1.2 * measured


@pytest.mark.parametrize(
    ("model", "shape", "dtype", "peak"),
    [  # what takes most: the scatter, the graph, the embedded rows, the triplets
        (
            RPML(8, n_neighbors=2, triplets_per_anchor=1),
            (15_000, 600),
            "float32",
            16 * 15_000 * 512,
        ),
        (
            RPML(64, n_neighbors=400, max_triplets=10, subsample=None),
            (90_001, 96),
            "float64",
            90_001 * 96 * 8 + 34 * 400 * 90_001,
        ),
        (
            RPML(96, n_neighbors=5, subsample=None),
            (50_000, 100),
            "float16",
            50_000 * 100 * 4 + 8 * 5 * 50_000 + 50_000 * 96 * 4 * (4 + 3) + 60 * 4 * 50_000,
        ),
        (
            RPML(n_neighbors=5, triplets_per_anchor=90, max_triplets=5_000_000, subsample=70_000),
            (250_007, 300),
            "float32",
            70_000 * 300 * 4 * 2  # the sample itself, and preprocessed
            + 8 * 5 * 70_000 + 70_000 * 128 * 4 * (4 + 3) + 60 * 5_000_000,
        ),
    ],
)  # fmt: skip
def test_the_terms_of_the_peak(model, shape, dtype, peak, monkeypatch):
    monkeypatch.setattr("rpml.method.settings.thread_count", lambda: 3)
    (n, d), like = shape, np.empty((0, shape[1]), dtype)
    held = 300 * 2**20 + peak
    n_used = min(n, model.subsample or n)
    blocks = min(WORKING_MEMORY // 2, 17 * n_used * d)
    assert fit_memory(model, n, like, mapped=True) == (held, held + blocks)
    assert fit_memory(model, n, like, mapped=False)[0] == held + n * d * like.dtype.itemsize


def test_mapped_rows_take_nothing():
    read, mapped = (fit_memory(MILLION, 1_000_000, LIKE, mapped)[0] for mapped in (False, True))
    assert read - mapped == 4 * 128 * 1_000_000


def test_a_limit_leaves_smaller_blocks():
    need = fit_memory(MILLION, 1_000_000, LIKE, mapped=False)[0]

    def limited(limit):
        model = RPML(64, subsample=None, memory_limit=limit)
        return search_memory(model, 1_000_000, LIKE, mapped=False)

    assert limited(None) == WORKING_MEMORY
    assert limited(2 * need) == WORKING_MEMORY
    assert limited(need + 2 * MIN_BLOCKS) == 2 * MIN_BLOCKS


def test_too_small_a_limit_is_refused_before_any_work():
    calls = []
    X = np.random.default_rng(0).normal(size=(500, 8))
    model = RPML(2, memory_limit=1_000_000, callback=calls.append)
    with pytest.raises(ValueError, match=r"memory_limit=1000000 .* needs about .* GB"):
        model.fit(X)
    assert calls == []


@pytest.mark.parametrize("n", [1_000_000, 3_000_000])
def test_the_memory_that_is_named_is_enough(n):
    with pytest.raises(ValueError, match="needs about") as refused:
        search_memory(RPML(64, subsample=None, memory_limit=1), n, LIKE, mapped=False)
    named = float(re.search(r"about (\S+) GB", str(refused.value)).group(1))
    least = fit_memory(RPML(64, subsample=None), n, LIKE, mapped=False)[0] + MIN_BLOCKS
    assert named * 2**30 == pytest.approx(least, abs=0.01 * 2**30)


def test_smaller_blocks_give_the_same_model():
    X = np.random.default_rng(0).normal(size=(600, 12)).astype(np.float32)
    X[:300] += 2
    free = RPML(4, training="always", random_state=0).fit(X)
    held = fit_memory(RPML(4), 600, X, mapped=False)[0]
    tight = RPML(4, training="always", random_state=0, memory_limit=held + MIN_BLOCKS).fit(X)
    np.testing.assert_array_equal(free.labels_, tight.labels_)
    np.testing.assert_allclose(free.components_, tight.components_)


def test_few_rows_need_smaller_blocks():
    alone, searching = fit_memory(RPML(64), 1000, LIKE, mapped=False)
    assert searching - alone == 17 * 1000 * 128
    alone, searching = fit_memory(MILLION, 1_000_000, LIKE, mapped=False)
    assert searching - alone == WORKING_MEMORY // 2
