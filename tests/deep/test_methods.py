"""Every loss: its gradient, and the formula its paper prints."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")

from torch import nn
from torch.nn.functional import normalize

from rpml.deep.methods import (
    METHODS,
    Batch,
    FeatureBank,
    LossSpec,
    check_methods,
    contrastive,
    ddml,
    hdml,
    invariant,
    nce,
    triplet,
)
from rpml.deep.methods.daml import generator_loss, hinge
from rpml.deep.samplers import LabelSampler
from rpml.evaluation.registry import METHODS as REGISTRY
from rpml.runtime.errors import InputError

LOSS_SPEC = LossSpec(12, 5, 3, 4, seed=0)
LABELS = torch.arange(12) // 3


def batch_of(x, L, seed=0):
    teacher = normalize(torch.sin(3 * x.detach()))
    rng = np.random.default_rng(seed)
    return Batch(x, normalize(x @ L), LABELS, torch.arange(12), L, rng, teacher)


def point(seed=0):
    rng = np.random.default_rng(seed)
    x = normalize(torch.tensor(rng.standard_normal((12, 5))))
    L = nn.Parameter(torch.tensor(np.linalg.qr(rng.standard_normal((5, 3)))[0]))
    return x, L


# losses that detach a part of themselves are checked part by part; NCE writes its memory
PARTS = ("triplet-daml", "triplet-hdml", "nce", "srpml", "stml")
WHOLE = [k for k in METHODS if k not in PARTS]


@pytest.mark.parametrize("key", WHOLE)
def test_gradient_by_finite_differences(key):
    x, L = point()
    loss = METHODS[key].loss(LOSS_SPEC).double()
    loss.begin_epoch(LabelSampler(np.arange(12) // 3))
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
    loss.begin_epoch(LabelSampler(np.arange(12) // 3))
    value = loss(batch_of(x, L))
    value.backward()
    assert np.isfinite(float(value.detach()))
    assert float(x.grad.norm()) > 0


def test_nce_gradient():
    x, L = point()
    x.requires_grad_(True)
    state = nce.MemoryNCE(LOSS_SPEC).double()
    state.partition.fill_(40.0)
    memory = state.memory.clone()

    def f(x):
        state.memory.copy_(memory)
        return state(batch_of(x, L.detach()))

    assert torch.autograd.gradcheck(f, (x,), atol=1e-5)


def test_srpml_gradient_with_theta_and_L_fixed():
    """The network's step is taken at the (theta, L) that the conjugate gradient has found."""
    from rpml.deep.objective import rpml_loss
    from rpml.method.triplets.sampling import mine_batch_triplets

    x, L = point()
    x.requires_grad_(True)
    L.requires_grad_(False)
    loss = METHODS["srpml"].loss(LOSS_SPEC)
    loss.begin_epoch(LabelSampler(LABELS.numpy()))
    before = L.detach().clone()
    value = loss(batch_of(x, L))
    (found,) = torch.autograd.grad(value, x)
    rows = x.detach().numpy()
    Z = rows @ np.linalg.qr(before.numpy())[0]
    mined = mine_batch_triplets(
        Z, LABELS.numpy(), np.random.default_rng(0), mining=loss.settings.mining,
        margin=loss.settings.margin, limit=loss.settings.max_triplets,
    )  # fmt: skip
    chosen = loss.settings
    again = rpml_loss(
        x, torch.from_numpy(mined), chosen.scale * L.detach(), loss.theta, chosen.alpha,
        chosen.weight_ridge,
    ) / (chosen.scale * len(mined))  # fmt: skip
    (expected,) = torch.autograd.grad(again, x)
    assert float(value.detach()) == pytest.approx(float(again.detach()))
    torch.testing.assert_close(found, expected)
    assert float((before - L).abs().max()) > 0
    torch.testing.assert_close(L.T @ L, torch.eye(3, dtype=L.dtype))


def test_daml_parts():
    x, L = point()
    L = L.detach()
    a, p, n = (x[i].clone().requires_grad_(True) for i in ([0, 3], [1, 4], [6, 9]))
    assert torch.autograd.gradcheck(lambda a, p, n: hinge(a @ L, p @ L, n @ L), (a, p, n))
    made = normalize(x[[10, 11]]).clone().requires_grad_(True)
    fixed = [v.detach() for v in (a, p, n)]
    assert torch.autograd.gradcheck(lambda m: generator_loss(*fixed, m, L), (made,))
    # J_gen as printed: |n~ - a|^2 + |n~ - n|^2 + [d(n~, a) - d(p, a) - margin]_+
    a, p, n = fixed
    za, zp, zm = (normalize(v @ L) for v in (a, p, made))
    fooled = ((zm - za) ** 2).sum(1) - ((zp - za) ** 2).sum(1) - triplet.MARGIN
    expected = ((made - a) ** 2).sum(1) + ((made - n) ** 2).sum(1) + fooled.clamp(min=0)
    torch.testing.assert_close(generator_loss(a, p, n, made, L), expected.mean())


