"""How work is cut between threads."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from rpml import RPML
from rpml.runtime.threads import (
    aligned,
    chunks,
    gram,
    run_chunks,
    single_blas_thread,
    sum_chunks,
    thread_count,
    times,
    transposed_times,
    using_threads,
)


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_the_environment_bounds_the_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert thread_count() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert thread_count() >= 1
    with using_threads(3):
        assert thread_count() == 3
        with using_threads(2):
            assert thread_count() == 2
        assert thread_count() == 3


@given(st.integers(0, 1000), st.integers(1, 300), st.integers(1, 40))
def test_chunks_cover_the_range_and_none_is_too_small(n, minimum, most):
    pieces = chunks(n, minimum, most)
    assert [i for start, stop in pieces for i in range(start, stop)] == list(range(n))
    assert len(pieces) <= most
    assert len(pieces) == 1 or min(stop - start for start, stop in pieces) >= minimum


def test_every_item_is_worked_on_once_by_several_threads():
    seen, names = np.zeros(100, int), set()
    together = threading.Barrier(2, timeout=30)

    def work(part, start, stop):
        seen[start:stop] += 1
        names.add((part, threading.current_thread().name))
        together.wait()  # passes only if two parts run at the same time

    with using_threads(2):
        run_chunks(work, 100, minimum=10)
    assert (seen == 1).all()
    assert {part for part, _ in names} == set(range(10))
    assert len({name for _, name in names}) == 2


def test_work_within_work_runs_inline():
    inner = []

    def outer(part, start, stop):
        name = threading.current_thread().name
        together.wait()  # one of them in a thread of the pool
        with using_threads(2):
            run_chunks(lambda *_: inner.append(name == threading.current_thread().name), 2, 1)

    together = threading.Barrier(2, timeout=30)
    with using_threads(2):
        run_chunks(outer, 2, minimum=1)
    assert len(inner) == 4
    assert inner.count(True) >= 2


def test_an_error_in_any_thread_is_raised():
    def work(part, start, stop):
        if part == 1:
            raise ZeroDivisionError("in the second part")

    with using_threads(2), pytest.raises(ZeroDivisionError, match="second part"):
        run_chunks(work, 100, minimum=10)


def test_sums_and_products_are_numpys_whatever_the_number_of_threads():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40_000, 3))
    A, B = rng.normal(size=(700, 90)), rng.normal(size=(90, 80))

    def add(start, stop, total):
        total += values[start:stop].sum(axis=0)

    expected = [values.sum(axis=0), A @ B, A.T @ A]
    found = []
    for threads in (1, 2, 3, 5):
        with using_threads(threads):
            total = sum_chunks(add, len(values), (3,), float)
            found.append([total, times(A, B), transposed_times(A, A)])
    for results in found:
        for result, value, first in zip(results, expected, found[0], strict=True):
            np.testing.assert_allclose(result, value)
            np.testing.assert_array_equal(result, first)


def test_blas_is_held_to_one_thread_and_let_go_of():
    before = blas_threads()
    with single_blas_thread():
        assert set(blas_threads()) == {1}
        with single_blas_thread():
            pass
        assert set(blas_threads()) == {1}
    assert blas_threads() == before
    with pytest.raises(KeyError), single_blas_thread():
        raise KeyError
    assert blas_threads() == before


def test_a_fit_holds_blas_to_one_thread():
    """Spinning BLAS threads double the CPU time of a fit of a few thousand rows."""
    X = np.random.default_rng(0).normal(size=(150, 12))
    before = blas_threads()
    seen = []
    RPML(4, n_neighbors=10, callback=lambda _: seen.extend(blas_threads())).fit(X)
    assert set(seen) == {1}
    assert blas_threads() == before


def test_every_thread_can_limit_blas():
    def limited() -> None:
        with single_blas_thread():
            found.append(set(blas_threads()))

    found: list[set[int]] = []
    before = blas_threads()
    limited()
    thread = threading.Thread(target=limited)
    thread.start()
    thread.join()
    assert found == [{1}, {1}]
    assert blas_threads() == before


def test_the_product_of_a_matrix_with_itself():
    A = np.random.default_rng(0).normal(size=(900, 40))
    np.testing.assert_allclose(gram(A), A.T @ A, rtol=1e-12, atol=1e-10)
    with using_threads(1):
        alone = gram(A)
    np.testing.assert_array_equal(gram(A), alone)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_aligned_rows_start_at_cache_lines(dtype):
    for shape in ((0, 16), (3, 16), (1000, 128)):
        rows = aligned(shape, dtype)
        assert rows.shape == shape
        assert rows.dtype == dtype
        assert all(row.ctypes.data % 64 == 0 for row in rows)
