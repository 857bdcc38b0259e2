"""What happens to a row before the projection: l2, centering, PCA-whitening by an exponent, l2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from rpml.method.whitening import constants as const
from rpml.runtime.rows import (
    Array,
    Indices,
    check_finite,
    float_dtype,
    row_blocks,
    slices,
    unit_rows,
    with_lengths,
)
from rpml.runtime.threads import rowwise_times, run_chunks, single_blas_thread, transposed_times

if TYPE_CHECKING:
    from rpml.method.codes import Codec


@dataclass(frozen=True)
class Preprocessing:
    """x -> u((u(x) - mean) @ matrix), each u either the unit-norm scaling or nothing."""

    unit_input: bool
    mean: Array
    matrix: Array
    unit_output: bool

    def for_rows_times(self, scale: float) -> Preprocessing:
        """The same map for rows `scale` times as long."""
        if scale == 1 or self.unit_input:
            return self
        return replace(self, mean=self.mean * scale, matrix=self.matrix / scale)

    def apply(self, X: Array) -> Array:
        """The preprocessed rows, block by block, in X's own precision."""
        out = np.empty((len(X), self.matrix.shape[1]), float_dtype(X))
        mean, matrix = self.mean.astype(out.dtype), self.matrix.astype(out.dtype)
        for part, block in row_blocks(X):
            block = unit_rows(block) if self.unit_input else block
            block = (block - mean) @ matrix
            out[part] = unit_rows(block) if self.unit_output else block
        return out

    @single_blas_thread()
    def embed(
        self, X: Array, components: Array, unit: bool, codec: Codec | None = None
    ) -> NDArray[Any]:
        """The preprocessed rows times the (l, p) components, scaled to unit norm if `unit`.

        Where only a row's direction is asked for, the length it has in between does not matter:
        with one matrix A for both maps, (u(x) - mean) A points where x A - |x| mean A does.
        A `codec` returns codes; its rotation becomes a part of A. They must not change with the
        batch by rounding: products have one shape, or double precision where `unit` is False.

        Raises
        ------
        ValueError
            If a row of X is not finite, or one of the embedding: it or the model is out of range.
        """
        dtype, times = float_dtype(X), cast("Callable[..., Array]", np.matmul)
        out = np.empty((len(X), len(components)), dtype)
        if codec is not None:
            components, times = codec.axes(components), rowwise_times
            unit = unit or codec.rotation is not None
            dtype = dtype if unit else np.float64
            out = np.empty((len(X), codec.width), codec.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            one = self.matrix @ components.T
            shift, matrix = (self.mean @ one).astype(dtype), one.astype(dtype)
        ones, rank_one = np.ones(const.EMBED_ROWS, dtype), blas.get_blas_funcs("ger", dtype=dtype)

        def project(rows: Array, result: Array) -> bool:
            """Write the embedding of the rows; True if all of it is finite for certain."""
            if not unit:
                np.matmul(self.apply(rows), components.T.astype(dtype), out=result)
                return False
            rows, length = with_lengths(rows) if self.unit_input else (rows, ones[: len(rows)])
            times(rows, matrix, out=result)
            rank_one(-1, shift, length, a=result.T, overwrite_a=1)
            scaled, length = with_lengths(result)
            np.multiply(scaled, (1 / length)[:, None], out=result)
            return scaled is result

        parts = list(slices(len(X), const.EMBED_ROWS))

        @np.errstate(over="ignore", invalid="ignore")
        def work(_: int, start: int, stop: int) -> None:
            for part in parts[start:stop]:
                rows = np.asarray(X[part], dtype)
                result = (
                    out[part] if codec is None else np.empty((len(rows), len(components)), dtype)
                )
                if (
                    not project(rows, result)
                    and not (finite := np.isfinite(result).all(axis=1)).all()
                ):
                    check_finite(X)
                    row = part.start + int(finite.argmin())
                    raise ValueError(
                        f"the embedding of row {row} (counted from 0) overflows {result.dtype}: "
                        "the row or the model is out of range."
                    )
                if codec is not None:
                    out[part] = codec.pack(result)

        run_chunks(work, len(parts), 1)
        return out

    def invert(self, Y: Array, components: Array, unit: bool) -> Array:
        """Rows that `embed` takes to Y, of those the one of least norm: least squares.

        Where rows have unit norm before and after the map, the length lost at the end is the one
        that gives the row unit norm again.
        """
        rows = np.asarray(Y, np.float64) @ np.linalg.pinv(self.matrix @ components.T)
        if unit and self.unit_input:
            inner, square = rows @ self.mean, np.einsum("ij,ij->i", rows, rows)
            rest = max(0.0, 1 - float(self.mean @ self.mean))
            length = (np.sqrt(inner**2 + square * rest) - inner) / np.where(square > 0, square, 1)
            rows = rows * length[:, None]
        return np.asarray(self.mean + rows, float_dtype(Y))


@dataclass(frozen=True)
class Spectrum:
    """Mean and principal axes of the rows, strongest first."""

    mean: Array
    axes: Array  # (d, rank) orthonormal columns, signs fixed
    variances: Array  # (rank,) positive
    error: float = 0.0  # rounding error of the variances, as the negative ones show it


@single_blas_thread()
def principal_axes(
    X: Array, unit_input: bool, step: Callable[[], object] = lambda: None
) -> Spectrum:
    """Eigen-decomposition of the covariance of the rows.

    Accumulated in float64 block by block; with fewer rows than features the small Gram matrix is
    decomposed instead. Directions whose variance is lost in rounding are left out. `step` is called
    after every block of a pass over the rows.
    """
    (n, d), dtype = X.shape, float_dtype(X)
    mean = row_sum(X, unit_input, step) / n
    if n >= d:
        moments = second_moments(X, mean, unit_input, step=step)
        spectrum = spectrum_of(mean, moments / n, dtype)
        if lost_in_rounding(spectrum, dtype):
            moments = second_moments(X, mean, unit_input, np.float64)
            spectrum = spectrum_of(mean, moments / n, dtype)
        return spectrum
    rows = (unit_rows if unit_input else np.asarray)(np.asarray(X, np.float64)) - mean
    variances, small = np.linalg.eigh(rows @ rows.T / n)
    significant = _significant(variances, n, _rounding(mean, variances, dtype))
    axes = rows.T @ small[:, significant] / np.sqrt(variances[significant] * n)
    return Spectrum(mean, axes * sign_of_largest(axes), variances[significant])


def row_sum(X: Array, unit_input: bool, step: Callable[[], object] = lambda: None) -> Array:
    """Sum of the rows, or of the rows scaled to unit norm."""
    prepared = unit_rows if unit_input else np.asarray
    total = np.zeros(X.shape[1])
    for _, block in row_blocks(X):
        total += prepared(block).sum(axis=0, dtype=np.float64)
        step()
    return total


def second_moments(
    X: Array,
    mean: Array,
    unit_input: bool,
    dtype: type[np.floating] | None = None,
    step: Callable[[], object] = lambda: None,
) -> Array:
    """(d, d): sum over the rows of (x - mean)(x - mean)', products in X's precision or `dtype`."""
    prepared = unit_rows if unit_input else np.asarray
    moments = np.zeros((X.shape[1], X.shape[1]))
    for _, block in row_blocks(X):
        block = prepared(block).astype(dtype or block.dtype, copy=False)
        block = block - mean.astype(block.dtype)
        moments += transposed_times(block, block)
        step()
    return moments


def spectrum_of(mean: Array, covariance: Array, dtype: type[np.floating] = np.float64) -> Spectrum:
    """Principal axes from the (d, d) moments of rows of a precision."""
    variances, axes = np.linalg.eigh(covariance)
    significant = _significant(variances, len(covariance), _rounding(mean, variances, dtype))
    axes = axes[:, significant]
    return Spectrum(mean, axes * sign_of_largest(axes), variances[significant], _error(variances))


def sign_of_largest(axes: Array) -> Array:
    """Return the sign of the largest entry of each axis, which fixes its direction."""
    return np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)


