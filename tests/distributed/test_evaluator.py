"""The distributed objective is the local one."""

import numpy as np
import pytest

from rpml.method.objective.triplet_loss import TripletObjective
from rpml.method.objective.weights import WeightRidge
from rpml.method.solver.conjugate_gradient import Stopping, conjugate_gradient
from rpml.method.solver.manifolds import Grassmann, PolarCurve
from tests.problems import ALL_WEIGHTS, random_problem

from .conftest import split


def both(cluster, weight, weight_ridge, seed=0):
    from rpml.distributed.evaluator import DaskObjective, ObjectiveSettings

    X, triplets, L, theta = random_problem(seed, n=90, d=9, l=3, T=200, weight=weight)
    theta = None if theta is None else 3 * theta
    local = TripletObjective(X, triplets, weight, 45.0, weight_ridge)
    settings = ObjectiveSettings(weight, 45.0, weight_ridge)
    remote = DaskObjective(cluster, split(cluster, X), shards(cluster, triplets), settings)
    np.testing.assert_array_equal(remote.triplets, triplets)
    return local, remote, L, theta


def shards(cluster, triplets, parts=3):
    """The triplets as the partitions draw them; the last shard has none."""
    cut = [*np.array_split(triplets, parts), triplets[:0]]
    return [cluster.hold((some, np.zeros(len(some), bool))) for some in cut]


@pytest.mark.parametrize("weight", ALL_WEIGHTS)
@pytest.mark.parametrize("weight_ridge", [None, WeightRidge(0.01)])
def test_loss_and_gradients(cluster, weight, weight_ridge):
    local, remote, L, theta = both(cluster, weight, weight_ridge)
    rng = np.random.default_rng(5)
    results = []
    for problem in (local, remote):
        problem.move_to(L, theta)
        results.append(problem.gradients())
        assert problem.mean_weight == pytest.approx(local.mean_weight, rel=1e-9)
    (loss, by_L, by_theta), (loss2, by_L2, by_theta2) = results
    assert loss2 == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(by_L2, by_L, atol=1e-6)
    if theta is not None:
        np.testing.assert_allclose(by_theta2, by_theta, atol=1e-6)
    xi = Grassmann().project(L, rng.standard_normal(L.shape))
    d_theta = None if theta is None else rng.standard_normal(theta.shape)
    for problem in (local, remote):
        problem.begin_line_search(PolarCurve.through(L, xi), d_theta)
    for t in (0.0, 0.3, 2.0):
        assert remote.line_value(t) == pytest.approx(local.line_value(t), rel=1e-9)
    for problem in (local, remote):
        problem.accept_step(0.3)
    np.testing.assert_allclose(remote.gradients()[1], local.gradients()[1], atol=1e-6)
    np.testing.assert_allclose(remote.terms().w, local.terms().w, atol=1e-9)
    np.testing.assert_allclose(remote.terms().p, local.terms().p, atol=1e-9)


def test_the_optimiser_ends_in_the_same_place(cluster):
    local, remote, L, theta = both(cluster, "concat", WeightRidge(0.01))
    one, two = (conjugate_gradient(p, L, theta, Stopping(12)) for p in (local, remote))
    assert two.loss == pytest.approx(one.loss, rel=1e-9)
    distance = np.linalg.norm(one.L - two.L @ (two.L.T @ one.L), 2)
    assert distance < 1e-4
    assert two.n_iter == one.n_iter


def test_more_shards_than_triplets(cluster):
    from rpml.distributed.evaluator import DaskObjective, ObjectiveSettings

    X, triplets, L, theta = random_problem(T=2)
    local = TripletObjective(X, triplets)
    remote = DaskObjective(
        cluster, split(cluster, X), shards(cluster, triplets, 5), ObjectiveSettings()
    )
    for problem in (local, remote):
        problem.move_to(L, theta)
    assert remote.gradients()[0] == pytest.approx(local.gradients()[0])


def test_certain_triplets_keep_their_weight(cluster):
    from rpml.distributed.evaluator import DaskObjective, ObjectiveSettings
    from rpml.method.objective.weights import PinnedWeights, weight_function

    X, triplets, L, theta = random_problem(2, n=90, d=9, l=3, T=200)
    certain = np.arange(200) % 3 == 0
    weight_ridge = WeightRidge(0.01)
    local = TripletObjective(
        X, triplets, PinnedWeights(weight_function("concat"), certain), 45.0, weight_ridge
    )
    held = [cluster.hold((triplets[a : a + 50], certain[a : a + 50])) for a in range(0, 200, 50)]
    remote = DaskObjective(
        cluster, split(cluster, X), held, ObjectiveSettings("concat", 45.0, weight_ridge)
    )
    for problem in (local, remote):
        problem.move_to(L, theta)
    for one, two in zip(local.gradients(), remote.gradients(), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(remote.terms().w, local.terms().w, atol=1e-9)
