"""The interface of all readers: batches of rows with ids, checked here, and choice of columns."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError
from rpml.runtime.rows import AnyArray, Array, Indices, first_not_finite

Ids = NDArray[np.object_]

Columns = Mapping[str, object]
"""Lists or Arrow arrays by name."""

Stamp = tuple[str, int, int, int]
_ID_NAMES = {"id", "ids", "key", "index", "uuid", "__index_level_0__"}
BATCH_BYTES = 2**25
LARGE, MOST_COMPRESSION = 2**28, 100  # real vectors compress by half, zeros by a factor of 1000


@dataclass(frozen=True)
class ReadOptions:
    """What to read from a file that leaves a choice."""

    columns: tuple[str, ...] | None = None
    """Feature columns of a CSV or parquet file, or the list column; ``*`` matches any text."""
    id_column: str | None = None
    """The column (or array) with the ids of the rows."""
    array: str | None = None
    """The array of an .npz file."""
    exclude: tuple[str, ...] = ()
    """Columns that are not features, such as labels in the same file."""
    keep: tuple[str, ...] = ()
    """Columns that are not features and are copied to the output; ``*`` matches any text."""


def file_stamp(path: str | Path) -> Stamp:
    """Return path, identity, size and modification time of a file."""
    status = os.stat(path)
    return str(path), status.st_ino, status.st_size, status.st_mtime_ns


def changed_error(path: str) -> InputError:
    """Return the exception for a file that changed under its reader."""
    return InputError(f"{path} was changed while it was read: run again when it is complete")


def check_compression(name: str, unpacked: int, stored: int) -> None:
    """Raise InputError for a small file that would decompress to fill the memory."""
    if unpacked > LARGE and unpacked > MOST_COMPRESSION * max(1, stored):
        raise InputError(f"{name} unpacks to {unpacked / 1e9:.1f} GB: it is not data")


@dataclass(frozen=True)
class Batch:
    """Consecutive rows; `lines` are line numbers of a text file, `kept` the columns to copy."""

    start: int
    values: Array
    ids: Ids | None = None
    lines: Sequence[int] | None = None
    kept: Columns = field(default_factory=dict)


def picked(batches: Iterator[Batch], wanted: Indices) -> Array:
    """Return rows by their position among all of the batches, ascending."""
    blocks: list[Array] = []
    for _ in picking(batches, wanted, blocks):
        pass
    return np.concatenate(blocks or [np.empty((0, 0))])


def picking(batches: Iterator[Batch], wanted: Indices, blocks: list[Array]) -> Iterator[Batch]:
    """Yield the batches, and append the wanted rows of each to the blocks."""
    seen = 0
    for batch in batches:
        a, b = np.searchsorted(wanted, (seen, seen + len(batch.values)))
        blocks.append(batch.values[wanted[a:b] - seen])
        seen += len(batch.values)
        yield batch


@dataclass(frozen=True)
class Features:
    """All vectors of a file, possibly memory-mapped, with the names of rows and columns."""

    values: Array
    ids: Ids | None = None
    id_name: str = "id"
    feature_names: tuple[str, ...] | None = None
    name: str = "X"
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """Columns that are not features, where the workers of a cluster read them."""
    mapped: Stamp | None = None
    """Of the file, if the values are mapped and so change with it."""

    @property
    def id_column(self) -> str | None:
        """The name of the ids, if there are any: other tables may call them the same."""
        return None if self.ids is None else self.id_name

    def check_unchanged(self) -> None:
        """Raise InputError if the mapped file was rewritten; a replaced or deleted one stays."""
        if self.mapped is None or not os.path.exists(self.mapped[0]):
            return
        now = file_stamp(self.mapped[0])
        if now[1] == self.mapped[1] and now != self.mapped:
            raise changed_error(now[0])


class FeatureSource(ABC):
    """An open feature file: its shape is known, its rows are read in batches."""

    name: str
    n_features: int
    n_rows: int | None = None
    dtype: np.dtype[np.generic] = np.dtype(np.float32)
    has_ids: bool = False
    id_name: str = "id"
    feature_names: tuple[str, ...] | None = None
    kept_names: tuple[str, ...] = ()
    stamp: Stamp | None = None
    row_groups: tuple[int, ...] = ()
    """Rows of each row group of a parquet file."""

    @abstractmethod
    def raw_batches(self, rows: int) -> Iterator[Batch]:
        """Yield rows in order, at most `rows` at a time, unchecked."""

    def batches_between(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield the batches that hold the rows start to stop, unchecked."""
        for batch in self.raw_batches(self.batch_rows()):
            if batch.start >= stop:
                return
            if batch.start + len(batch.values) > start:
                yield batch

    def ids(self) -> Ids | None:
        """Read the ids of all rows, if there are any."""
        return _join([batch.ids for batch in self.raw_batches(self.batch_rows())])

    def column(self, name: str) -> Sequence[object]:
        """Read a column that is not a feature, as Python values."""
        raise InputError(f"{self.name} has no column {name!r}: only tables have columns")

    def batch_rows(self) -> int:
        """Return the number of rows in a batch of about 32 MB."""
        return max(1, BATCH_BYTES // max(1, self.n_features * self.dtype.itemsize))

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Yield rows in order; all values are finite, ids unique, and there is at least one row."""
        seen, hashes = 0, []
        for batch in self.raw_batches(rows or self.batch_rows()):
            self._check_finite(batch)
            if batch.ids is not None:
                check_text(batch.ids, self.name)
                hashes.append(np.fromiter(map(hash, batch.ids), np.int64, len(batch.ids)))
            seen += len(batch.values)
            yield batch
        self.check_unchanged()
        if seen == 0:
            raise InputError(f"{self.name} has no rows")
        # eight bytes per row tell that an id occurs twice; to name it, the file is read again
        if hashes and len(np.unique(np.concatenate(hashes))) < seen:
            ids = [batch.ids for batch in self.raw_batches(self.batch_rows())]
            check_unique_ids(_join(ids), self.name)

    def check_unchanged(self) -> None:
        """Raise InputError if the file has changed since it was opened."""
        if self.stamp is None:
            return
        path = self.stamp[0]
        if not os.path.exists(path) or file_stamp(path) != self.stamp:
            raise changed_error(path)

    def load(self) -> Features:
        """Load every row (a subclass may map the file instead)."""
        ids = []
        if self.n_rows is None:
            parts = list(self.batches())
            values = np.concatenate([p.values for p in parts])
            ids = [p.ids for p in parts]
        else:  # into one array of the declared size, which a damaged file may not fill
            shape, seen = (self.n_rows, self.n_features), 0
            try:
                values = np.empty(shape, self.dtype)
            except (MemoryError, ValueError) as error:
                raise InputError(f"{self.name}: {shape} numbers do not fit in memory") from error
            for batch in self.batches():
                seen = batch.start + len(batch.values)
                if seen > self.n_rows:
                    break
                values[batch.start : seen] = batch.values
                ids.append(batch.ids)
            if seen != self.n_rows:
                raise InputError(f"{self.name} is damaged: it says {self.n_rows} rows, has others")
        return Features(values, _join(ids), self.id_name, self.feature_names, self.name)

    def _check_finite(self, batch: Batch) -> None:
        bad = first_not_finite(batch.values)
        if bad is not None:
            row, column = bad
            value = "NaN" if np.isnan(batch.values[bad]) else "infinite"
            raise InputError(
                f"{self.name}: {self._place(batch, row, column)} is {value}: "
                "remove or fill such rows first"
            )

    def _place(self, batch: Batch, row: int, column: int) -> str:
        name = repr(self.feature_names[column]) if self.feature_names else str(column)
        if batch.lines is not None:
            return f"line {batch.lines[row]}, column {name}"
        return f"row {batch.start + row}, column {name} (counted from 0)"


def as_ids(values: Sequence[object] | AnyArray, name: str = "ids") -> Ids:
    """Return ids as Python objects (fixed-width text would take the longest id's size per row)."""
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InputError(f"{name} has shape {values.shape}, and ids must have one dimension")
    array = np.empty(len(values), dtype=object)
    array[:] = values.tolist() if isinstance(values, np.ndarray) else values
    return array


def _join(parts: list[Ids | None]) -> Ids | None:
    present = [p for p in parts if p is not None]
    return np.concatenate(present) if present else None


def check_text(ids: Iterable[object], name: str) -> None:
    """Raise InputError if an id cannot be written, as a lone surrogate."""
    try:
        "".join(value for value in ids if isinstance(value, str)).encode()
    except UnicodeEncodeError as error:
        shown = ascii(error.object[error.start])
        raise InputError(f"{name}: an id with {shown} is not valid text") from None


def check_unique_ids(ids: Ids | None, name: str) -> None:
    """Raise InputError with the first duplicate id."""
    first: dict[Any, int] = {}
    for row, value in enumerate(ids if ids is not None else ()):
        if value in first:
            raise InputError(
                f"{name}: id {value!r} is given to rows {first[value]} and {row} "
                "(counted from 0): ids must be unique"
            )
        first[value] = row


def pair_by_id(first: Features, second: Features) -> tuple[Array, Array]:
    """Return the rows of both in the same order, matched by id where both have ids."""
    if first.ids is None or second.ids is None:
        return first.values, second.values
    place = {str(value): row for row, value in enumerate(second.ids)}
    pairs = [(i, place[str(v)]) for i, v in enumerate(first.ids) if str(v) in place]
    if not pairs:
        raise InputError(f"{first.name} and {second.name} have no id in common")
    rows, others = np.array(pairs).T
    return first.values[rows], second.values[others]


def file_statistics(source: FeatureSource) -> dict[str, Any]:
    """Read every row once and count bad values instead of rejecting them, as JSON values."""
    rows, zero_rows, not_finite, first_bad, norms = 0, 0, 0, None, []
    low: Array = np.full(source.n_features, np.inf)
    high: Array = np.full(source.n_features, -np.inf)
    for batch in source.raw_batches(source.batch_rows()):
        values = batch.values.astype(np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            first_bad = first_bad or source._place(batch, *np.argwhere(~finite)[0])
            not_finite += int((~finite).sum())
        lengths = np.linalg.norm(values, axis=1)
        rows, zero_rows = rows + len(values), zero_rows + int((lengths == 0).sum())
        known = lengths[np.isfinite(lengths)]
        norms.append((known.min(initial=np.inf), known.sum(), known.max(initial=0.0), len(known)))
        low = np.fmin(low, np.where(finite, values, np.inf).min(axis=0))
        high = np.fmax(high, np.where(finite, values, -np.inf).max(axis=0))
    if rows == 0:
        raise InputError(f"{source.name} has no rows")
    least, total, most, count = (np.array(column, float) for column in zip(*norms, strict=True))
    figures = {"min": least.min(), "mean": total.sum() / max(1, count.sum()), "max": most.max()}
    return {
        "rows": rows,
        "not_finite": not_finite,
        "first_not_finite": first_bad,
        "zero_rows": zero_rows,
        "constant_columns": int((low == high).sum()),
        "negative_values": bool((low < 0).any()),
        "norms": {k: float(v) for k, v in figures.items()} if count.any() else {},
    }


def is_id_name(name: str) -> bool:
    """Whether a column of this name holds the ids (pandas leaves an index unnamed)."""
    return name.strip().lower() in _ID_NAMES or name == ""


def find_ids(
    names: Sequence[str], wanted: str | None, where: str, index: Sequence[str] = ()
) -> int | None:
    """Return the position of the ids: the column named, one called like ids, or the only index."""
    if wanted is not None:
        return choose_column(names, wanted, (), where)
    found = [name for name in names if is_id_name(name)] or (index if len(index) == 1 else [])
    return names.index(found[0]) if found else None


def choose_column(
    names: Sequence[str], wanted: str | None, usual: Sequence[str], where: str
) -> int:
    """Return the position of a column: the one named, one with a usual name, or the only one."""
    if wanted is not None:
        if wanted not in names:
            raise _missing(names, wanted, where)
        return list(names).index(wanted)
    named = [i for i, name in enumerate(names) if name.lower() in usual]
    if not named and len(names) > 1:
        raise InputError(
            f"{where} has {_listed(names)}: name the column to read with --label-column"
        )
    return named[0] if named else 0


def match_columns(names: Sequence[str], patterns: Sequence[str], where: str) -> list[int]:
    """Return the positions of the columns that match the patterns, in the order of these."""
    found: dict[int, None] = {}
    for pattern in patterns:
        here = [i for i, n in enumerate(names) if n == pattern or fnmatchcase(n, pattern)]
        if not here:
            raise _missing(names, pattern, where)
        found.update(dict.fromkeys(here))
    return list(found)


def select_columns(
    names: Sequence[str],
    id_at: int | None,
    options: ReadOptions,
    where: str,
    vectors: Sequence[str] = (),
) -> tuple[tuple[str, ...], list[int]]:
    """Return the names of the columns to carry through, and the positions of the features.

    Without a choice in `options` the features are the only one of the `vectors`, which are columns
    of lists, or all columns that have no other purpose.
    """
    id_name = None if id_at is None else names[id_at]
    features = match_columns(names, options.columns or (), where)
    taken = {id_name, *options.exclude, *(names[i] for i in features)}
    taken |= set() if options.columns else set(vectors)
    free = [name for name in names if name not in taken]
    kept = tuple(free[i] for i in match_columns(free, options.keep, where))
    others = {*options.exclude, *kept}
    at = [i for i, name in enumerate(names) if i != id_at and name not in others]
    if options.columns is not None:
        at = [i for i in features if i in at]
    elif lists := [names[i] for i in at if names[i] in vectors]:
        if len(lists) > 1:
            raise InputError(
                f"{where} has the list columns {', '.join(lists)}: name one with --columns"
            )
        at = [names.index(lists[0])]
    if not at:
        raise InputError(f"{where} has no feature columns")
    return kept, at


def _missing(names: Sequence[str], wanted: str, where: str) -> InputError:
    close = get_close_matches(wanted, list(names), n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"it has {_listed(names)}"
    return InputError(f"{where} has no column {wanted!r}: {hint}")


def _listed(names: Sequence[str]) -> str:
    """List the first names, for a message."""
    return ", ".join(repr(n) for n in names[:8]) + (", ..." if len(names) > 8 else "")
