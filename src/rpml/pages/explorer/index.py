"""Exact nearest neighbors of single vectors.

All rows are scanned as int8 codes, which takes a quarter of the memory bandwidth. Since the
rounding error of every row is known, only the few rows that could be among the nearest are
compared in single precision, and the result equals that of a full scan.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rpml.method.calibration import SimilarityScale
from rpml.method.graph.heaps import nearest_rows
from rpml.runtime.compiled import VECTORIZED, compiled
from rpml.runtime.rows import Array, Floats, Indices, Mask, row_blocks, top_k, unit_rows
from rpml.runtime.threads import run_chunks

_BYTES_PER_THREAD = 2**25  # a shorter scan ends before a second thread has started
_ROUNDING = 1e-5  # upper bound for sums in single precision


NearestRows = tuple[Indices, Floats]
"""Rows, nearest first, and their cosine similarities."""


class ExactIndex:
    """All rows with unit norm; X is copied in blocks, so that a memmap is never loaded twice."""

    def __init__(self, X: Array) -> None:
        n, d = X.shape
        self.rows: Floats = np.empty((n, d), np.float32)
        self._codes: NDArray[np.int8] = np.empty((n, d), np.int8)
        self._scales: Floats = np.empty(n, np.float32)
        self._errors: Floats = np.empty(n, np.float32)
        for part, block in row_blocks(X):
            self.rows[part] = unit_rows(block)
            rows = self.rows[part]
            largest = np.abs(rows).max(axis=1, initial=0)
            scales = np.where(largest > 0, largest, 1) / 127
            self._scales[part] = scales
            self._codes[part] = codes = np.rint(rows / scales[:, None])
            # the distance of each row to its decoded codes
            self._errors[part] = np.linalg.norm(rows - codes * scales[:, None], axis=1) + _ROUNDING

    @cached_property
    def similarity_scale(self) -> SimilarityScale:
        """Similarities of random pairs and of nearest neighbors, in a sample of the rows."""
        return SimilarityScale.from_rows(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_dims(self) -> int:
        return int(self.rows.shape[1])

    def near_row(self, row: int, k: int, among: Mask | None = None) -> NearestRows:
        """Return the k nearest other rows of a row, of all rows or `among` some."""
        among = np.ones(len(self), bool) if among is None else among.copy()
        among[row] = False
        return self.near_vector(self.rows[row], k, among)

    def near_vector(self, vector: Array, k: int, among: Mask | None = None) -> NearestRows:
        query = unit_rows(np.asarray(vector)[None])[0].astype(np.float32)
        n = len(self)
        k = min(k, n if among is None else int(among.sum()))
        if k <= 0:
            return np.empty(0, np.intp), np.empty(0, np.float32)
        approximate = np.empty(n, np.float32)
        run_chunks(
            lambda _, a, b: _scan(self._codes, self._scales, query, approximate, a, b),
            n,
            max(1, _BYTES_PER_THREAD // self.n_dims),
        )
        if among is not None:
            approximate[~among] = -np.inf
        lower = approximate - self._errors  # |x . q - approximate| <= error, since |q| = 1
        threshold = float(lower[top_k(lower, k)[-1]])
        candidates = np.flatnonzero(approximate + self._errors >= threshold)
        scores = self.rows[candidates] @ query
        best = top_k(scores, k)
        return candidates[best], scores[best]

    def nearest_rows(self, queries: Indices, k: int) -> Indices:
        """Return the nearest other rows of many rows, nearest first, as (q, k)."""
        k = min(k, len(self) - 1)
        return nearest_rows(self.rows[queries], self.rows, k, own=queries)[1]


@compiled(VECTORIZED)
def _scan(
    codes: NDArray[np.int8], scales: Floats, query: Floats, out: Floats, start: int, stop: int
) -> None:
    """Set out[i] = scales[i] * codes[i] . query for the rows from start to stop."""
    for i in range(start, stop):
        total = np.float32(0.0)
        for j in range(codes.shape[1]):
            total += np.float32(codes[i, j]) * query[j]
        out[i] = scales[i] * total
