"""Conversion of labels to integers."""

import numpy as np
from numpy.typing import ArrayLike

from rpml.runtime.rows import Labels


def as_labels(values: ArrayLike, n: int, name: str = "labels") -> Labels:
    """Convert any labels to integers from 0; negative numbers, None and NaN to -1 (no label)."""
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{name} must have one value per row ({n}), got shape {values.shape}.")
    if values.dtype.kind in "iu":
        missing = values < 0
    elif values.dtype.kind == "f":
        missing = ~np.isfinite(values) | (values < 0)
    else:
        missing = np.array([v is None or v != v or v in (-1, "-1") for v in values.tolist()], bool)
    labels = np.full(n, -1, np.intp)
    if not missing.all():
        present = values[~missing]
        present = present if values.dtype.kind in "iuf" else present.astype(str)
        labels[~missing] = np.unique(present, return_inverse=True)[1]
    return labels
