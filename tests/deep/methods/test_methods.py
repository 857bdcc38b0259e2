"""Every loss: its gradient, and the formula its paper prints."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

import deep_baselines
import deep_synthetic
from deep_baselines import ALL as METHODS
from torch import nn

from rpml.deep.methods import baselines, check_methods, srpml
from rpml.deep.methods.base import FeatureBank
from rpml.runtime.errors import InputError
from tests.deep.methods.examples import LABELS, LOSS_SPEC, batch_of, point

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "cub130_deep.json"
# losses that detach a part of themselves are checked part by part; NCE writes its memory
PARTS = ("triplet-daml", "triplet-hdml", "nce", "srpml", "stml")
WHOLE = [k for k in METHODS if k not in PARTS]


@pytest.mark.parametrize("key", WHOLE)
def test_gradient_by_finite_differences(key):
    x, L = point()
    loss = METHODS[key].loss(LOSS_SPEC).double()
    loss.begin_epoch(np.arange(12) // 3)
    x.requires_grad_(True)
    teacher = batch_of(x, L).teacher_features

    def f(x, L):
        return loss(replace(batch_of(x, L), teacher_features=teacher))

    assert torch.autograd.gradcheck(f, (x, L), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("key", list(METHODS))
def test_every_loss_reaches_the_features(key):
    x, L = point()
    x, L = x.float().requires_grad_(True), nn.Parameter(L.detach().float())
    loss = METHODS[key].loss(LOSS_SPEC)
    L.requires_grad_(not loss.learns_projection)
    loss.begin_epoch(np.arange(12) // 3)
    value = loss(batch_of(x, L))
    value.backward()
    assert np.isfinite(float(value.detach()))
    assert float(x.grad.norm()) > 0


def test_nce_gradient():
    x, L = point()
    x.requires_grad_(True)
    state = deep_baselines.MemoryNCE(LOSS_SPEC).double()
    state.partition.fill_(40.0)
    memory = state.memory.clone()

    def f(x):
        state.memory.copy_(memory)
        return state(batch_of(x, L.detach()))

    assert torch.autograd.gradcheck(f, (x,), atol=1e-5)


def test_srpml_gradient_with_theta_and_L_fixed():
    """The network's step is taken at the (theta, L) that the conjugate gradient has found."""
    from rpml.method.triplets.sampling import mine_batch_triplets

    x, L = point()
    x.requires_grad_(True)
    L.requires_grad_(False)
    loss = METHODS["srpml"].loss(LOSS_SPEC)
    loss.begin_epoch(LABELS.numpy())
    before = L.detach().clone()
    value = loss(batch_of(x, L))
    (found,) = torch.autograd.grad(value, x)
    rows = x.detach().numpy()
    Z = rows @ np.linalg.qr(before.numpy())[0]
    mined = mine_batch_triplets(
        Z, LABELS.numpy(), np.random.default_rng(0), mining=srpml.MINING,
        margin=srpml.MARGIN, limit=srpml.MAX_TRIPLETS,
    )  # fmt: skip
    again = srpml.rpml_loss(x, torch.from_numpy(mined), srpml.SCALE * L.detach(), loss.theta) / (
        srpml.SCALE * len(mined)
    )
    (expected,) = torch.autograd.grad(again, x)
    assert float(value.detach()) == pytest.approx(float(again.detach()))
    torch.testing.assert_close(found, expected)
    assert float((before - L).abs().max()) > 0
    torch.testing.assert_close(L.T @ L, torch.eye(3, dtype=L.dtype))


def by_pairs(f):
    """Mean over the pairs i < j of f(i, j), which gives None for those it leaves out."""
    values = [f(i, j) for i in range(12) for j in range(i + 1, 12)]
    return np.mean([v for v in values if v is not None])


def test_contrastive_as_printed():
    batch = batch_of(*point())
    Z, y = batch.embedding.detach().numpy(), LABELS.numpy()

    def pull(i, j):
        return ((Z[i] - Z[j]) ** 2).sum() if y[i] == y[j] else None

    def push(i, j):
        d = np.linalg.norm(Z[i] - Z[j])
        return max(0, baselines.CONTRASTIVE_MARGIN - d) ** 2 if y[i] != y[j] else None

    expected = by_pairs(pull) + by_pairs(push)
    assert float(baselines.contrastive(batch)) == pytest.approx(expected, abs=1e-6)


def test_ddml_as_printed():
    batch = batch_of(*point())
    Z, y = batch.embedding.detach().numpy(), LABELS.numpy()

    def g(i, j):
        l = 1 if y[i] == y[j] else -1
        z = 1 - l * (deep_synthetic.DDML_THRESHOLD - ((Z[i] - Z[j]) ** 2).sum())
        return np.log(1 + np.exp(deep_synthetic.DDML_SHARPNESS * z)) / deep_synthetic.DDML_SHARPNESS

    same = by_pairs(lambda i, j: g(i, j) if y[i] == y[j] else None)
    other = by_pairs(lambda i, j: g(i, j) if y[i] != y[j] else None)
    assert float(deep_synthetic.ddml(batch)) == pytest.approx((same + other) / 2, abs=1e-6)


def triplets_of(y):
    n = range(len(y))
    return [(a, p, k) for a in n for p in n for k in n if a != p and y[a] == y[p] != y[k]]


