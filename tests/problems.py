"""Small random problems shared by the tests."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from rpml.io.checkpoint import Checkpoint
from rpml.method.objective.weights import WEIGHTS
from rpml.method.solver.conjugate_gradient import random_subspace


def random_problem(seed=0, n=40, d=9, l=3, T=70, weight="concat", positive=False):
    """(X, triplets, L, theta) with unit-norm rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X = np.abs(X) if positive else X
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    triplets = rng.integers(0, n, (T, 3))
    L = random_subspace(d, l, rng)
    theta = random_theta(weight, d, l, rng)
    return X, triplets, L, theta


def random_theta(weight, d, l, rng):
    theta = WEIGHTS[weight].initial(d, l + 1, np.random.default_rng(0))
    if theta is None:
        return None
    noise = rng.standard_normal(theta.shape)
    return 0.5 * noise if noise.ndim == 1 else noise / np.sqrt(d)


def blobs(seed=0, classes=8, per_class=25, d=20, spread=0.35, dtype=np.float64):
    """Labeled rows of well-defined clusters in all of R^d."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((classes, d))
    y = np.repeat(np.arange(classes), per_class)
    return (centers[y] + spread * rng.standard_normal((len(y), d))).astype(dtype), y


def classes_with_nuisance(classes=40, nuisance=4.0, per_class=12, d=32):
    """Classes along all axes, and a spread within them that is large along a few of the axes."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), per_class)
    spread = np.where(np.arange(d) < 4, nuisance, 0.7)
    return rng.standard_normal((classes, d))[y] + spread * rng.standard_normal((len(y), d)), y


@contextmanager
def dying_after_two_stages(monkeypatch):
    """Fits in the block raise RuntimeError once their second stage is saved."""
    original, saved = Checkpoint.save, []

    def save(self, name, *rest):
        original(self, name, *rest)
        saved.append(name)
        if len(saved) == 2:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save)
        yield


ALL_WEIGHTS = sorted(WEIGHTS)
