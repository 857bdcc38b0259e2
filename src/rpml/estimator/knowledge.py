"""Validation of what a user knows and does not want to matter: a nuisance, and queries."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.method.knowledge.constraints import as_labels
from rpml.method.whitening.nuisance import Nuisance
from rpml.runtime.rows import Array, as_matrix, divided, float_dtype
from rpml.runtime.wording import counted

FEW = 20  # distinct numbers up to which floats are categories
BINS = 4  # of a number, to tell rows of other values


def as_nuisance(nuisance: ArrayLike | None, n: int, whiten: object = "auto") -> Nuisance | None:
    """Return the columns of a nuisance of n rows, as codes or standardized numbers."""
    if nuisance is None:
        return None
    _check_whiten("nuisance", whiten)
    columns, codes = [], []
    for name, values in _columns(nuisance, n):
        column = _as_column(name, values, n)
        columns.append(column)
        codes.append(_binned(column) if column.dtype.kind == "f" else column)
    known = np.all([code >= 0 for code in codes], axis=0)
    if known.sum() < 2:
        raise ValueError("nuisance: no two rows have a value in every column.")
    joint = np.full(n, -1, np.intp)
    together = np.stack([code[known] for code in codes], axis=1)
    joint[known] = np.unique(together, axis=0, return_inverse=True)[1].ravel()
    return Nuisance(tuple(columns), joint)


def nuisance_table(nuisance: ArrayLike, n: int) -> NDArray[np.object_]:
    """Return the columns of a nuisance of n rows as an array of shape (n, n_columns)."""
    return np.array([values.tolist() for _, values in _columns(nuisance, n)], object).T


def as_queries(
    queries: ArrayLike | None, X: Array, scale: float = 1.0, whiten: object = "auto"
) -> Array | None:
    """Return queries as rows of the width and precision of X, divided by the scale."""
    if queries is None:
        return None
    _check_whiten("queries", whiten)
    rows = np.asarray(as_matrix(queries))
    if rows.ndim != 2 or rows.shape[1] != X.shape[1]:
        width = rows.shape[-1] if rows.ndim else 0
        raise ValueError(
            f"queries must be rows of {X.shape[1]} columns, as X has, got "
            + (f"{width} columns." if rows.ndim == 2 else f"the shape {rows.shape}.")
        )
    if len(rows) == 0:
        raise ValueError("queries are empty: leave them out, or pass one query per row.")
    rows = rows.astype(float_dtype(X))
    if not np.isfinite(rows).all():
        row = int(np.isfinite(rows).all(axis=1).argmin())
        raise ValueError(f"queries contain NaN or infinity in row {row} (counted from 0).")
    return rows if scale == 1 else divided(rows, scale)


def _check_whiten(name: str, whiten: object) -> None:
    if whiten != "auto":
        raise ValueError(f"{name} is used by whiten='auto' only, not by whiten={whiten!r}.")


def _columns(nuisance: Any, n: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and the values of each column of a series, a table, or an array."""
    if hasattr(nuisance, "columns"):  # pandas, polars
        table = {f"nuisance column {name!r}": nuisance[name] for name in nuisance.columns}
    else:
        values = nuisance if isinstance(nuisance, np.ndarray) else np.asarray(nuisance, object)
        values = np.asarray(nuisance) if hasattr(nuisance, "dtype") else values
        if values.ndim == 2:
            table = {f"nuisance column {i}": values[:, i] for i in range(values.shape[1])}
        else:
            table = {"nuisance": nuisance}
    if not table:
        raise ValueError("nuisance has no columns: leave it out.")
    for name, column in table.items():
        values = np.asarray(column)
        if values.dtype.kind == "O":
            values = _typed(values)
        if values.shape != (n,):
            raise ValueError(
                f"{name} must have one value per row ({n}), got the shape {values.shape}."
            )
        yield name, values


def _typed(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers among objects, such as a column of a mixed table, as numbers."""
    present = [value for value in values.ravel().tolist() if value is not None]
    if present and all(isinstance(v, int | float) and not isinstance(v, bool) for v in present):
        if all(isinstance(value, int) for value in present) and len(present) == values.size:
            return values.astype(np.int64)
        return np.array([np.nan if v is None else v for v in values.tolist()], np.float64)
    return values


def _as_column(name: str, values: NDArray[Any], n: int) -> NDArray[Any]:
    """Return categories as codes and numbers standardized."""
    if values.dtype.kind == "f":
        known = np.isfinite(values)
        if len(np.unique(values[known])) > FEW:
            numbers = values.astype(np.float64)
            numbers[~known] = np.nan
            numbers -= numbers[known].mean()
            return np.asarray(numbers / numbers[known].std())
        codes = np.full(n, -1, np.intp)
        codes[known] = np.unique(values[known], return_inverse=True)[1]
    elif values.dtype.kind == "b":
        codes = values.astype(np.intp)
    else:
        codes = as_labels(values, n, name)
    distinct = len(np.unique(codes[codes >= 0]))
    if distinct < 2:
        what = "no value" if distinct == 0 else "one value for all rows"
        raise ValueError(f"{name} has {what}: there is nothing to tell apart, leave it out.")
    if distinct == (codes >= 0).sum():
        raise ValueError(
            f"{name} has another value for each of {counted(distinct, 'row')}: it must be shared "
            "by rows; pass numbers, such as a length, as floats."
        )
    return codes


def _binned(column: NDArray[np.floating]) -> NDArray[np.intp]:
    """Return the quarter of the numbers that each is in, -1 where there is none."""
    known = np.isfinite(column)
    edges = np.quantile(column[known], np.arange(1, BINS) / BINS)
    return np.where(known, np.searchsorted(edges, np.where(known, column, 0.0)), -1)