@pytest.mark.parametrize("semi_hard", [False, True])
def test_triplet_as_printed(semi_hard):
    batch = batch_of(*point())
    Z, y = batch.embedding.detach().numpy(), LABELS.numpy()
    values = []
    for a, p, n in triplets_of(y):
        gap = ((Z[a] - Z[n]) ** 2).sum() - ((Z[a] - Z[p]) ** 2).sum()
        if not semi_hard or 0 < gap <= baselines.TRIPLET_MARGIN:
            values.append(max(0, baselines.TRIPLET_MARGIN - gap))
    found = float(baselines.triplet(LOSS_SPEC, semi_hard)(batch))
    assert found == pytest.approx(np.mean(values), abs=1e-6)


def test_lifted_as_printed():
    """J = 1/(2|P|) sum over positive pairs of max(0, log(sum of both ends) + D)^2."""
    batch = batch_of(*point())
    Z, y = batch.embedding.detach().numpy(), LABELS.numpy()
    D = np.linalg.norm(Z[:, None] - Z[None], axis=2)
    values = []
    for i in range(12):
        for j in range(12):
            if i != j and y[i] == y[j]:
                ends = [np.exp(1.0 - D[i, k]) for k in range(12) if y[k] != y[i]]
                ends += [np.exp(1.0 - D[j, k]) for k in range(12) if y[k] != y[i]]
                values.append(max(0, np.log(sum(ends)) + D[i, j]) ** 2)
    found = float(METHODS["lifted"].loss(LOSS_SPEC)(batch))
    assert found == pytest.approx(np.mean(values) / 2, rel=1e-5)


def test_invariant_as_printed():
    x, L = point()
    batch = batch_of(x, L)
    Z = batch.embedding.detach().numpy()
    f, view, t = Z[:6], Z[6:], deep_baselines.INVARIANT_TEMPERATURE
    total = 0.0
    for i in range(6):
        shares = np.exp(f @ view[i] / t)
        total -= np.log(shares[i] / shares.sum())
        for j in range(6):
            if j != i:
                shares = np.exp(f @ f[j] / t)
                total -= np.log(1 - shares[i] / shares.sum())
    assert float(deep_baselines.invariant(batch)) == pytest.approx(total / 6, rel=1e-5)


def slow_softmax_loss(scores, labels):
    return np.mean([np.log(np.exp(s).sum()) - s[c] for s, c in zip(scores, labels, strict=True)])


def test_exemplar_as_printed():
    batch = batch_of(*point())
    loss = METHODS["exemplar"].loss(LOSS_SPEC).double()
    scores = batch.embedding.detach().numpy() @ loss.classifier.detach().numpy().T
    assert scores.shape == (12, 12)  # one surrogate class per image
    found = float(loss(batch).detach())
    assert found == pytest.approx(slow_softmax_loss(scores, range(12)))


def test_deepcluster_as_printed():
    batch = batch_of(*point())
    loss = METHODS["deepcluster"].loss(LOSS_SPEC).double()
    loss.begin_epoch(LABELS.numpy())
    first = loss.classifier.detach().clone()
    scores = batch.embedding.detach().numpy() @ first.numpy().T
    found = float(loss(batch).detach())
    assert found == pytest.approx(slow_softmax_loss(scores, LABELS.numpy()))
    with torch.no_grad():
        loss.classifier.zero_()
    loss.begin_epoch(LABELS.numpy())
    assert float(loss.classifier.detach().abs().max()) == 0  # the same assignment: it goes on
    loss.begin_epoch(LABELS.numpy()[::-1].copy())
    assert float(loss.classifier.detach().abs().max()) > 0  # a new one: it starts again


def test_the_normalizer_of_nce_is_that_of_the_first_batch():
    loss = deep_baselines.MemoryNCE(LOSS_SPEC).double()
    loss(batch_of(*point()))
    first = float(loss.partition)
    loss(batch_of(*point(seed=1), seed=1))
    assert float(loss.partition) == first


def test_nce_as_printed():
    x, L = point()
    batch = batch_of(x, L)
    loss = deep_baselines.MemoryNCE(LOSS_SPEC).double()
    memory, Z, n = loss.memory.numpy().copy(), batch.embedding.detach().numpy(), 12
    noise = np.random.default_rng(0).integers(0, n, (12, 12))
    drawn = np.concatenate([np.arange(12)[:, None], noise], axis=1)
    scores = np.exp(np.einsum("bd,bmd->bm", Z, memory[drawn]) / deep_baselines.NCE_TEMPERATURE)
    p = scores / (scores.mean() * n)
    h = p / (p + 12 / n)  # m times the uniform noise probability 1 / n
    expected = -(np.log(h[:, 0]) + np.log(1 - h[:, 1:]).sum(1)).mean()
    assert float(loss(batch)) == pytest.approx(expected, rel=1e-6)
    mixed = 0.5 * memory + 0.5 * Z
    expected = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    np.testing.assert_allclose(loss.memory.numpy(), expected)


def test_supervised_methods_refuse_to_go_without_classes():
    bank = FeatureBank(np.zeros((10, 3), np.float32), None, 0)
    for method in METHODS.values():
        if method.uses_labels:
            with pytest.raises(InputError, match="needs the classes"):
                method.sampler(bank)


def test_names():
    assert METHODS["srpml"].title == "sRPML"
    assert [METHODS[name].uses_labels for name in ("stml", "lifted")] == [False, True]
    with pytest.raises(InputError, match="srpml"):
        check_methods(["absent"])


@pytest.mark.parametrize("name", METHODS)
def test_the_rate_is_the_best_on_the_halves(name):
    rows = json.loads(RESULTS.read_text(encoding="utf8"))["rows"]
    found = {}
    for row in rows:
        if row["problem"].startswith("half") and row["method"] == name:
            found.setdefault(row["learning_rate"], []).append(row["r1"] + row["nmi"])
    assert len(found) >= 2
    assert METHODS[name].learning_rate == max(found, key=lambda rate: np.mean(found[rate]))
