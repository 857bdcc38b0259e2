"""Compact codes of embeddings: one byte stands for 1, 2, 4 or 8 axes, or for a learned centroid.

Every code is a product code: byte m of a row selects one of 256 centroids of its group of axes.
For int8 a group is one axis, for int4 two, for int2 four and for binary eight, and the centroids
form a grid; `pq` learns them. So all codes decode and scan by the same look-up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from rpml.method.calibration import AxisRanges
from rpml.runtime.compiled import compiled
from rpml.runtime.rows import Array, slices, sorted_sample, unit_rows
from rpml.runtime.threads import rowwise_times, single_blas_thread

Codes = NDArray[np.integer]
Floats = NDArray[np.float32]
BITS = {"int8": 8, "int4": 4, "int2": 2, "binary": 1}
CODES = (*BITS, "pq")
STEPS = 255
ZERO = 1e-9  # so that rounding, which varies with the batch, does not change a bit
# Lloyd-Max levels of the normal distribution, the positive half (Max, 1960, table I)
LEVELS = {
    1: (0.7979,),
    2: (0.4528, 1.510),
    4: (0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733),
}
CENTROIDS = 256
NUMBER_BITS = CENTROIDS - 1  # the last bits of a distance, which hold its centroid's number
FARTHEST = np.float32(2.0**127)  # of centroid 0
CODEBOOK_ROWS = 20_000  # that codebooks are learned from
CODEBOOK_ROUNDS = 30  # of k-means (docs/decisions/codes.md)
RESTART_ROUNDS = 25  # the first of them, in which centroids of few rows start again
FEW_ROWS = 0.5  # of the mean number of rows per centroid
_BLOCK = 1024  # rows whose working arrays fit into the caches
_CACHED = 6144  # values of a group of axes that stay in the first one


class Codec(ABC):
    """Encodes rows of an embedding and decodes codes.

    The dot product of a float query with decoded rows is the score, everywhere.
    """

    size: int
    """Dimensions of the embedding."""
    width: int
    """Columns of the codes, one byte each."""
    dtype: type[np.generic] = np.uint8
    unit: bool = True
    """Whether decoded rows are scaled to unit norm."""
    centroids: Floats
    """(width, 256, axes per byte) values that byte m of a code stands for, by its value."""
    rotation: NDArray[np.float64] | None = None
    """(size, width * axes per byte), from unit rows to the axes that are coded, padded by zeros to
    whole bytes; None codes rows as they are."""

    @single_blas_thread()
    def encode(self, Y: Array) -> Codes:
        """Encode rows; a row's code does not depend on the others."""
        codes = np.empty((len(Y), self.width), self.dtype)
        for part in slices(len(Y), _BLOCK):
            rows = np.asarray(Y[part])
            if self.rotation is not None:
                rows = unit_rows(rowwise_times(rows, self.rotation.astype(rows.dtype)))
            codes[part] = self.pack(rows)
        return codes

    @abstractmethod
    def pack(self, turned: Array) -> Codes:
        """Encode rows in the axes that are coded, which are unit rows if there is a rotation."""

    def axes(self, components: Array) -> Array:
        """Return components whose embedding is in the axes that are coded."""
        return components if self.rotation is None else self.rotation.T @ components

    def turn(self, Y: Array) -> Array:
        """Return rows in the axes that are coded, padded to whole bytes."""
        rows = np.asarray(Y)
        return rows if self.rotation is None else rows @ self.rotation.astype(rows.dtype)

    def decode(self, codes: Codes) -> Floats:
        """Decode codes to rows, of unit norm if those of the embedding are."""
        chosen = self.check(codes)
        out = np.empty((len(chosen), self.size), np.float32)
        back = None if self.rotation is None else self.rotation.T.astype(np.float32)
        for part in slices(len(chosen), _BLOCK):
            rows = self.centroids[np.arange(self.width), self.indices(chosen[part])]
            flat = rows.reshape(len(rows), -1)
            flat = unit_rows(flat) if self.unit else flat
            out[part] = flat if back is None else flat @ back
        return out

    def indices(self, codes: Codes) -> NDArray[np.uint8]:
        """Return the centroid that each byte selects."""
        return codes.view(np.uint8)

    def tables(self, queries: Array) -> Floats:
        """Return the (n_queries, width, 256) products of float queries with all centroids."""
        turned = self.turn(np.asarray(queries, np.float32))
        parts = turned.reshape(len(turned), self.width, -1)
        return np.asarray(np.einsum("qma,mca->qmc", parts, self.centroids), np.float32)

    def scales(self, codes: Codes) -> Floats:
        """Return the factor of each row's sum of table entries: 1 / norm of its centroids."""
        if not self.unit:
            return np.ones(len(codes), np.float32)
        squares = np.square(self.centroids).sum(axis=2, dtype=np.float32)
        sums = np.zeros(len(codes), np.float32)
        for m, column in enumerate(self.indices(codes).T):
            sums += squares[m, column]
        return np.asarray(1 / np.sqrt(np.where(sums > 0, sums, 1)), np.float32)

    def check(self, codes: Codes) -> Codes:
        """Raise ValueError for codes of another type, or of a model of another size."""
        codes = np.asarray(codes)
        if codes.dtype != self.dtype or codes.ndim != 2 or codes.shape[1] != self.width:
            expected = f"(n, {self.width}) of {np.dtype(self.dtype)}"
            raise ValueError(
                f"The codes have shape {codes.shape} and dtype {codes.dtype}, this model's are "
                f"{expected}: they are of another model, size or output."
            )
        return codes


