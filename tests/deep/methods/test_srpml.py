"""The torch objective is the core's, and its gradients are right."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.methods import srpml
from rpml.method.objective.triplet_loss import TripletObjective


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X, triplets = rng.standard_normal((20, 7)), rng.integers(0, 20, (50, 3))
    return X, triplets, np.linalg.qr(rng.standard_normal((7, 3)))[0], rng.standard_normal(14)


def tensors(X, triplets, L, theta):
    x, l, r = (torch.tensor(v, requires_grad=True) for v in (X, L, theta))
    return x, torch.from_numpy(triplets), l, r


def test_equal_to_the_core(problem, monkeypatch):
    monkeypatch.setattr(srpml, "RIDGE", 0.3)
    X, triplets, L, theta = problem
    core = TripletObjective(X, triplets, srpml.WEIGHT, srpml.ALPHA, srpml.RIDGE)
    core.move_to(L, theta)
    expected, grad_L, grad_theta = core.gradients()
    x, t, l, r = tensors(*problem)
    loss = srpml.rpml_loss(x, t, l, r)
    loss.backward()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(l.grad.numpy(), grad_L, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(r.grad.numpy(), grad_theta, rtol=1e-5, atol=1e-7)


def test_gradients_by_finite_differences(problem):
    X, triplets, L, theta = problem
    x, t, l, r = tensors(X[:8], triplets[:12] % 8, L, theta)
    assert torch.autograd.gradcheck(lambda x, l, r: srpml.rpml_loss(x, t, l, r), (x, l, r))
