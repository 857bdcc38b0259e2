"""Validation of the rows that an estimator receives."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from rpml.runtime.rows import Array, first_not_finite, row_blocks
from rpml.runtime.wording import counted


def as_matrix(X: Any) -> Any:
    """Convert containers of vectors that numpy does not read as a matrix; return others unchanged.

    Torch tensors (with gradients, bfloat16), series and Arrow arrays of lists, and tables with a
    single list column: pandas, polars, Arrow, Hugging Face datasets. ValueError if some values of a
    masked array are masked, since numpy would use what is below the mask.
    """
    if np.ma.is_masked(X):
        place = tuple(np.argwhere(np.ma.getmaskarray(X))[0].tolist())
        raise ValueError(f"X is masked at {place}; remove or impute such rows first.")
    if hasattr(X, "detach"):  # torch
        X = X.detach().cpu()
        return (X.float() if str(X.dtype) == "torch.bfloat16" else X).numpy()
    names: Any = getattr(X, "column_names", getattr(X, "columns", ()))
    if len(names) == 1 and len(X):
        column = as_matrix(X[names[0]])
        return column if np.ndim(column) == 2 else X
    if len(names) > 1 or not hasattr(X, "__array__"):
        return X
    rows = X if isinstance(X, np.ndarray) else np.asarray(X)
    holds_rows = rows.dtype == object and rows.ndim == 1 and len(rows) > 0 and np.ndim(rows[0]) == 1
    return _stacked(rows.tolist()) if holds_rows else rows


def _list_column(X: Any) -> str | None:
    """Return the column of a table whose values are vectors, if there is one."""
    for name in getattr(X, "column_names", getattr(X, "columns", ())):
        first: Any = next(iter(X[name]), None)
        first = first.as_py() if hasattr(first, "as_py") else first  # an Arrow scalar
        if not isinstance(first, str | bytes) and np.ndim(first) == 1:
            return str(name)
    return None


def _stacked(vectors: list[Any]) -> Any:
    """Stack vectors; the error names the first one that is missing or of another length."""
    for i, vector in enumerate(vectors):
        if np.shape(vector) != np.shape(vectors[0]):
            what = "is missing" if vector is None else f"has the shape {np.shape(vector)}"
            raise ValueError(f"X[{i}] {what}, and X[0] has {counted(len(vectors[0]), 'number')}.")
    return np.stack(vectors)


def check_rows(
    estimator: BaseEstimator, X: ArrayLike, *, reset: bool, finite: bool = True
) -> Array:
    """Return X as a finite numeric matrix, read in blocks so that a memmap is never copied.

    `reset` is True in fit, which needs at least two rows and learns the number and names of the
    features; other methods compare them. `finite=False` leaves that check to the caller.
    """
    X = as_matrix(X)
    if isinstance(X, np.ndarray) and X.ndim == 1:
        raise ValueError(
            f"X is a single vector of {counted(len(X), 'number')}. Reshape your data: X[None] "
            "is one row, X[:, None] one feature; transform_one embeds one vector."
        )
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
            if (name := _list_column(X)) is not None:
                raise ValueError(
                    f"X is a table: pass its column of vectors, X[{name!r}]."
                ) from None
            reason = str(error).rstrip(".")
            raise type(error)(
                f"X must hold numbers, but has dtype {rows.dtype}: {reason}."
            ) from None
    if finite:
        check_finite(rows)
    if not isinstance(rows, np.memmap):  # the order in memory must not change the last bits
        rows = np.ascontiguousarray(rows)
    return rows


def check_finite(rows: Array, name: str = "X") -> None:
    """Raise ValueError if a row has NaN or infinity, naming the first one."""
    for part, block in row_blocks(rows):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(block.sum()):
                continue
        bad = first_not_finite(block)  # unless the sum has overflowed
        if bad is not None:
            what = "NaN" if np.isnan(block[bad]) else "infinity"
            raise ValueError(
                f"{name} contains {what} at row {part.start + bad[0]}, column {bad[1]}; remove or "
                "impute such rows first."
            )


def check_varied(X: Array) -> None:
    """Raise ValueError if all rows are identical."""
    first = np.asarray(X[:1])
    if all((np.asarray(X[part]) == first).all() for part, _ in row_blocks(X)):
        raise ValueError(f"All {len(X)} rows of X are identical: there is nothing to learn.")
