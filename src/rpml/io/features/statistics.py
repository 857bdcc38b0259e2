"""Statistics of a file of vectors, in one pass."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.source import FeatureSource
from rpml.runtime.errors import InputError


@dataclass
class FileStatistics:
    """Counts over all rows."""

    n_rows: int = 0
    not_finite: int = 0
    first_not_finite: str | None = None
    zero_rows: int = 0
    constant_columns: int = 0
    has_negative: bool = False
    norms: dict[str, float] = field(default_factory=dict)


def file_statistics(source: FeatureSource) -> FileStatistics:
    """Read every row once and count bad values instead of rejecting them."""
    counts = FileStatistics()
    low: NDArray[np.floating] = np.full(source.n_features, np.inf)
    high: NDArray[np.floating] = np.full(source.n_features, -np.inf)
    shortest, longest, total, measured = np.inf, 0.0, 0.0, 0
    for batch in source.raw_batches(source.batch_rows()):
        values = batch.values.astype(np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            counts.first_not_finite = counts.first_not_finite or source._place(batch, row, column)
            counts.not_finite += int((~finite).sum())
        lengths = np.linalg.norm(values, axis=1)
        counts.zero_rows += int((lengths == 0).sum())
        lengths = lengths[np.isfinite(lengths)]
        shortest = min(shortest, float(lengths.min(initial=np.inf)))
        longest = max(longest, float(lengths.max(initial=0.0)))
        total, measured = total + float(lengths.sum()), measured + len(lengths)
        low = np.fmin(low, np.where(finite, values, np.inf).min(axis=0))
        high = np.fmax(high, np.where(finite, values, -np.inf).max(axis=0))
        counts.n_rows += len(values)
    if counts.n_rows == 0:
        raise InputError(f"{source.name} has no rows")
    counts.constant_columns = int((low == high).sum())
    counts.has_negative = bool((low < 0).any())
    if measured:
        counts.norms = {"min": shortest, "mean": total / measured, "max": longest}
    return counts
