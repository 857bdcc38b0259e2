"""Exact nearest neighbours of one vector at a time.

All rows are scanned in one byte a number, which reads a quarter of the memory; the rounding
error of every row is known, so the few rows that could be among the nearest are compared again in
single precision, and the answer is that of a full scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.pages.explorer import _kernels as kernels
from rpml.runtime.threads import run_chunks

_SAMPLE = 4096  # scores a threshold is taken from before the whole is searched
_BLOCK = 256
_BYTES_A_THREAD = 2**25  # a scan of fewer is over before a second thread has started
_ROUNDING = 1e-5  # of the sums in single precision, generously


@dataclass(frozen=True)
class Found:
    """Rows, nearest first, and their cosine."""

    rows: NDArray[np.intp]
    similarities: NDArray[np.float32]


def unit(rows: Any) -> NDArray[np.float32]:
    """Rows in single precision with unit norm; zero rows stay zero."""
    wide = np.asarray(rows, np.float64 if np.asarray(rows).dtype == np.float64 else np.float32)
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0)
    wide = wide / np.where(largest > 0, largest, 1)  # so that squares neither overflow nor vanish
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(norms > 0, norms, 1), np.float32)


class Index:
    """All rows with unit norm.

    Parameters
    ----------
    vectors : (n, d) array
        Copied block by block, so a memory map is never held twice.
    """

    def __init__(self, vectors: Any) -> None:
        n, d = vectors.shape
        self.rows: NDArray[np.float32] = np.empty((n, d), np.float32)
        self._codes: NDArray[np.int8] = np.empty((n, d), np.int8)
        self._scales: NDArray[np.float32] = np.empty(n, np.float32)
        self._errors: NDArray[np.float32] = np.empty(n, np.float32)
        step = max(1, 2**24 // max(1, d))
        for start in range(0, n, step):
            part = slice(start, start + step)
            self.rows[part] = unit(vectors[part])
            self._quantize(part)

    def _quantize(self, part: slice) -> None:
        """One byte a number, and how far each row is from what its bytes stand for."""
        rows = self.rows[part]
        largest = np.abs(rows).max(axis=1, initial=0)
        scales = np.where(largest > 0, largest, 1) / 127
        codes = np.rint(rows / scales[:, None])
        self._codes[part], self._scales[part] = codes, scales
        self._errors[part] = np.linalg.norm(rows - codes * scales[:, None], axis=1) + _ROUNDING

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """Numbers a vector has."""
        return int(self.rows.shape[1])

    def near_row(self, row: int, k: int) -> Found:
        """The k nearest other rows of a row."""
        return self._near(self.rows[row], k, row)

    def near_vector(self, vector: NDArray[Any], k: int) -> Found:
        """The k nearest rows of a vector from elsewhere."""
        return self._near(unit(np.asarray(vector)[None])[0], k, None)

    def _near(self, query: NDArray[np.float32], k: int, leave_out: int | None) -> Found:
        n = len(self)
        k = min(k, n - (leave_out is not None))
        if k <= 0:
            return Found(np.empty(0, np.intp), np.empty(0, np.float32))
        about = np.empty(n, np.float32)
        run_chunks(
            lambda _, a, b: kernels.scan(self._codes, self._scales, query, about, a, b),
            n,
            max(1, _BYTES_A_THREAD // self.size),
        )
        if leave_out is not None:
            about[leave_out] = -np.inf
        least = about - self._errors  # |x . q - about| is at most the error, as |q| = 1
        sure = float(least[top(least, k)[-1]])
        candidates = np.flatnonzero(about + self._errors >= sure)
        scores = self.rows[candidates] @ query
        best = top(scores, k)
        return Found(candidates[best], scores[best])

    def near_rows(self, queries: NDArray[np.intp], k: int) -> NDArray[np.intp]:
        """(q, k) nearest other rows of many rows, in no particular order."""
        k = min(k, len(self) - 1)
        out = np.empty((len(queries), k), np.intp)
        for start in range(0, len(queries), _BLOCK):
            some = queries[start : start + _BLOCK]
            scores = self.rows[some] @ self.rows.T
            scores[np.arange(len(some)), some] = -np.inf
            out[start : start + _BLOCK] = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        return out


def top(scores: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Places of the k largest scores, largest first, equal ones in the order of their places."""
    if k <= 0:
        return np.empty(0, np.intp)
    candidates = np.arange(len(scores))
    step = len(scores) // _SAMPLE
    if step > 1:
        # a value that some of a sample exceed: far fewer candidates than scores, rarely too few
        sample = scores[::step]
        above = min(len(sample), max(8, 4 * k * len(sample) // len(scores)))
        threshold = np.partition(sample, len(sample) - above)[len(sample) - above]
        few = np.flatnonzero(scores >= threshold)
        candidates = few if len(few) >= k else candidates
    values = scores[candidates]
    if len(values) > k:
        least = np.partition(values, len(values) - k)[len(values) - k]
        candidates = candidates[values >= least]
        values = scores[candidates]
    return np.asarray(candidates[np.argsort(-values, kind="stable")][:k], np.intp)
