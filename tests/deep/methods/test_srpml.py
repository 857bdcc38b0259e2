"""The torch objective is the core's, and its gradients are right."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep.methods.srpml import rpml_loss
from rpml.method.objective.triplet_loss import TripletObjective, loss_and_gradients
from rpml.method.objective.weights import weight_function


def problem(weight, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20, 7))
    triplets = rng.integers(0, 20, (50, 3))
    L = np.linalg.qr(rng.standard_normal((7, 3)))[0]
    theta = weight_function(weight).initial(7, 3, rng)
    theta = None if theta is None else rng.standard_normal(theta.shape)
    return X, triplets, L, theta


def tensors(X, triplets, L, theta):
    made = [torch.tensor(v, requires_grad=True) for v in (X, L)]
    t = None if theta is None else torch.tensor(theta, requires_grad=True)
    return made[0], torch.from_numpy(triplets), made[1], t


@pytest.mark.parametrize("weight", ["concat", "bilinear", "constant"])
def test_equal_to_the_core(weight):
    X, triplets, L, theta = problem(weight)
    x, t, l, r = tensors(X, triplets, L, theta)
    loss = rpml_loss(x, t, l, r)
    loss.backward()
    expected, grad_L, grad_theta = loss_and_gradients(X, triplets, L, theta, weight)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(l.grad.numpy(), grad_L, rtol=1e-5, atol=1e-8)
    if theta is not None:
        np.testing.assert_allclose(r.grad.numpy(), grad_theta, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("weight", ["concat", "bilinear", "constant"])
def test_guarded_weights_equal_to_the_core(weight):
    X, triplets, L, theta = problem(weight)
    core = TripletObjective(X, triplets, weight, 45.0, 0.3)
    core.move_to(L, theta)
    expected, grad_L, _ = core.gradients()
    x, t, l, r = tensors(X, triplets, L, theta)
    loss = rpml_loss(x, t, l, r, weight_ridge=0.3)
    loss.backward()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(l.grad.numpy(), grad_L, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("weight", ["concat", "bilinear", "constant"])
@pytest.mark.parametrize("weight_ridge", [None, 0.1])
def test_gradients_by_finite_differences(weight, weight_ridge):
    X, triplets, L, theta = problem(weight)
    x, t, l, r = tensors(X[:8], triplets[:12] % 8, L, theta)
    given = [v for v in (x, l, r) if v is not None]

    def f(x, l, r=None):
        return rpml_loss(x, t, l, r, alpha=30.0, weight_ridge=weight_ridge)

    assert torch.autograd.gradcheck(f, given)
