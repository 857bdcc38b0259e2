"""Compact codes of embeddings: one byte stands for 1, 2, 4 or 8 axes, or for a learned centroid.

Every code is a product code: byte m of a row selects one of 256 centroids of its group of axes.
For int8 a group is one axis, for int4 two, for int2 four and for binary eight, and the centroids
form a grid; `pq` learns them. So all codes decode and scan by the same look-up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rpml.method.calibration import AxisRanges
from rpml.runtime.compiled import compiled
from rpml.runtime.rows import Array, slices, sorted_sample, unit_rows

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
GROUPED = 4  # axes that `select_centroids` takes at a time
CODEBOOK_ROWS = 20_000  # that codebooks are learned from
CODEBOOK_ROUNDS = 15  # of k-means; later ones hardly lower the error
_BLOCK = 1024  # rows whose working arrays fit into the caches


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

    @abstractmethod
    def encode(self, Y: Array) -> Codes:
        """Encode rows; a row's code does not depend on the others."""

    def turn(self, Y: Array) -> Array:
        """Return rows in the axes that are coded, padded to whole bytes."""
        turned = np.asarray(Y) @ rotation(self.size).astype(Y.dtype)
        return np.pad(turned, ((0, 0), (0, self.width * self.centroids.shape[2] - self.size)))

    def decode(self, codes: Codes) -> Floats:
        """Decode codes to rows, of unit norm if those of the embedding are."""
        chosen = self.check(codes)
        out = np.empty((len(chosen), self.size), np.float32)
        for part in slices(len(chosen), _BLOCK):
            rows = self.centroids[np.arange(self.width), self.indices(chosen[part])]
            flat = rows.reshape(len(rows), -1)[:, : self.size]
            out[part] = self._turn_back(unit_rows(flat) if self.unit else flat)
        return out

    def _turn_back(self, rows: Floats) -> Array:
        return rows @ rotation(self.size).T.astype(np.float32)

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

    def encode(self, Y: Array) -> NDArray[np.int8]:
        """Encode rows; values outside the range are clipped."""
        codes = np.empty(Y.shape, np.int8)
        round_to_steps(np.ascontiguousarray(Y), self.low, 1 / self.step, codes)
        return codes

    def turn(self, Y: Array) -> Array:
        return Y

    def _turn_back(self, rows: Floats) -> Array:
        return rows

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
        positive = np.array(LEVELS[bits]) / np.sqrt(size)  # the deviation of unit rows
        self.levels = np.concatenate([-positive[::-1], positive])
        self.edges = ((self.levels[1:] + self.levels[:-1]) / 2 + ZERO).astype(np.float32)
        self.weights = (1 << bits * np.arange(axes)[::-1]).astype(np.uint8)
        grid = self.levels[(np.arange(CENTROIDS)[:, None] // self.weights) % (1 << bits)]
        self.centroids = np.tile(grid, (self.width, 1, 1)).astype(np.float32)
        self.centroids[-1, :, size - axes * (self.width - 1) :] = 0  # padding

    def encode(self, Y: Array) -> NDArray[np.uint8]:
        codes = np.empty((len(Y), self.width), np.uint8)
        for part in slices(len(Y), _BLOCK):
            pack_levels(turned_columns(Y[part], self), self.edges, self.bits, codes[part])
        return codes


class ProductCodec(Codec):
    """One byte per group of axes of the rotated row: the nearest of 256 learned centroids.

    `codebooks` has the layout of faiss' `ProductQuantizer.centroids`: (bytes, 256, axes per byte).
    """

    def __init__(self, codebooks: Array, size: int) -> None:
        self.size, self.width = size, len(codebooks)
        self.centroids = np.asarray(codebooks, np.float32)

    def encode(self, Y: Array) -> NDArray[np.uint8]:
        codes = np.empty((len(Y), self.width), np.uint8)
        halves = np.square(self.centroids).sum(axis=2) / 2
        axes = self.centroids.shape[2]
        centroids = np.pad(self.centroids, ((0, 0), (0, 0), (0, -axes % GROUPED)))
        for part in slices(len(Y), _BLOCK):
            groups = turned_columns(Y[part], self).reshape(self.width, axes, -1)
            padded = np.pad(groups, ((0, 0), (0, -axes % GROUPED), (0, 0)))
            columns = padded.reshape(-1, groups.shape[2])
            select_centroids(columns, centroids, halves, codes[part])
        return codes


def turned_columns(Y: Array, codec: Codec) -> Floats:
    """Return unit rows in the axes that are coded as columns, padded to whole bytes."""
    columns = np.ascontiguousarray(unit_rows(np.asarray(Y, np.float32)).T)
    out = np.zeros((codec.width * codec.centroids.shape[2], len(Y)), np.float32)
    turn_columns(rotation(codec.size).astype(np.float32), columns, out)
    return out


@compiled(frozenset({"contract", "nsz"}))
def turn_columns(
    R: NDArray[np.generic], columns: NDArray[np.generic], out: NDArray[np.generic]
) -> None:
    """Add R.T @ columns to `out`, in an order that does not depend on the number of columns."""
    d, n = columns.shape
    for j in range(R.shape[1]):
        for k in range(0, d - 3, 4):  # four products per load and store of a sum
            a, b, c, e = R[k, j], R[k + 1, j], R[k + 2, j], R[k + 3, j]
            for i in range(n):
                out[j, i] += (a * columns[k, i] + b * columns[k + 1, i]) + (
                    c * columns[k + 2, i] + e * columns[k + 3, i]
                )
        for k in range(d - d % 4, d):
            for i in range(n):
                out[j, i] += R[k, j] * columns[k, i]


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
    columns: NDArray[np.generic],
    edges: NDArray[np.generic],
    bits: int,
    codes: NDArray[np.generic],
) -> None:
    """Set each byte of `codes` to the numbers of edges below its values."""
    per_byte, n = 8 // bits, columns.shape[1]
    packed = np.empty(n, np.uint8)
    for m in range(codes.shape[1]):
        packed[:] = 0
        for j in range(m * per_byte, min((m + 1) * per_byte, columns.shape[0])):
            shift = np.uint8(8 - bits * (1 + j % per_byte))
            for edge in edges:
                for i in range(n):
                    packed[i] += np.uint8(columns[j, i] > edge) << shift
        for i in range(n):
            codes[i, m] = packed[i]


@compiled(frozenset({"contract", "nsz"}))
def select_centroids(
    columns: NDArray[np.generic],
    centroids: NDArray[np.generic],
    halves: NDArray[np.generic],
    codes: NDArray[np.generic],
) -> None:
    """Set each byte to the nearest centroid of its group of axes: least |c|^2 / 2 - y c.

    The loops over rows are innermost, since those are vectorized, and take four axes at a time.
    """
    n, axes = columns.shape[1], centroids.shape[2]
    sums, least = np.empty(n, np.float32), np.empty(n, np.float32)
    chosen = np.empty(n, np.int32)
    for m in range(centroids.shape[0]):
        least[:] = np.inf
        for c in range(centroids.shape[1]):
            sums[:] = halves[m, c]
            for a in range(0, axes - GROUPED, GROUPED):
                x, y = centroids[m, c, a:], columns[m * axes + a :]
                for i in range(n):
                    sums[i] -= x[0] * y[0, i] + x[1] * y[1, i] + x[2] * y[2, i] + x[3] * y[3, i]
            x, y = centroids[m, c, axes - GROUPED :], columns[(m + 1) * axes - GROUPED :]
            for i in range(n):
                part = x[0] * y[0, i] + x[1] * y[1, i] + x[2] * y[2, i] + x[3] * y[3, i]
                distance = sums[i] - part
                chosen[i] = c if distance < least[i] else chosen[i]
                least[i] = distance if distance < least[i] else least[i]
        for i in range(n):
            codes[i, m] = chosen[i]


def learn_codebooks(Y: Array, n_bytes: int, rng: np.random.Generator) -> Floats:
    """Learn 256 centroids per group of axes by k-means on embedded rows: product quantization.

    H. Jegou, M. Douze, C. Schmid, "Product quantization for nearest neighbor search" (TPAMI 2011).
    """
    size = Y.shape[1]
    if not 1 <= n_bytes <= size:
        raise ValueError(f"n_bytes={n_bytes} must lie between 1 and the {size} dimensions.")
    rows = unit_rows(np.asarray(Y[sorted_sample(len(Y), CODEBOOK_ROWS, rng)], np.float32))
    turned = rows @ rotation(size).astype(np.float32)
    groups = np.split(np.pad(turned, ((0, 0), (0, -size % n_bytes))), n_bytes, axis=1)
    return np.stack([_kmeans(group, rng) for group in groups])


def _kmeans(rows: Floats, rng: np.random.Generator) -> Floats:
    """Return 256 centroids; an empty cluster restarts from a random row."""
    picked = rng.permutation(len(rows))[:CENTROIDS]
    centers = np.resize(rows[picked], (CENTROIDS, rows.shape[1]))
    for _ in range(CODEBOOK_ROUNDS):
        labels = _nearest(rows, centers)
        counts = np.bincount(labels, minlength=CENTROIDS)
        sums = np.stack(
            [np.bincount(labels, weights=axis, minlength=CENTROIDS) for axis in rows.T], axis=1
        )
        restarts = rows[rng.integers(len(rows), size=CENTROIDS)]
        centers = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], restarts)
        centers = centers.astype(np.float32)
    return centers


