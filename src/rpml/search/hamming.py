"""Nearest rows of bits by Hamming distance, with faiss if it is installed, else with numpy."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.extras import optional
from rpml.runtime.rows import top_k

Bits = NDArray[np.uint8]
BitSearch = Callable[[Bits, int], NDArray[np.intp]]
"""(queries, k) -> (n_queries, k) rows with the fewest differing bits, fewest first."""


def bit_search(rows: Bits) -> BitSearch:
    """Return a search over the rows."""
    faiss = optional("faiss")
    if faiss is None:
        return numpy_search(rows)
    index = faiss.IndexBinaryFlat(8 * rows.shape[1])
    index.add(np.ascontiguousarray(rows))
    return lambda queries, k: np.asarray(index.search(queries, k)[1], np.intp)


def numpy_search(rows: Bits) -> BitSearch:
    """Return a search without faiss: one query at a time, in words of eight bytes."""
    words = _words(rows)

    def distances(query: NDArray[np.uint64]) -> NDArray[np.float32]:
        return np.asarray(np.bitwise_count(words ^ query).sum(axis=1, dtype=np.float32))

    return lambda queries, k: np.stack([top_k(-distances(q), k) for q in _words(queries)])


def _words(codes: Bits) -> NDArray[np.uint64]:
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 8)))
    return np.ascontiguousarray(padded).view(np.uint64)
