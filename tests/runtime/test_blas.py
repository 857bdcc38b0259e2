"""Matrix products and the threads of BLAS."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from rpml import RPML
from rpml.runtime.threads import (
    aligned,
    single_blas_thread,
    times,
    transposed_times,
    using_threads,
)


def blas_threads():
    """Of the BLAS of numpy and scipy; another test may have loaded faiss with one of its own."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return [pool["num_threads"] for pool in pools if "faiss" not in pool["filepath"]]


def test_products_are_numpys_whatever_the_number_of_threads():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(700, 90)), rng.normal(size=(90, 80))
    found = []
    for threads in (1, 2, 3, 5):
        with using_threads(threads):
            found.append([times(A, B), transposed_times(A, A)])
    for results in found:
        for result, value, first in zip(results, [A @ B, A.T @ A], found[0], strict=True):
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
    RPML(4, training="always", n_neighbors=10, callback=lambda _: seen.extend(blas_threads())).fit(
        X
    )
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
    np.testing.assert_allclose(transposed_times(A, A), A.T @ A, rtol=1e-12, atol=1e-10)
    with using_threads(1):
        alone = transposed_times(A, A)
    np.testing.assert_array_equal(transposed_times(A, A), alone)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_aligned_rows_start_at_cache_lines(dtype):
    for shape in ((0, 16), (3, 16), (1000, 128)):
        rows = aligned(shape, dtype)
        assert rows.shape == shape
        assert rows.dtype == dtype
        assert all(row.ctypes.data % 64 == 0 for row in rows)
