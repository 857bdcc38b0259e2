"""Scores of codes by table look-up, and the rows with the best ones."""

import numpy as np
from numpy.typing import NDArray

from rpml.method.codes import Codec, Codes
from rpml.runtime.blas import times
from rpml.runtime.compiled import VECTORIZED, compiled
from rpml.runtime.rows import BLOCK_BYTES, slices
from rpml.runtime.threads import run_chunks

MIN_CHUNK = 65_536  # rows per thread
Floats = NDArray[np.float32]


@compiled(VECTORIZED)
def add_entries(
    table: NDArray[np.generic],
    codes: NDArray[np.generic],
    scales: NDArray[np.generic],
    scores: NDArray[np.generic],
) -> None:
    """Set each row's score to its scale times the sum of the table entries its bytes select."""
    for i in range(codes.shape[0]):
        total = np.float32(0)
        for m in range(codes.shape[1]):
            total += table[m, codes[i, m]]
        scores[i] = total * scales[i]


class CodeScan:
    """Scores float queries against codes, as `queries @ codec.decode(codes).T` would."""

    def __init__(self, codec: Codec, codes: Codes) -> None:
        self.codec, self.codes = codec, codes
        self.by_table = codec.centroids.shape[2] > 1
        if self.by_table:
            self.selected, self.scales = codec.indices(codes), codec.scales(codes)

    def scores(self, queries: Floats) -> Floats:
        """Return the (n_queries, n_rows) scores."""
        out = np.empty((len(queries), len(self.codes)), np.float32)
        if not self.by_table:  # a product is faster than a look-up per axis
            rows = max(1, BLOCK_BYTES // (4 * self.codec.size))
            for part in slices(len(self.codes), rows):
                out[:, part] = times(queries, self.codec.decode(self.codes[part]).T)
            return out
        tables = self.codec.tables(queries)

        def work(_: int, start: int, stop: int) -> None:
            codes, scales = self.selected[start:stop], self.scales[start:stop]
            for table, scores in zip(tables, out, strict=True):
                add_entries(table, codes, scales, scores[start:stop])

        run_chunks(work, len(self.codes), MIN_CHUNK)
        return out
