"""Compiled scan of int8 codes."""

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.compiled import VECTORIZED, compiled


@compiled(VECTORIZED)
def scan(
    codes: NDArray[np.int8],
    scales: NDArray[np.float32],
    query: NDArray[np.float32],
    out: NDArray[np.float32],
    start: int,
    stop: int,
) -> None:
    """Set out[i] = scales[i] * codes[i] . query for the rows from start to stop."""
    for i in range(start, stop):
        total = np.float32(0.0)
        for j in range(codes.shape[1]):
            total += np.float32(codes[i, j]) * query[j]
        out[i] = scales[i] * total
