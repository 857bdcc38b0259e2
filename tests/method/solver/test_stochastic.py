"""sRPML: batches, warm starts, memory and reproducibility."""

from __future__ import annotations

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.metrics import recall_at_k
from rpml.method.objective.weights import WEIGHTS
from rpml.method.solver import training
from rpml.method.solver.conjugate_gradient import SolverState, descend, random_subspace
from rpml.method.solver.training import BATCH_TRIPLETS, Batches, run_epochs
from tests.problems import ALL_WEIGHTS, blobs

PLAIN = RPML(weight_ridge=None)


def start(weight="concat", d=20, l=4, seed=0):
    rng = np.random.default_rng(seed)
    return SolverState(random_subspace(d, l, rng), WEIGHTS[weight].initial(d, l, rng))


def stochastic_gradient(X, labels, begin, settings, n_epochs, seed, callback=None):
    none, nothing = np.zeros(len(X), bool), np.empty((0, 3), int)
    batches = Batches(X, labels, none, nothing, settings)
    return run_epochs(batches, begin, n_epochs, seed, callback)


@pytest.mark.parametrize("weight", ALL_WEIGHTS)
def test_improves_on_a_random_start(weight):
    X, y = blobs(spread=0.8)
    begin = start(weight)
    before = recall_at_k(X @ begin.L, y, ks=(1,))[1]
    settings = RPML(weight=weight)
    result = stochastic_gradient(X, y, begin, settings, 4, seed=1)
    after = recall_at_k(X @ result.L, y, ks=(1,))[1]
    assert after > before + 0.05
    assert np.abs(result.L.T @ result.L - np.eye(4)).max() < 1e-10
    assert result.n_iter == len(result.history["loss"]) == 4


def test_the_same_seed_gives_the_same_result_and_another_does_not():
    X, y = blobs()
    a, b, c = (stochastic_gradient(X, y, start(), PLAIN, 2, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(a.L, b.L)
    assert not np.allclose(a.L @ a.L.T, c.L @ c.L.T)


def test_an_epoch_can_be_continued_exactly():
    X, y = blobs()
    settings = PLAIN
    whole = stochastic_gradient(X, y, start(), settings, 3, seed=5)
    state = start()
    stochastic_gradient(X, y, state, settings, 3, seed=5, callback=lambda s: s.iteration == 1)
    assert state.iteration == 1
    resumed = stochastic_gradient(X, y, state, settings, 3, seed=5)
    np.testing.assert_array_equal(whole.L, resumed.L)
    assert whole.history == resumed.history


def test_the_triplets_of_a_batch_are_limited():
    X, y = blobs()
    settings = RPML(weight_ridge=None, batch_size=60)
    result = stochastic_gradient(X, y, start(), settings, 1, seed=0)
    batches = -(-len(X) // 60) + 2
    assert 0 < result.history["n_triplets"][0] <= 60 * BATCH_TRIPLETS * batches


@pytest.mark.parametrize("mining", ["all", "hard", "semi-hard"])
def test_given_triplets_are_learned_from_without_any_label(mining):
    X, _ = blobs(spread=0.8)
    nothing, given = np.full(len(X), -1), np.array([[0, 1, 30], [25, 26, 60], [50, 51, 0]])
    state = start("constant")
    settings = RPML(weight="constant", mining=mining)
    Batches(X, nothing, nothing >= 0, given, settings).run_epoch(state, np.random.default_rng(0))
    assert state.history["n_triplets"] == [3]
    assert state.loss < 3 * np.log(2)


def test_batches_without_triplets_are_left_out():
    X, _ = blobs()
    state, first = start(), start()
    one, none = np.zeros(len(X), int), np.zeros(len(X), bool)
    batches = Batches(X, one, none, np.empty((0, 3), int), PLAIN)
    batches.run_epoch(state, np.random.default_rng(0))
    np.testing.assert_array_equal(state.L, first.L)
    assert (state.history["n_triplets"], state.loss, state.iteration) == ([0], 0.0, 1)


def test_an_epoch_records_the_end_of_its_batches_per_triplet(monkeypatch):
    X, y = blobs()
    ends = []

    def listen(problem, *rest):
        result = descend(problem, *rest)
        last = {name: values[-1] for name, values in result.history.items()}
        ends.append((result.loss, last["gradient_norm"], last["mean_weight"], problem.n_triplets))
        return result

    monkeypatch.setattr(training, "descend", listen)
    settings = RPML(weight_ridge=None, batch_size=60)
    history = stochastic_gradient(X, y, start(), settings, 1, seed=0).history
    losses, norms, weights, counts = np.transpose(ends)
    assert len(ends) > 2
    assert history["n_triplets"] == [counts.sum()]
    assert history["loss"][0] == pytest.approx(losses.sum() / counts.sum())
    assert history["gradient_norm"][0] == pytest.approx(norms.sum() / counts.sum())
    assert history["mean_weight"][0] == pytest.approx(np.average(weights, weights=counts))
    assert weights.std() > 0
