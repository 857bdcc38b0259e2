"""The manifolds of eq. (prod_manifold): Grassmann(d, l), a Euclidean space, and their product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpml.runtime.blas import gram, times, transposed_times
from rpml.runtime.rows import Array


class Euclidean:
    """R^p in any shape, with the Frobenius inner product."""

    def project(self, point: Array, vector: Array) -> Array:
        return vector

    def inner(self, point: Array, u: Array, v: Array) -> float:
        return float(np.vdot(u, v))

    def retract(self, point: Array, vector: Array) -> Array:
        return point + vector

    def transport(self, start: Array, end: Array, vector: Array) -> Array:
        return vector


class Grassmann:
    """Subspaces of R^d, each given by a d x l matrix L with orthonormal columns.

    Tangent vectors are horizontal: L'xi = 0. Everything here commutes with a rotation L -> L B.
    """

    def project(self, point: Array, vector: Array) -> Array:
        """Return the Riemannian gradient of a Euclidean one: G - L L'G."""
        return vector - times(point, transposed_times(point, vector))

    def inner(self, point: Array, u: Array, v: Array) -> float:
        return float(np.vdot(u, v))

    def retract(self, point: Array, vector: Array) -> Array:
        """Return U V' of the SVD of L + xi, eq. (update_L), by an l x l eigenproblem."""
        curve = PolarCurve.through(point, vector)
        return curve.point(1.0) @ curve.rotation.T

    def transport(self, start: Array, end: Array, vector: Array) -> Array:
        return self.project(end, vector)

    def random_point(self, d: int, l: int, rng: np.random.Generator) -> Array:
        """Draw uniformly from the Grassmannian; fixed signs make it independent of LAPACK."""
        q, r = np.linalg.qr(rng.standard_normal((d, l)))
        return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0))


class Product:
    """Tuples of points; the inner product is the sum over the parts."""

    def __init__(self, *parts: Euclidean | Grassmann) -> None:
        self.parts = parts

    def project(self, point: tuple[Array, ...], vector: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(m.project(x, v) for m, x, v in zip(self.parts, point, vector, strict=True))

    def inner(self, point: tuple[Array, ...], u: tuple[Array, ...], v: tuple[Array, ...]) -> float:
        rows = zip(self.parts, point, u, v, strict=True)
        return sum(m.inner(x, a, b) for m, x, a, b in rows)

    def retract(self, point: tuple[Array, ...], vector: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(m.retract(x, v) for m, x, v in zip(self.parts, point, vector, strict=True))

    def transport(
        self, start: tuple[Array, ...], end: tuple[Array, ...], vector: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        rows = zip(self.parts, start, end, vector, strict=True)
        return tuple(m.transport(x, y, v) for m, x, y, v in rows)


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
