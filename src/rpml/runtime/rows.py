"""Operations on rows shared by all layers: validation, blocks, unit norm, samples, top-k."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from rpml.runtime.errors import counted

Array = NDArray[np.floating]
Floats = NDArray[np.float32]
Integers = NDArray[np.integer]
Indices = NDArray[np.intp]
Labels = Indices
Mask = NDArray[np.bool_]
AnyArray = NDArray[np.generic]
RandomState = int | np.random.RandomState | None
BLOCK_BYTES = 64 * 2**20
TOP_K_SAMPLE = 4096
SAFE_SCALE = 1e15  # beyond it, squares overflow float32
SAFE_NORMS = (1e-12, 1e15)  # between these, squares neither overflow nor underflow in float32


def slices(n: int, size: int) -> Iterator[slice]:
    """Split range(n) into slices of at most `size`."""
    return (slice(a, min(a + size, n)) for a in range(0, n, size))


def row_blocks(X: Array, dtype: DTypeLike | None = None) -> Iterator[tuple[slice, Array]]:
    """Yield (slice, X[slice] as floats) in blocks of bounded size; never copies a whole memmap."""
    dtype = dtype or float_dtype(X)
    step = _block_rows(X, dtype)
    for part in slices(len(X), step):
        yield part, np.asarray(X[part], dtype)


def count_blocks(X: Array) -> int:
    """Return how many blocks `row_blocks` yields."""
    return -(-len(X) // _block_rows(X, float_dtype(X)))


def _block_rows(X: Array, dtype: DTypeLike) -> int:
    return max(1, BLOCK_BYTES // (max(1, int(X.shape[1])) * np.dtype(dtype).itemsize))


def float_dtype(X: Any) -> type[np.floating]:
    """Return the dtype to compute with X, or rows held elsewhere: float32 or float64."""
    return np.float32 if X.dtype in (np.float16, np.float32) else np.float64


def first_not_finite(values: Array) -> tuple[int, int] | None:
    """Return (row, column) of the first NaN or infinity, or None."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return None
    row, column = np.argwhere(~np.isfinite(values))[0]
    return int(row), int(column)


def unit_rows(X: Array) -> Array:
    """Scale rows to unit norm without overflow; zero rows stay zero."""
    with np.errstate(over="ignore"):
        norm = np.sqrt(np.vecdot(X, X))[:, None]
    unsafe = np.flatnonzero(~((norm > SAFE_NORMS[0]) & (norm < SAFE_NORMS[1])))
    out = X / np.where(norm > 0, norm, 1)
    if len(unsafe):  # squares over- or underflow: divide by the largest entry first
        scale = np.abs(X[unsafe]).max(axis=1, keepdims=True, initial=0.0)
        rows = X[unsafe] / np.where(scale > 0, scale, 1)
        norm = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        out[unsafe] = rows / np.where(norm > 0, norm, 1)
    return np.asarray(out)


def with_lengths(X: Array) -> tuple[Array, Array]:
    """Return (rows, norms): X itself, or its unit rows if a norm is 0 or not safe to square."""
    with np.errstate(over="ignore"):
        length = np.sqrt(np.vecdot(X, X))
    if ((length > SAFE_NORMS[0]) & (length < SAFE_NORMS[1])).all():
        return X, length
    return unit_rows(X), np.ones_like(length)


def common_scale(X: Array) -> float:
    """Return the power of two nearest to the typical row norm; dividing by it is exact."""
    largest = max((float(np.abs(block).max(initial=0)) for _, block in row_blocks(X)), default=0.0)
    if largest == 0:
        return 1.0
    # relative to the largest entry, so that no square of a finite row overflows
    squares = (np.square(block / largest).sum(dtype=np.float64) for _, block in row_blocks(X))
    mean = float(sum(squares)) / len(X)
    return float(2.0 ** min(1023, round(math.log2(largest) + math.log2(mean) / 2)))


def to_common_scale(X: Array, as_they_are: bool) -> tuple[Array, float]:
    """Return the rows divided by a power of two, which is 1 unless their unit matters."""
    scale = divisor(common_scale(X), as_they_are)
    return X if scale == 1 else divided(X, scale), scale


def divisor(scale: float, as_they_are: bool) -> float:
    """Return the divisor of rows of a common scale, so that their unit does not matter.

    Rows that the fit takes `as_they_are`, or normalizes, are divided only to avoid overflow.
    """
    return 1.0 if as_they_are and 1 / SAFE_SCALE < scale < SAFE_SCALE else scale


def divided(X: Array, scale: float) -> Array:
    """Return the rows as floats, divided by a power of two."""
    # not by division: 2^128 divides rows of float32 that it is too large for
    rows: Array = np.ldexp(np.asarray(X, float_dtype(X)), -round(math.log2(scale)))
    return rows


def sorted_sample(n: int, size: int, rng: np.random.Generator) -> Indices:
    """Draw up to `size` of the rows 0 .. n - 1 without replacement, in ascending order."""
    if n <= size:
        return np.arange(n)
    return np.sort(rng.choice(n, size, replace=False))


def top_k(scores: Array, k: int) -> Indices:
    """Return the positions of the k largest scores, largest first; ties in order of position.

    Long arrays are thinned first: a threshold from an evenly spaced sample leaves far fewer
    candidates than a partition of all scores would touch.
    """
    if k <= 0:
        return np.empty(0, np.intp)
    candidates = np.arange(len(scores))
    step = len(scores) // TOP_K_SAMPLE
    if step > 1:
        sample = scores[::step]
        above = min(len(sample), max(8, 4 * k * len(sample) // len(scores)))
        threshold = np.partition(sample, len(sample) - above)[len(sample) - above]
        few = np.flatnonzero(scores >= threshold)
        candidates = few if len(few) >= k else candidates
    values = scores[candidates]
    if len(values) > k:
        least = np.partition(values, len(values) - k)[len(values) - k]
        candidates = candidates[values >= least]
        values = scores[candidates]
    return np.asarray(candidates[np.argsort(-values, kind="stable")][:k], np.intp)


def top_columns(scores: Array, k: int) -> Indices:
    """Return the columns of the k largest scores of each row, largest first, as (n, k)."""
    k = min(k, scores.shape[1])
    top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    top.sort(axis=1)  # break ties by column
    order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
    return np.asarray(np.take_along_axis(top, order, axis=1), np.intp)


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


def check_rows(estimator: Any, X: ArrayLike, *, reset: bool, finite: bool = True) -> Array:
    """Return X as a finite numeric matrix, read in blocks so that a memmap is never copied.

    `reset` is True in fit, which needs at least two rows and learns the number and names of the
    features; other methods compare them. `finite=False` leaves that check to the caller.
    """
    from sklearn.utils.validation import validate_data  # slow to import, and files have rows, too

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
        if (bad := first_not_finite(block)) is not None:
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
