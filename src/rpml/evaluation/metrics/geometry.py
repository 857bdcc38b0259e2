"""Rows brought to a common scale in double precision, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime import rows as shared

BLOCK_ROWS = 8192


def blocks(n: int) -> list[slice]:
    """Cut range(n) into slices of at most `BLOCK_ROWS`."""
    return [slice(a, min(a + BLOCK_ROWS, n)) for a in range(0, n, BLOCK_ROWS)]


def unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Rows divided by their norm, in double precision; zero rows stay zero."""
    return shared.unit_rows(rows.astype(np.float64))


def ball_around(Z: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Mean of the rows and the largest distance to it (1 if all rows are equal)."""
    centre = np.zeros(Z.shape[1])
    for block in blocks(len(Z)):
        centre += Z[block].sum(axis=0, dtype=np.float64) / len(Z)
    widest = max(float(np.abs(Z[block] - centre).max()) for block in blocks(len(Z)))
    if widest == 0:
        return centre, 1.0
    norms = (np.linalg.norm((Z[b] - centre) / widest, axis=1).max() for b in blocks(len(Z)))
    return centre, widest * float(max(norms))
