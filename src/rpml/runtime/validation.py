"""What an estimator accepts as rows, and the one sentence it refuses the rest with."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from rpml.runtime.rows import Array, row_blocks


def check_rows(estimator: BaseEstimator, X: ArrayLike, *, reset: bool) -> Array:
    """X as a finite matrix of numbers, read in blocks so that a memory map stays one.

    `reset` is True in fit, where at least two rows are needed and the number and the names of the
    features are learned; in other methods they are compared.
    """
    rows: Array = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=None,
        ensure_all_finite=False,
        ensure_min_samples=2 if reset else 1,
    )
    if rows.dtype.kind not in "fiub":
        try:
            rows = rows.astype(np.float64)
        except (TypeError, ValueError) as error:
            reason = str(error).rstrip(".")
            raise type(error)(
                f"X must hold numbers, but has dtype {rows.dtype}: {reason}."
            ) from None
    for part, block in row_blocks(rows):
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            what = "NaN" if np.isnan(block[row, column]) else "infinity"
            raise ValueError(
                f"X contains {what} at row {part.start + row}, column {column}; remove or impute "
                "such rows first."
            )
    return rows


def check_varied(X: Array) -> None:
    """Refuse rows that are all the same."""
    first = np.asarray(X[:1])
    if all((np.asarray(X[part]) == first).all() for part, _ in row_blocks(X)):
        raise ValueError(f"All {len(X)} rows of X are identical: there is nothing to learn.")
