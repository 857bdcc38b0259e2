"""Conversion of labels to integers."""

import math
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike

from rpml.runtime.rows import Labels


def as_labels(values: ArrayLike, n: int, name: str = "labels") -> Labels:
    """Convert labels of any kind to integers from 0, and missing ones to -1.

    Negative numbers, NaN, None, the NA of pandas and the text "-1" mean that there is no label.
    """
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{name} must have one value per row ({n}), got shape {values.shape}.")
    if values.dtype.kind in "iu":
        missing = values < 0
    elif values.dtype.kind in "mM":
        missing = np.isnat(values)
    elif values.dtype.kind == "f":
        missing = ~np.isfinite(values) | (values < 0)
    else:
        missing = np.array([_is_missing(value) for value in values.tolist()], bool)
    labels = np.full(n, -1, np.intp)
    if not missing.all():
        present = values[~missing]
        present = present if values.dtype.kind in "iuf" else present.astype(str)
        labels[~missing] = np.unique(present, return_inverse=True)[1]
    return labels


def _is_missing(value: object) -> bool:
    if isinstance(value, str):
        return value == "-1"
    if isinstance(value, Real):
        return not 0 <= float(value) < math.inf
    return value is None or repr(value) in ("<NA>", "NaT")
