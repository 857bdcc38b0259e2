"""Distillation from the features and neighborhoods before training."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from rpml.deep import trainer as module
from rpml.deep.trainer import TEMPERATURE, FeatureDistillation, Schedule

N, P, L = 30, 6, 3


@pytest.fixture
def before():
    rows = np.random.default_rng(0).standard_normal((N, P)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def projection():
    return torch.linalg.qr(torch.randn(P, L, generator=torch.Generator().manual_seed(0)))[0]


def moved(before, rows):
    noise = np.random.default_rng(1).standard_normal((len(rows), P)).astype(np.float32)
    return torch.nn.functional.normalize(torch.from_numpy(before[rows] + 0.3 * noise))


def weighted(features, neighbors):
    return Schedule(feature_distillation=features, neighbor_distillation=neighbors)


def test_anchor_is_one_less_the_cosine(before, projection):
    rows = np.array([3, 7, 7, 12])
    now = moved(before, rows)
    found = FeatureDistillation(before, projection, weighted(2.0, 0.0)).loss(
        now, torch.from_numpy(rows)
    )
    expected = 2 * (1 - np.einsum("ij,ij->i", now.numpy(), before[rows])).mean()
    assert float(found) == pytest.approx(expected, rel=1e-5)


def test_neighborhood_is_a_cross_entropy_over_all_images(before, projection):
    rows = np.array([0, 5, 9])
    now = moved(before, rows)
    found = FeatureDistillation(before, projection, weighted(0.0, 1.5)).loss(
        now, torch.from_numpy(rows)
    )

    def embedded(X):
        Z = X.astype(np.float64) @ projection.numpy()
        return Z / np.linalg.norm(Z, axis=1, keepdims=True)

    def chances(Z):
        e = np.exp(Z @ embedded(before).T / TEMPERATURE)
        return e / e.sum(axis=1, keepdims=True)

    target, answer = chances(embedded(before[rows])), chances(embedded(now.numpy()))
    assert float(found) == pytest.approx(-1.5 * (target * np.log(answer)).sum(1).mean(), rel=1e-4)


@pytest.mark.parametrize("most", [N, 8])
def test_lowest_where_nothing_has_moved(before, projection, monkeypatch, most):
    monkeypatch.setattr(module, "MAX_REFERENCES", most)  # 8: a sample and the batch itself
    rows = torch.arange(10)
    distilled = FeatureDistillation(before, projection, weighted(1.0, 1.0))
    still = torch.from_numpy(before[:10]).requires_grad_()
    lowest = distilled.loss(still, rows)
    lowest.backward()
    across = still.grad - (still.grad * still).sum(1, keepdim=True) * still  # on the sphere
    assert float(across.abs().max()) < 1e-4
    assert float(distilled.loss(moved(before, np.arange(10)), rows)) > float(lowest)


def test_gradient(before, projection):
    distilled = FeatureDistillation(
        before.astype(np.float64), projection.double(), weighted(1.0, 1.0)
    )
    rows = torch.arange(4)
    now = moved(before, np.arange(4)).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: distilled.loss(x, rows), (now,))


def test_switched_off(before, projection):
    now = moved(before, np.arange(4)).requires_grad_()
    assert (
        float(
            FeatureDistillation(before, projection, weighted(0.0, 0.0)).loss(now, torch.arange(4))
        )
        == 0.0
    )
