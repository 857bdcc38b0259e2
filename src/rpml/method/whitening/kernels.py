"""Compiled loops of the evidence for a whitening."""

import numpy as np

from rpml.runtime.compiled import compiled


@compiled()
def count_higher(scores, columns, counts):  # type: ignore[no-untyped-def]
    """counts[i, j]: how many scores of row i are higher than the one in columns[i, j]."""
    for i in range(len(scores)):
        row = scores[i]
        for j in range(columns.shape[1]):
            bar = row[columns[i, j]]
            higher = np.int32(0)
            for c in range(scores.shape[1]):
                higher += np.int32(row[c] > bar)
            counts[i, j] = higher