def test_hdml_parts():
    x, L = point()
    a, p, n = (x[i].clone().requires_grad_(True) for i in ([0, 3], [1, 4], [6, 9]))
    assert torch.autograd.gradcheck(lambda a, p, n: hdml.harder(a, p, n, 0.3), (a, p, n))
    moved = hdml.harder(a, p, n, 1.0)  # as hard as can be: at the positive's distance
    far, near = (n - a).norm(dim=1), (p - a).norm(dim=1)
    torch.testing.assert_close((moved - a).norm(dim=1), torch.minimum(far, near))
    torch.testing.assert_close(hdml.harder(a, p, n, 0.0), n)
    loss = hdml.HDML(LOSS_SPEC).double()
    parameters = tuple(loss.generator.parameters())
    assert torch.autograd.gradcheck(
        lambda *_: loss.generator_loss(batch_of(x, L)), parameters, atol=1e-5
    )


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
        return max(0, contrastive.MARGIN - d) ** 2 if y[i] != y[j] else None

    expected = by_pairs(pull) + by_pairs(push)
    assert float(contrastive.Contrastive(LOSS_SPEC)(batch)) == pytest.approx(expected, abs=1e-6)


def test_ddml_as_printed():
    batch = batch_of(*point())
    Z, y = batch.embedding.detach().numpy(), LABELS.numpy()

    def g(i, j):
        l = 1 if y[i] == y[j] else -1
        z = 1 - l * (ddml.THRESHOLD - ((Z[i] - Z[j]) ** 2).sum())
        return np.log(1 + np.exp(ddml.SHARPNESS * z)) / ddml.SHARPNESS

    same = by_pairs(lambda i, j: g(i, j) if y[i] == y[j] else None)
    other = by_pairs(lambda i, j: g(i, j) if y[i] != y[j] else None)
    assert float(ddml.DDML(LOSS_SPEC)(batch)) == pytest.approx((same + other) / 2, abs=1e-6)


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
        if not semi_hard or 0 < gap <= triplet.MARGIN:
            values.append(max(0, triplet.MARGIN - gap))
    found = float(triplet.Triplet(LOSS_SPEC, semi_hard)(batch))
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
    f, view, t = Z[:6], Z[6:], invariant.TEMPERATURE
    total = 0.0
    for i in range(6):
        shares = np.exp(f @ view[i] / t)
        total -= np.log(shares[i] / shares.sum())
        for j in range(6):
            if j != i:
                shares = np.exp(f @ f[j] / t)
                total -= np.log(1 - shares[i] / shares.sum())
    assert float(invariant.Invariant(LOSS_SPEC)(batch)) == pytest.approx(total / 6, rel=1e-5)


def test_nce_as_printed():
    x, L = point()
    batch = batch_of(x, L)
    loss = nce.MemoryNCE(LOSS_SPEC).double()
    memory, Z, n = loss.memory.numpy().copy(), batch.embedding.detach().numpy(), 12
    noise = np.random.default_rng(0).integers(0, n, (12, 12))
    drawn = np.concatenate([np.arange(12)[:, None], noise], axis=1)
    scores = np.exp(np.einsum("bd,bmd->bm", Z, memory[drawn]) / nce.TEMPERATURE)
    p = scores / (scores.mean() * n)
    h = p / (p + 12 / n)  # m times the uniform noise probability 1 / n
    expected = -(np.log(h[:, 0]) + np.log(1 - h[:, 1:]).sum(1)).mean()
    assert float(loss(batch)) == pytest.approx(expected, rel=1e-6)
    mixed = 0.5 * memory + 0.5 * Z
    expected = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    np.testing.assert_allclose(loss.memory.numpy(), expected)


def test_supervised_methods_refuse_to_go_without_classes():
    known = FeatureBank(np.zeros((10, 3), np.float32), None, 0)
    for method in METHODS.values():
        if method.uses_labels:
            with pytest.raises(InputError, match="needs the classes"):
                method.sampler(known)


def test_names():
    heads = [name.removeprefix("head-") for name in REGISTRY if name.startswith("head-")]
    assert list(METHODS) == heads
    for key, method in METHODS.items():
        head = REGISTRY[f"head-{key}"]
        assert method.key == key
        assert head.title.startswith(f"{method.title} (head")
        assert head.uses_labels == method.uses_labels
    with pytest.raises(InputError, match="srpml"):
        check_methods(["absent"])
