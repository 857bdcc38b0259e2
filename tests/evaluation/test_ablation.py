"""The reference losses: derivatives against differences, and what each one does."""

import numpy as np
import pytest

from rpml.evaluation.ablation import LOSSES, ReferenceLoss, ReferenceObjective
from rpml.method.objective.triplet_loss import angular_factor
from rpml.method.solver.manifolds import Grassmann, PolarCurve
from tests.problems import blobs, random_problem


def literal(Y, triplets, loss, c, margin):
    """The printed sums, triplet by triplet."""
    total = 0.0
    for a, p, n in triplets:
        near = np.sum((Y[a] - Y[p]) ** 2)
        if loss == "hinge-triplet":
            total += max(0.0, near - np.sum((Y[a] - Y[n]) ** 2) + margin)
            continue
        z = near - c * np.sum((Y[n] - (Y[a] + Y[p]) / 2) ** 2)
        total += max(0.0, z) if loss == "hinge-angular" else np.log1p(np.exp(z))
    return total


@pytest.mark.parametrize("loss", LOSSES)
def test_value_and_gradient(loss):
    X, triplets, L, _ = random_problem()
    problem = ReferenceObjective(X, triplets, loss, margin=0.3)
    problem.move_to(L, None)
    value, gradient, none = problem.gradients()
    assert none is None
    assert value == pytest.approx(literal(X @ L, triplets, loss, angular_factor(45), 0.3))
    step = np.random.default_rng(0).standard_normal(L.shape)
    values = []
    for h in (1e-6, -1e-6):
        problem.move_to(L + h * step, None)
        values.append(problem.gradients()[0])
    assert (values[0] - values[1]) / 2e-6 == pytest.approx(float((gradient * step).sum()), rel=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_line(loss):
    X, triplets, L, _ = random_problem()
    problem = ReferenceObjective(X, triplets, loss)
    problem.move_to(L, None)
    direction = Grassmann().project(L, np.random.default_rng(1).standard_normal(L.shape))
    curve = PolarCurve.through(L, direction)
    problem.begin_line_search(curve, None)
    along = problem.line_value(0.4)
    problem.accept_step(0.4)
    assert problem.gradients()[0] == pytest.approx(along)
    problem.move_to(curve.point(0.4), None)
    assert problem.gradients()[0] == pytest.approx(along)


@pytest.mark.parametrize("loss", LOSSES)
def test_estimator(loss):
    X, _ = blobs(classes=8, per_class=15, d=16)
    fitted = ReferenceLoss(4, loss=loss, max_iter=10, random_state=0).fit(X)
    Z = fitted.transform(X)
    assert Z.shape == (120, 4)
    assert np.allclose(np.linalg.norm(Z, axis=1), 1)
    gram = fitted.components_ @ fitted.components_.T
    assert np.allclose(gram, np.eye(4), atol=1e-6) == (loss != "free")


def test_unknown_loss():
    with pytest.raises(ValueError, match="choose from hinge-triplet"):
        ReferenceLoss(2, loss="softmax").fit(np.eye(5))
