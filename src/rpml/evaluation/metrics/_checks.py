"""Validation of the inputs of metrics."""

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.runtime.rows import Array, as_matrix, check_finite
from rpml.runtime.wording import counted


def check_metric(metric: str) -> None:
    """Raise ValueError for an unknown metric."""
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f"metric must be 'cosine' or 'euclidean', got {metric!r}")


def checked_embedding(Z: ArrayLike, name: str = "Z") -> Array:
    """Return Z as a finite 2-D array of floats; float32, float64 and memory maps are not copied."""
    array: Array = np.asanyarray(as_matrix(Z))
    if array.ndim != 2:
        raise ValueError(f"{name} must be a 2-D array (rows, dimensions), got shape {array.shape}")
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise TypeError(f"{name} must hold numbers, got dtype {array.dtype}")
    if np.iscomplexobj(array):
        raise TypeError(f"{name} must hold real numbers, got complex ones")
    if array.shape[0] < 2 or array.shape[1] < 1:
        raise ValueError(f"{name} needs at least 2 rows and 1 dimension, got shape {array.shape}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64 if array.dtype.itemsize > 2 else np.float32)
    check_finite(array, name)
    return array


def checked_codes(y: ArrayLike, n: int, name: str = "y") -> NDArray[np.intp]:
    """Convert labels of any sortable type to codes 0..classes-1, one per row."""
    array = np.asanyarray(y)
    if array.ndim != 1:
        raise ValueError(f"{name} must be 1-D, one label per row, got shape {array.shape}")
    if len(array) != n:
        raise ValueError(
            f"{name} must have one label per row, got {counted(len(array), 'label')} for "
            f"{counted(n, 'row')}"
        )
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"{name} has a NaN or infinite label at row {row}")
    try:
        return np.unique(array, return_inverse=True)[1].astype(np.intp, copy=False)
    except TypeError as error:
        raise TypeError(f"{name} mixes labels of kinds that cannot be compared ({error})") from None


def checked_ks(ks: int | Sequence[int]) -> list[int]:
    """Return the ks as a list of positive integers."""
    listed = [ks] if isinstance(ks, Integral) else list(ks)  # type: ignore[arg-type]
    if not listed:
        raise ValueError("ks is empty: give at least one K, for instance ks=(1, 2, 4, 8)")
    for k in listed:
        if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
            raise ValueError(f"every K in ks must be an integer of at least 1, got {k!r}")
    return [int(k) for k in listed]
