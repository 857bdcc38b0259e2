"""Compact codes of embeddings: int8 with a range per axis, sign bits, and decoding."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.rows import Array

Codes = NDArray[np.integer]
CODES = ("int8", "binary", "binary-rotated")
STEPS = 255
ZERO = 1e-9  # so that rounding, which varies with the batch, does not change a bit
PREFIX_QUANTILE = 0.99


@dataclass(frozen=True)
class AxisRanges:
    """The range of each axis that int8 codes cover, measured on embedded rows."""

    low: Array
    """(l,) smallest value on each axis."""
    high: Array
    """(l,) largest value on each axis."""
    growth: Array
    """(l,) factor by which values grow if only the first 1 .. l axes are normalized."""

    @classmethod
    def of(cls, Y: Array, unit: bool) -> AxisRanges:
        """Measure rows; `unit` if prefixes are scaled to unit norm again."""
        growth = np.ones(Y.shape[1])
        if unit:
            norms = np.sqrt(np.cumsum(np.square(Y, dtype=np.float64), axis=1))
            inside = norms[norms[:, 0] > 0]
            if len(inside):
                growth = np.quantile(inside[:, -1:] / inside, PREFIX_QUANTILE, axis=0)
        return cls(*(np.asarray(a, np.float32) for a in (Y.min(axis=0), Y.max(axis=0), growth)))

    def first(self, size: int) -> AxisRanges:
        """Return the ranges of the embedding by the first `size` components."""
        factor = self.growth[size - 1]
        low, high = self.low[:size], self.high[:size]
        if factor > 1:  # unit rows
            low, high = (np.clip(bound * factor, -1, 1) for bound in (low, high))
        return AxisRanges(low, high, self.growth[:size] / factor)


class Codec(ABC):
    """Encodes rows of an embedding and decodes codes.

    The dot product of a float query with decoded rows is the asymmetric score.
    """

    size: int
    """Dimensions of the embedding."""
    width: int
    """Columns of the codes, one byte each."""
    dtype: type[np.generic]

    @abstractmethod
    def encode(self, Y: Array) -> Codes:
        """Encode rows."""

    @abstractmethod
    def decode(self, codes: Codes) -> NDArray[np.float32]:
        """Decode codes to rows."""

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

    def __init__(self, ranges: AxisRanges) -> None:
        self.size = self.width = len(ranges.low)
        span = np.asarray(ranges.high, np.float64) - ranges.low
        self.low, self.step = ranges.low, np.where(span > 0, span, 1.0) / STEPS

    def encode(self, Y: Array) -> NDArray[np.int8]:
        """Encode rows; values outside the range are clipped."""
        steps = np.rint((Y - self.low.astype(np.float64)) / self.step)
        return (np.clip(steps, 0, STEPS) - 128).astype(np.int8)

    def decode(self, codes: Codes) -> NDArray[np.float32]:
        return self.low + (self.check(codes) + np.float32(128)) * self.step.astype(np.float32)


class SignCodec(Codec):
    """One bit per axis, 1 for positive values, packed as by `numpy.packbits`.

    The first axis is the most significant bit of the first byte; the last byte is padded with
    zeros. With `rotate` the rows are rotated first, by the same rotation for all models of a size,
    which distributes the variance over the bits.
    """

    dtype = np.uint8

    def __init__(self, size: int, rotate: bool = False) -> None:
        self.size, self.width, self.rotate = size, (size + 7) // 8, rotate

    def encode(self, Y: Array) -> NDArray[np.uint8]:
        return np.packbits((Y @ rotation(self.size) if self.rotate else Y) > ZERO, axis=1)

    def decode(self, codes: Codes) -> NDArray[np.float32]:
        """Return unit rows whose entries have the signs of the bits, rotated back."""
        bits = np.unpackbits(self.check(codes).view(np.uint8), axis=1, count=self.size)
        signs = (2 * bits.astype(np.float32) - 1) / np.float32(np.sqrt(self.size))
        return signs @ rotation(self.size).T.astype(np.float32) if self.rotate else signs


@lru_cache(maxsize=8)
def rotation(size: int) -> NDArray[np.float64]:
    """Return a fixed random rotation; RandomState never changes between releases."""
    Q, R = np.linalg.qr(np.random.RandomState(0).standard_normal((size, size)))
    return np.asarray(Q * np.where(np.diag(R) < 0, -1.0, 1.0))


def make_codec(output: str, size: int, ranges: AxisRanges | None) -> Codec:
    """Return the codec of an `output`; ValueError if it is unknown, or int8 without ranges."""
    if output not in CODES:
        raise ValueError(f"output={output!r}: choose from float, {', '.join(CODES)}.")
    if output != "int8":
        return SignCodec(size, rotate=output == "binary-rotated")
    if ranges is None:
        raise ValueError(
            "This model has no int8 ranges, being from an older rpml: fit it again, or set "
            "code_ranges_ = AxisRanges.of(model.transform(X), unit=True) from rpml.method.codes."
        )
    return Int8Codec(ranges.first(size))
