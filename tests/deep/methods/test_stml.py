"""STML: similarity, losses and teacher against the paper's definitions, written out slowly."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from torch.nn.functional import normalize

from rpml.deep.methods import METHODS, baselines
from rpml.deep.methods.base import Batch, LossSpec

N = 24


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.fixture
def views():
    """Two views each of twelve images in three groups."""
    rng = np.random.default_rng(0)
    centers = np.repeat(rng.standard_normal((3, 5)), 4, axis=0)
    images = centers + 0.5 * rng.standard_normal((12, 5))
    Z = unit(np.tile(images, (2, 1)) + 0.8 * rng.standard_normal((N, 5)))
    return Z, np.tile(np.arange(12), 2)


def slow_similarity(Z, rows, k):
    """Eqs. (3) to (7): pairwise, overlap of k-reciprocal neighbors, expansion, symmetry."""
    n = len(Z)
    pairwise = np.exp(
        -np.array([[((a - b) ** 2).sum() for b in Z] for a in Z]) / baselines.STML_SIGMA
    )
    order = []
    for i in range(n):
        key = [1.0 if rows[i] == rows[j] else pairwise[i, j] for j in range(n)]
        order.append(sorted(range(n), key=lambda j, key=key: -key[j])[:k])
    R = [{j for j in order[i] if i in order[j]} for i in range(n)]
    overlap = np.zeros((n, n))
    for i in range(n):
        for j in R[i]:
            overlap[i, j] = len(R[i] & R[j]) / len(R[i])
    expanded = np.array([overlap[order[i][: round(k / 2)]].mean(0) for i in range(n)])
    return (pairwise + (expanded + expanded.T) / 2) / 2


def test_contextual_similarity(views):
    Z, rows = views
    expected = slow_similarity(Z, rows, baselines.STML_NEIGHBORS)
    found = baselines.contextual_similarity(torch.from_numpy(Z), torch.from_numpy(rows))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_views_of_one_image_are_neighbors_however_far_apart():
    rng = np.random.default_rng(0)
    Z = unit(rng.standard_normal((N, 5)))
    Z[12] = -Z[0]
    rows = np.tile(np.arange(12), 2)
    torch_Z = torch.from_numpy(Z)
    forced = baselines.contextual_similarity(torch_Z, torch.from_numpy(rows))
    free = baselines.contextual_similarity(torch_Z, torch.arange(N))
    assert float(forced[0, 12]) > float(free[0, 12])


def relative(Z):
    D = np.linalg.norm(Z[:, None] - Z[None], axis=2)
    return D / D.mean(axis=1, keepdims=True)


def slow_relaxed(Z, S):
    D, total = relative(Z), 0.0
    for i in range(len(Z)):
        for j in range(len(Z)):
            if i != j:
                total += S[i, j] * D[i, j] ** 2
                total += (1 - S[i, j]) * max(0, baselines.STML_MARGIN - D[i, j]) ** 2
    return total / (len(Z) * (len(Z) - 1))


def slow_kl(small, wide):
    total = 0.0
    for d_small, d_wide in zip(relative(small), relative(wide), strict=True):
        q = np.exp(-d_small) / np.exp(-d_small).sum()
        p = np.exp(-d_wide) / np.exp(-d_wide).sum()
        total += (p * np.log(p / q)).sum()
    return total / len(small)


def make_batch(views, L):
    Z, rows = views
    x = normalize(torch.from_numpy(Z + 0.3 * np.sin(5 * Z)))
    rows = torch.from_numpy(rows)
    teacher = torch.from_numpy(Z)
    rng = np.random.default_rng(0)
    return Batch(x, normalize(x @ L), rows, rows, L, rng, teacher)


def test_loss(views):
    L = torch.nn.Parameter(torch.linalg.qr(torch.randn(5, 3, dtype=torch.float64))[0])
    loss = METHODS["stml"].loss(LossSpec(12, 5, 3, 0, seed=0)).double()
    with torch.no_grad():
        loss.head += 0.1 * torch.randn(5, 5, dtype=torch.float64)
    batch = make_batch(views, L)
    found = float(loss(batch).detach())
    head = loss.head.detach().numpy()
    teacher_head = 0.95 * np.eye(5) + 0.05 * head  # after one step of the moving average
    np.testing.assert_allclose(loss.teacher_head.numpy(), teacher_head)
    Z, rows = views
    S = slow_similarity(unit(Z @ teacher_head), rows, baselines.STML_NEIGHBORS)
    x = batch.features.numpy()
    small, wide = x @ L.detach().numpy(), x @ head
    expected = (slow_relaxed(small, S) + slow_relaxed(wide, S)) / 2 + slow_kl(small, wide)
    assert found == pytest.approx(expected, rel=1e-6)


def test_gradient_of_the_relaxed_contrastive_loss(views):
    Z, rows = views
    S = baselines.contextual_similarity(torch.from_numpy(Z), torch.from_numpy(rows))
    z = torch.from_numpy(Z + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: baselines.relaxed_contrastive(z, S), (z,), atol=1e-5)


def test_distillation_reaches_the_small_head_only(views):
    Z, _ = views
    small = torch.from_numpy(Z[:, :3].copy()).requires_grad_()
    wide = torch.from_numpy(Z.copy()).requires_grad_()
    fixed = wide.detach()
    assert torch.autograd.gradcheck(lambda z: baselines.distillation(z, fixed), (small,), atol=1e-5)
    baselines.distillation(small, wide).backward()
    assert wide.grad is None