def _nearest(rows: Array, centers: Array) -> NDArray[np.intp]:
    """Return the nearest center of each row by Euclidean distance."""
    distances = np.square(centers).sum(axis=1) - 2 * (rows @ centers.T)
    return np.asarray(distances.argmin(axis=1))


@lru_cache(maxsize=8)
def rotation(size: int) -> NDArray[np.float64]:
    """Return a fixed random rotation; RandomState never changes between releases."""
    Q, R = np.linalg.qr(np.random.RandomState(0).standard_normal((size, size)))
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


def make_codec(
    output: str, size: int, ranges: AxisRanges | None, codebooks: Array | None, unit: bool
) -> Codec:
    """Return the codec of an `output`; ValueError if it is unknown or lacks its arrays."""
    if output not in CODES:
        raise ValueError(f"output={output!r}: choose from float, {', '.join(CODES)}.")
    if output == "pq":
        if codebooks is None:
            raise ValueError(
                "This model has no codebooks at this size: learn them by "
                "learn_codebooks(X, n_bytes), or fit with rpml fit --bytes."
            )
        return ProductCodec(codebooks, size)
    if output != "int8":
        return GridCodec(size, BITS[output])
    if ranges is None:
        raise ValueError("This model has no int8 ranges, being from an older rpml: fit it again.")
    return Int8Codec(ranges.first(size), unit)