def _significant(variances: Array, size: int, rounding: float) -> Indices:
    """Indices of the eigenvalues above rounding error, largest first."""
    order = np.arange(len(variances))[::-1]
    threshold = float(variances.max(initial=0.0)) * size * const.SIGNIFICANT
    return np.asarray(
        order[variances[order] > max(threshold, rounding, 2 * _error(variances), 1e-300)]
    )


def _error(variances: Array) -> float:
    """How far below zero rounding has taken eigenvalues that are not negative."""
    return max(0.0, -float(variances.min(initial=0.0)))


def lost_in_rounding(spectrum: Spectrum, dtype: type[np.floating]) -> bool:
    """Whether axes are no more than rounding errors of single-precision products."""
    variances = spectrum.variances
    if dtype == np.float64 or len(variances) == 0:
        return False
    return bool(
        spectrum.error > const.SIGNIFICANT * len(spectrum.mean) * variances[0]
        or np.median(variances) < np.finfo(dtype).eps * variances[0]
    )


def _rounding(mean: Array, variances: Array, dtype: type[np.floating]) -> float:
    """The variance along any axis of rows that differ by rounding alone."""
    energy = float(mean @ mean + variances.sum())  # mean squared norm of a row
    return float((const.ROUNDING * np.finfo(dtype).eps) ** 2 * energy)


def whitening(
    spectrum: Spectrum, exponent: float, n_axes: int, unit_input: bool, unit_output: bool
) -> Preprocessing:
    """Project on the leading axes and divide each by its standard deviation to the `exponent`.

    0 is PCA, 1 full whitening (unit variance), 1/2 half-whitening. Scaled so that the
    strongest axis keeps its length, which changes nothing when rows are scaled to unit norm.
    """
    axes, variances = spectrum.axes[:, :n_axes], spectrum.variances[:n_axes]
    scale = (variances / variances[0]) ** (-exponent / 2)
    return Preprocessing(unit_input, spectrum.mean, axes * scale, unit_output)


def identity(d: int, unit_input: bool) -> Preprocessing:
    """Nothing but the optional scaling of the input: what the paper does."""
    return Preprocessing(unit_input, np.zeros(d), np.eye(d), False)
