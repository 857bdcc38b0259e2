"""How work is cut between threads."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpml.runtime.threads import chunks, run_chunks, sum_chunks, thread_count, using_threads


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


def test_sums_are_numpys_whatever_the_number_of_threads():
    values = np.random.default_rng(0).normal(size=(40_000, 3))

    def fill(start, stop, out):
        values[start:stop].sum(axis=0, out=out)

    found = []
    for threads in (1, 2, 3, 5):
        with using_threads(threads):
            found.append(sum_chunks(fill, len(values), (3,), float))
    for result in found:
        np.testing.assert_allclose(result, values.sum(axis=0))
        np.testing.assert_array_equal(result, found[0])
