"""DAML: both players' losses against the paper's formulas, and who learns from which."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from deep_synthetic import (
    DAML,
    DAML_ADVERSARIAL,
    DAML_REGULARIZER,
    TRIPLET_MARGIN,
    generator_loss,
    random_triplets,
)

from tests.deep.methods.examples import LOSS_SPEC, batch_of, hinge, layers, point, unit


@pytest.fixture
def daml():
    return DAML(LOSS_SPEC).double()


def slow_steps(daml, batch):
    """(metric loss, generator loss) triplet by triplet."""
    x, L = batch.features.detach().numpy(), batch.projection.detach().numpy()
    metric, generator = [], []
    for a, p, n in zip(*random_triplets(batch), strict=True):
        a, p, n = x[int(a)], x[int(p)], x[int(n)]
        made = unit(n + layers(daml.generator, np.concatenate([a, p, n])))
        za, zp, zn, zm = (unit(v @ L) for v in (a, p, n, made))
        metric.append(hinge(za, zp, zn, TRIPLET_MARGIN) + hinge(za, zp, zm, TRIPLET_MARGIN))
        misplaced = max(0, ((zm - za) ** 2).sum() - ((zp - za) ** 2).sum() - TRIPLET_MARGIN)
        generator.append(
            ((made - a) ** 2).sum() + DAML_REGULARIZER * ((made - n) ** 2).sum()
            + DAML_ADVERSARIAL * misplaced
        )  # fmt: skip
    return np.mean(metric), np.mean(generator)


def test_loss(daml):
    x, L = point()
    metric, generator = slow_steps(daml, batch_of(x, L))
    assert float(daml(batch_of(x, L)).detach()) == pytest.approx(metric + generator)


def test_the_generator_learns_from_its_own_loss_only(daml):
    x, L = point()
    x.requires_grad_(True)
    daml(batch_of(x, L)).backward()
    found = [w.grad.clone() for w in daml.generator.parameters()]
    batch = batch_of(x.detach(), L)
    a, p, n = (batch.features[i] for i in random_triplets(batch))
    alone = generator_loss(a, p, n, daml.generate(a, p, n), L.detach())
    expected = torch.autograd.grad(alone, daml.generator.parameters())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_metric_learns_from_real_and_synthetic_triplets_only(daml):
    x, L = point()
    x.requires_grad_(True)
    (found,) = torch.autograd.grad(daml(batch_of(x, L)), x)
    step = 1e-6
    for i, j in ((0, 0), (4, 2), (11, 4)):  # with the synthetic negatives held fixed
        with torch.no_grad():
            triplets = random_triplets(batch_of(x, L))
            made = daml.generate(*(x[k] for k in triplets))

            def metric(x, triplets=triplets, made=made):
                z = batch_of(x, L).embedding.numpy()
                m = unit((made @ L).numpy())
                a, p, n = (k.numpy() for k in triplets)
                pairs = [
                    hinge(z[a[t]], z[p[t]], z[n[t]]) + hinge(z[a[t]], z[p[t]], m[t])
                    for t in range(len(a))
                ]
                return np.mean(pairs)

            shift = torch.zeros_like(x)
            shift[i, j] = step
            slope = (metric(x + shift) - metric(x - shift)) / (2 * step)
        assert float(found[i, j]) == pytest.approx(slope, abs=1e-5)


def test_gradient_of_the_generator_loss():
    x, L = point()
    a, p, n = (x[i] for i in ([0, 3], [1, 4], [6, 9]))
    made = x[[10, 11]].clone().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda m: generator_loss(a, p, n, m, L.detach()), (made,))
