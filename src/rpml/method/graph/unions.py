"""Exact nearest neighbors of the same rows by several subsets of their columns.

The columns are in a few parts, and a subset is the union of two parts. Inner products add up, so
each part is multiplied once, however many unions it is in.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph import kernels
from rpml.method.graph.exact import Pair, block_size, empty_heaps, run_pairs
from rpml.runtime.memory import WORKING_MEMORY
from rpml.runtime.rows import Array, slices

_TINY = 1e-30  # squared norm of a row that has no direction


def nearest_by_unions(
    parts: Sequence[Array], unions: Sequence[Pair], k: int
) -> list[NDArray[np.int32]]:
    """Find the k other rows of highest cosine, per union of two parts and row, in any order.

    `parts` are columns of the rows in float32, (n, any). Returns (n, k) row numbers per union.
    """
    n, width = len(parts[0]), sum(part.shape[1] for part in parts)
    squares = [np.vecdot(part, part) for part in parts]
    scales = [1 / np.sqrt(np.maximum(squares[i] + squares[j], _TINY)) for i, j in unions]
    found = [empty_heaps(n, min(k, n - 1)) for _ in unions]
    blocks = list(slices(n, block_size(n, width, WORKING_MEMORY)))
    ids = np.arange(n, dtype=np.int32)

    def search(a: int, b: int) -> None:
        left, right = blocks[a], blocks[b]
        products = [part[left] @ part[right].T for part in parts]
        for (i, j), scale, (scores, rows) in zip(unions, scales, found, strict=True):
            kernels.push_sums(
                products[i],
                products[j],
                (scale[left], ids[left], scores[left], rows[left]),
                (scale[right], ids[right], scores[right], rows[right]),
                a != b,
            )

    pairs = ((a, b) for a in range(len(blocks)) for b in range(a, len(blocks)))
    sizes = np.array([part.stop - part.start for part in blocks])
    run_pairs(search, pairs, sizes, lambda share: None)
    return [rows for _, rows in found]
