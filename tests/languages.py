"""Rows with a known nuisance: the same instances in several languages."""

import numpy as np


def translations(n=120, languages=4, d=48, shift=3.0, seed=0):
    """Return (rows, instances, languages): each instance once per language.

    A language moves all of its rows and mixes a few axes of them.
    """
    rng = np.random.default_rng(seed)
    meaning = rng.standard_normal((n, d)) * np.linspace(1.5, 0.5, d)
    y, v = np.repeat(np.arange(n), languages), np.tile(np.arange(languages), n)
    offset = shift * rng.standard_normal((languages, d)) / np.sqrt(d) * 4
    noise = rng.standard_normal((n * languages, d)) * np.where(np.arange(d) < 6, 1.5, 0.4)
    return meaning[y] + offset[v] + noise, y, v


def recalls(Z, y, v):
    """Return Recall@1 among all rows, and among rows of other values."""
    Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    similarity = Z @ Z.T
    np.fill_diagonal(similarity, -2)
    among_all = float(np.mean(y[similarity.argmax(axis=1)] == y))
    similarity[v[:, None] == v[None]] = -2
    return among_all, float(np.mean(y[similarity.argmax(axis=1)] == y))