class Int8Codec(Codec):
    """One signed byte per axis: round((y - low) / step) - 128, clipped to the range."""

    dtype = np.int8

    def __init__(self, ranges: AxisRanges, unit: bool = True) -> None:
        self.size = self.width = len(ranges.low)
        self.unit = unit
        span = np.asarray(ranges.high, np.float64) - ranges.low
        self.low, self.step = ranges.low, np.where(span > 0, span, 1.0) / STEPS
        values = self.low[:, None] + np.arange(STEPS + 1) * self.step.astype(np.float32)[:, None]
        self.centroids = values[:, :, None].astype(np.float32)

    def pack(self, turned: Array) -> NDArray[np.int8]:
        codes = np.empty(turned.shape, np.int8)
        round_to_steps(np.ascontiguousarray(turned), self.low, 1 / self.step, codes)
        return codes

    def indices(self, codes: Codes) -> NDArray[np.uint8]:
        return codes.view(np.uint8) ^ np.uint8(128)


class GridCodec(Codec):
    """1, 2 or 4 bits per axis of the rotated row: the nearest of 2, 4 or 16 Lloyd-Max levels.

    The rotation, the same for all models of a size, distributes the variance over the axes. The
    first axis is in the most significant bits of the first byte, levels ascend with the code, and
    zeros pad the last byte: with one bit the order of `numpy.packbits`, 1 for positive values.
    """

    def __init__(self, size: int, bits: int) -> None:
        self.size, self.bits, axes = size, bits, 8 // bits
        self.width = -(-size // axes)
        self.rotation = np.pad(fixed_rotation(size), ((0, 0), (0, self.width * axes - size)))
        positive = np.array(LEVELS[bits]) / np.sqrt(size)  # the deviation of unit rows
        self.levels = np.concatenate([-positive[::-1], positive])
        self.edges = ((self.levels[1:] + self.levels[:-1]) / 2 + ZERO).astype(np.float32)
        self.weights = (1 << bits * np.arange(axes)[::-1]).astype(np.uint8)
        grid = self.levels[(np.arange(CENTROIDS)[:, None] // self.weights) % (1 << bits)]
        self.centroids = np.tile(grid, (self.width, 1, 1)).astype(np.float32)
        self.centroids[-1, :, size - axes * (self.width - 1) :] = 0  # padding

    def pack(self, turned: Array) -> NDArray[np.uint8]:
        codes = np.empty((len(turned), self.width), np.uint8)
        pack_levels(np.asarray(turned[:, : self.size], np.float32), self.edges, self.bits, codes)
        return codes


class ProductCodec(Codec):
    """One byte per group of axes: the nearest of 256 learned centroids.

    `codebooks` has the layout of faiss' `ProductQuantizer.centroids`: (bytes, 256, axes per byte).
    Without a rotation, axes are dealt to the bytes as `interleaved` says.
    """

    rotation: NDArray[np.float64]

    def __init__(
        self, codebooks: Array, size: int, rotation: NDArray[np.float64] | None = None
    ) -> None:
        self.size, self.width = size, len(codebooks)
        self.rotation = interleaved(size, self.width) if rotation is None else rotation
        self.centroids = np.asarray(codebooks, np.float32)
        self.halves = np.square(self.centroids).sum(axis=2) / 2

    def pack(self, turned: Array) -> NDArray[np.uint8]:
        rows, search = np.asarray(turned, np.float32), centroid_search(self.centroids.shape[2])
        codes = np.empty((len(rows), self.width), np.uint8)
        for part in slices(len(rows), max(128, _CACHED // self.centroids.shape[2])):
            search(rows[part], self.centroids, self.halves, codes[part])
        return codes


@compiled()
def round_to_steps(
    Y: NDArray[np.generic],
    low: NDArray[np.generic],
    per_unit: NDArray[np.generic],
    codes: NDArray[np.generic],
) -> None:
    """Set codes to the nearest of the 256 steps of each axis, less 128."""
    for i in range(Y.shape[0]):
        for j in range(Y.shape[1]):
            steps = np.rint((Y[i, j] - np.float64(low[j])) * per_unit[j])
            codes[i, j] = np.int8(min(max(steps, 0.0), 255.0) - 128.0)


@compiled()
def pack_levels(
    rows: NDArray[np.generic], edges: NDArray[np.generic], bits: int, codes: NDArray[np.generic]
) -> None:
    """Set each byte of `codes` to the numbers of edges below its values."""
    per_byte, n = 8 // bits, len(rows)
    packed, levels = np.empty(n, np.uint8), np.empty(n, np.uint8)
    column = np.empty(n, np.float32)
    for m in range(codes.shape[1]):
        packed[:] = 0
        for j in range(m * per_byte, min((m + 1) * per_byte, rows.shape[1])):
            column[:] = rows[:, j]
            levels[:] = 0
            for edge in edges:
                for i in range(n):
                    levels[i] += np.uint8(column[i] > edge)
            shift = np.uint8(8 - bits * (1 + j % per_byte))
            for i in range(n):
                packed[i] |= levels[i] << shift
        codes[:, m] = packed


@lru_cache(maxsize=8)
def centroid_search(axes: int) -> Callable[..., None]:
    """Return the search for the nearest of 256 centroids, compiled for so many axes per byte.

    The loops over rows are vectorized, and those over axes, being of a constant length, unrolled.
    """
    # centroids per load and store of the least distance: as many as the registers hold
    unrolled = 8 if axes < 3 else 4 if axes < 6 else 2

    @compiled(frozenset({"contract", "nsz"}))
    def nearest_centroids(
        rows: NDArray[np.generic],
        centroids: NDArray[np.generic],
        halves: NDArray[np.generic],
        codes: NDArray[np.generic],
    ) -> None:
        """Set each byte to the nearest centroid of its group of axes: least |c|^2 / 2 - y c.

        The last 8 of 24 bits of a distance give way to its centroid's number, so that the least
        distance tells the centroid, too, which saves keeping both.
        """
        n = len(rows)
        columns, least = np.empty((axes, n), np.float32), np.empty(n, np.float32)
        numbers = least.view(np.int32)
        for m in range(centroids.shape[0]):
            for i in range(n):  # row by row: a transposed assignment reads them once per axis
                for a in range(axes):
                    columns[a, i] = rows[i, m * axes + a]
            least[:] = FARTHEST
            for c in range(0, CENTROIDS, unrolled):
                for i in range(n):
                    best = least[i]
                    for k in range(unrolled):
                        distance = halves[m, c + k]
                        for a in range(axes):
                            distance -= centroids[m, c + k, a] * columns[a, i]
                        bits = np.float32(distance).view(np.int32) & ~np.int32(NUMBER_BITS)
                        numbered = np.int32(bits | (c + k)).view(np.float32)
                        best = numbered if numbered < best else best
                    least[i] = best
            for i in range(n):
                codes[i, m] = numbers[i] & NUMBER_BITS

    return nearest_centroids


@single_blas_thread()
def learn_codebooks(Y: Array, n_bytes: int, rng: np.random.Generator) -> ProductCodec:
    """Learn 256 centroids per group of axes by k-means on embedded rows, and a rotation.

    Axes are first dealt to the bytes. From then on, the rotation that brings the rows nearest to
    their decoded codes and a round of k-means take turns. Centroids of few rows start again where
    the error is large, as those of k-means++ start.

    H. Jegou, M. Douze, C. Schmid, "Product quantization for nearest neighbor search" (TPAMI 2011).
    T. Ge, K. He, Q. Ke, J. Sun, "Optimized product quantization" (TPAMI 2014).
    """
    size = Y.shape[1]
    if not (isinstance(n_bytes, Integral) and 1 <= n_bytes <= size):
        raise ValueError(f"n_bytes={n_bytes!r} must be an integer from 1 to the {size} dimensions.")
    rows = unit_rows(np.asarray(Y[sorted_sample(len(Y), CODEBOOK_ROWS, rng)], np.float32))
    rotation = interleaved(size, n_bytes)
    turned = rows @ rotation.astype(np.float32)
    picked = np.resize(rng.permutation(len(rows)), CENTROIDS)
    centers = np.ascontiguousarray(turned[picked].reshape(CENTROIDS, n_bytes, -1).swapaxes(0, 1))
    for i in range(CODEBOOK_ROUNDS):
        codes = ProductCodec(centers, size, rotation).pack(turned)
        decoded = centers[np.arange(n_bytes), codes].reshape(turned.shape)
        left, _, right = np.linalg.svd(rows.T @ decoded, full_matrices=False)
        turn = np.asarray(left @ right, np.float32)  # as a model file has it
        rotation, turned = turn.astype(np.float64), rows @ turn
        groups = turned.reshape(len(rows), n_bytes, -1)
        few = FEW_ROWS * len(rows) / CENTROIDS if i < RESTART_ROUNDS else 0
        centers = np.stack([_means(groups[:, m], codes[:, m], few, rng) for m in range(n_bytes)])
    return ProductCodec(centers, size, rotation)


def _means(rows: Array, codes: Codes, few: float, rng: np.random.Generator) -> Floats:
    """Return the mean of the rows of each code; one of at most `few` rows starts at another row."""
    counts = np.bincount(codes, minlength=CENTROIDS)
    sums = [np.bincount(codes, weights=axis, minlength=CENTROIDS) for axis in rows.T]
    means = np.stack(sums, axis=1) / np.maximum(counts, 1)[:, None]
    if len(again := np.flatnonzero(counts <= few)):
        errors = np.square(rows - means[codes]).sum(axis=1) + ZERO
        means[again] = rows[rng.choice(len(rows), len(again), p=errors / errors.sum())]
    return np.asarray(means, np.float32)


def interleaved(size: int, n_bytes: int) -> NDArray[np.float64]:
    """Return the permutation of axes, strongest first, that balances their variances per byte.

    Dealt in turn, there and back: of 9 axes, 3 bytes get 0 5 6, 1 4 7 and 2 3 8.
    """
    turns = np.arange(-(-size // n_bytes) * n_bytes).reshape(-1, n_bytes)
    turns[1::2] = turns[1::2, ::-1]
    return np.asarray(turns.T.ravel() == np.arange(size)[:, None], np.float64)


@lru_cache(maxsize=8)
def fixed_rotation(size: int) -> NDArray[np.float64]:
    """Return the random rotation of a size; RandomState never changes between releases."""
    Q, R = np.linalg.qr(np.random.RandomState(0).standard_normal((size, size)))
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


def make_codec(
    output: str, size: int, ranges: AxisRanges | None, learned: ProductCodec | None, unit: bool
) -> Codec:
    """Return the codec of an `output`; ValueError if it is unknown or lacks its arrays."""
    if output not in CODES:
        raise ValueError(f"output={output!r}: the codes are {', '.join(CODES)}.")
    if output == "pq":
        if learned is None:
            raise ValueError(
                "This model has no codebooks at this size: fit it with --bytes "
                "(in Python learn_codebooks)."
            )
        return learned
    if output != "int8":
        return GridCodec(size, BITS[output])
    if ranges is None:
        raise ValueError("This model has no int8 ranges, being from an older rpml: fit it again.")
    return Int8Codec(ranges.first(size), unit)
