"""The manifold of eq. (prod_manifold): Grassmann(d, l) for L, times a Euclidean space for theta.

A point of Grassmann(d, l) is a subspace of R^d, given by a d x l matrix L with orthonormal columns.
Its tangent vectors are horizontal: L'xi = 0. Everything here commutes with a rotation L -> L B.
Tangent vectors of the product are tuples: (xi,), or (xi, d_theta) if theta is learned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpml.runtime.rows import Array
from rpml.runtime.threads import gram, times, transposed_times

Tangent = tuple[Array, ...]


def project(L: Array, vector: Array) -> Array:
    """Return the Riemannian gradient of a Euclidean one: G - L L'G."""
    return vector - times(L, transposed_times(L, vector))


def inner(u: Tangent, v: Tangent) -> float:
    """Return the inner product of two tangent vectors, the sum over their parts."""
    return sum(float(np.vdot(a, b)) for a, b in zip(u, v, strict=True))


def retract(L: Array, vector: Array) -> Array:
    """Return U V' of the SVD of L + xi, eq. (update_L), by an l x l eigenproblem."""
    curve = PolarCurve.through(L, vector)
    return curve.point(1.0) @ curve.rotation.T


def random_subspace(d: int, l: int, rng: np.random.Generator) -> Array:
    """Draw uniformly from the Grassmannian; fixed signs make it independent of LAPACK."""
    q, r = np.linalg.qr(rng.standard_normal((d, l)))
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


@dataclass(frozen=True)
class PolarCurve:
    """t -> the polar retraction of L + t xi, in the basis where xi'xi is diagonal.

    L'xi = 0 makes (L + t xi)'(L + t xi) = I + t^2 xi'xi, so in the eigenbasis of xi'xi the polar
    factor only rescales columns: one l x l eigenproblem serves every t. `start` and `direction`
    are L and xi rotated into that basis by `rotation`, which on the Grassmannian changes nothing.
    """

    start: Array
    direction: Array
    eigenvalues: Array
    rotation: Array

    @classmethod
    def through(cls, point: Array, vector: Array) -> PolarCurve:
        eigenvalues, rotation = np.linalg.eigh(gram(vector))
        start, direction = times(point, rotation), times(vector, rotation)
        return cls(start, direction, np.maximum(eigenvalues, 0.0), rotation)

    def scale(self, t: float) -> Array:
        return np.asarray(1.0 / np.sqrt(1.0 + t * t * self.eigenvalues))

    def point(self, t: float) -> Array:
        return np.asarray((self.start + t * self.direction) * self.scale(t))


def orthonormalize(L: Array) -> Array:
    """Return the orthonormal matrix nearest to a nearly orthonormal L (removes rounding drift)."""
    eigenvalues, rotation = np.linalg.eigh(L.T @ L)
    return np.asarray(L @ (rotation / np.sqrt(eigenvalues)) @ rotation.T)
