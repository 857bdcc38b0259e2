"""HDML: generated negatives, the balance of real and synthetic, and who learns from which."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

import deep_synthetic
from deep_synthetic import random_triplets

from tests.deep.methods.examples import LABELS, LOSS_SPEC, batch_of, hinge, layers, point, unit


@pytest.fixture
def loss():
    made = deep_synthetic.HDML(LOSS_SPEC).double()
    made.average.fill_(0.15)
    return made


def slow_hard_negative(a, p, n, level):
    """Eqs. (2) to (5): lambda_0 = level + (1 - level) d+ / d- if d- > d+, else 1."""
    near, far = np.linalg.norm(p - a), np.linalg.norm(n - a)
    weight = level + (1 - level) * near / far if far > near else 1.0
    return a + weight * (n - a)


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_hard_negatives(level):
    x, _ = point()
    a, p, n = (x[i] for i in ([0, 3, 6, 1], [1, 4, 7, 2], [6, 9, 0, 11]))
    expected = [slow_hard_negative(*map(np.asarray, t), level) for t in zip(a, p, n, strict=True)]
    np.testing.assert_allclose(deep_synthetic.hard_negatives(a, p, n, level).numpy(), expected)
    inputs = tuple(v.clone().requires_grad_(True) for v in (a, p, n))
    assert torch.autograd.gradcheck(lambda *v: deep_synthetic.hard_negatives(*v, level), inputs)


def test_negatives_become_harder_as_the_metric_loss_falls():
    x, _ = point()
    a, p, n = (x[i] for i in ([0, 3], [1, 4], [6, 9]))
    distances = []
    for average in (10.0, 0.1, 0.01):
        hard = deep_synthetic.hard_negatives(a, p, n, math.exp(-deep_synthetic.HDML_PULL / average))
        distances.append(float((hard - a).norm(dim=1).mean()))
    assert distances == sorted(distances, reverse=True)


def cross_entropy(scores, label):
    return np.log(np.exp(scores).sum()) - scores[label]


def slow_loss(loss, batch):
    x, L = batch.features.detach().numpy(), batch.projection.detach().numpy()
    Z, y = batch.embedding.detach().numpy(), LABELS.numpy()
    level = math.exp(-deep_synthetic.HDML_PULL / float(loss.average))

    def generate(z):
        return unit(layers(loss.generator, z))

    def classify(feature, label):
        return cross_entropy(layers([loss.classifier], feature), label)

    real, synthetic, soft = [], [], [classify(generate(z), c) for z, c in zip(Z, y, strict=True)]
    for a, p, n in zip(*random_triplets(batch), strict=True):
        a, p, n = int(a), int(p), int(n)
        hard = slow_hard_negative(Z[a], Z[p], Z[n], level)
        real.append(hinge(Z[a], Z[p], Z[n]))
        synthetic.append(hinge(*(unit(generate(z) @ L) for z in (Z[a], Z[p], hard))))
        soft.append(classify(generate(hard), y[n]))
    reconstruction = np.mean([((generate(z) - v) ** 2).sum() for z, v in zip(Z, x, strict=True)])
    j_gen = reconstruction + deep_synthetic.HDML_SOFTMAX * np.mean(soft)
    trust = math.exp(-deep_synthetic.HDML_BALANCE / j_gen)
    classified = np.mean([classify(v, c) for v, c in zip(x, y, strict=True)])
    return trust * np.mean(real) + (1 - trust) * np.mean(synthetic) + j_gen + classified


def test_loss(loss):
    x, L = point()
    expected = slow_loss(loss, batch_of(x, L))
    assert float(loss(batch_of(x, L)).detach()) == pytest.approx(expected)


def test_the_average_is_that_of_the_last_epoch(loss):
    x, L = point()
    batch = batch_of(x, L)
    Z = batch.embedding.detach().numpy()
    triplets = list(zip(*random_triplets(batch_of(x, L)), strict=True))
    real = np.mean([hinge(*(Z[int(i)] for i in t)) for t in triplets])
    loss.begin_epoch(None)
    assert float(loss.average) == pytest.approx(0.15)
    for seed in (0, 0):
        loss(batch_of(x, L, seed))
    loss.begin_epoch(None)
    assert float(loss.average) == pytest.approx(real)


def test_features_do_not_learn_from_the_generator_loss(loss):
    x, L = point()
    x.requires_grad_(True)
    hard = torch.zeros(2, 3, dtype=torch.float64)
    value = loss.generator_loss(batch_of(x, L), hard, torch.tensor([0, 1]))
    learners = [x, L, *loss.classifier.parameters()]
    assert all(g is None for g in torch.autograd.grad(value, learners, allow_unused=True,
                                                      retain_graph=True))  # fmt: skip
    assert all(g is not None for g in torch.autograd.grad(value, loss.generator.parameters()))


def test_the_generator_does_not_learn_from_the_metric(loss):
    x, L = point()
    batch = batch_of(x.requires_grad_(True), L)
    value = loss.reconstruct(batch.embedding, batch).square().sum()
    grads = torch.autograd.grad(value, [*loss.generator.parameters(), L], allow_unused=True)
    assert all(g is None for g in grads[:-1])
    assert grads[-1] is not None


def test_gradient_of_the_generator_loss(loss):
    x, L = point()
    hard = batch_of(x, L).embedding[:2].detach()

    def f(*_):
        return loss.generator_loss(batch_of(x, L), hard, torch.tensor([0, 5]))

    assert torch.autograd.gradcheck(f, tuple(loss.generator.parameters()), atol=1e-5)
