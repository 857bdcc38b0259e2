"""A killed search continues after the last round it stored."""

import numpy as np
import pytest

import rpml.runtime.context as context_module
from rpml.io.checkpoint import Checkpoint
from rpml.method.graph import neighbors
from rpml.method.graph.heaps import empty_heaps, resume_heaps
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.context import Context, LoopState

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 6))[rng.integers(40, size=4000)] + 0.05 * rng.normal(size=(4000, 6))
X = X.astype(np.float32)


class Killed(Exception):
    pass


@pytest.fixture
def context(tmp_path, monkeypatch):
    monkeypatch.setattr(context_module, "LOOP_SECONDS", 0.0)
    return Context(store=Checkpoint(tmp_path / "ckpt", "data", {}, resume=True))


def search(context, method, kill_at=None):
    """Return the neighbors and the shares that were reported; die at a share if asked."""
    shares = []

    def progress(share):
        shares.append(share)
        if kill_at is not None and share > kill_at:
            raise Killed

    state = LoopState(context, "rounds", context.key(X, 7, method), progress)
    return nearest_neighbors(X, 7, method=method, progress=state), shares


@pytest.mark.parametrize("method", ["exact", "ann"])
def test_finished_rounds_are_not_repeated(context, method, monkeypatch):
    monkeypatch.setattr(neighbors, "CELL_ROWS", 20)  # several cells per row
    whole, every = search(Context(), method)
    assert (whole.method, len(every) > 3) == (method, True)
    with pytest.raises(Killed):
        search(context, method, kill_at=0.5)
    again, rest = search(context, method)
    assert rest == every[-len(rest) :]
    assert len(rest) < len(every)
    np.testing.assert_array_equal(again.indices, whole.indices)
    np.testing.assert_array_equal(again.distances, whole.distances)


def test_rounds_of_other_rows_or_with_forged_rows_are_not_used(context):
    whole, every = search(Context(), "exact")
    with pytest.raises(Killed):
        search(context, "exact", kill_at=0.5)
    arrays, metadata = context.store.load("rounds")
    forged = arrays["rows"].copy()
    forged[3, 3] = len(X) + 5
    context.store.save("rounds", {**arrays, "rows": forged}, metadata)
    again, shares = search(context, "exact")
    assert shares == every
    np.testing.assert_array_equal(again.indices, whole.indices)
    other = LoopState(context, "rounds", context.key(X + 1, 7, "exact"))
    assert resume_heaps(empty_heaps(len(X), 7), other) == 0


def test_short_rounds_are_not_all_stored(tmp_path):
    context = Context(store=Checkpoint(tmp_path / "ckpt", "data", {}, resume=True))
    search(context, "exact")
    assert context.store.load("rounds") is None
