"""What every reader gives: rows in batches, with ids, checked once for all formats."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.errors import InputError
from rpml.runtime.inputs import Stamp
from rpml.runtime.rows import Array

Ids = NDArray[np.object_]

Columns = Mapping[str, object]
"""Lists or Arrow arrays by name."""

BATCH_BYTES = 2**25
LARGE, MOST_COMPRESSION = 2**28, 100  # real vectors shrink to a half, zeros to a thousandth


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read, where the file alone does not say.

    Parameters
    ----------
    columns : tuple of str, default=None
        Feature columns of a CSV or parquet file, or the list column; ``*`` stands for any text.
    id_column : str, default=None
        The column (or array) that identifies the rows.
    array : str, default=None
        Which array of an .npz file.
    exclude : tuple of str, default=()
        Columns that are not features (labels that live in the same file).
    header : bool, default=None
        Whether a CSV file starts with names; None finds out.
    keep : tuple of str, default=()
        Columns that are carried through, and are not features; ``*`` stands for any text.
    """

    columns: tuple[str, ...] | None = None
    id_column: str | None = None
    array: str | None = None
    exclude: tuple[str, ...] = ()
    header: bool | None = None
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Batch:
    """Consecutive rows; `lines` are their places in a text file, `kept` columns of other values."""

    start: int
    values: Array
    ids: Ids | None = None
    lines: Sequence[int] | None = None
    kept: Columns = field(default_factory=dict)


@dataclass(frozen=True)
class Features:
    """A whole set of vectors, possibly memory-mapped, and what names its rows and columns."""

    values: Array
    ids: Ids | None = None
    id_name: str = "id"
    feature_names: tuple[str, ...] | None = None
    name: str = "X"


class FeatureSource(ABC):
    """An opened feature file: its shape is known, its rows are read in batches."""

    name: str
    n_features: int
    n_rows: int | None = None
    dtype: np.dtype[np.generic] = np.dtype(np.float32)
    has_ids: bool = False
    id_name: str = "id"
    feature_names: tuple[str, ...] | None = None
    kept_names: tuple[str, ...] = ()
    stamp: Stamp | None = None

    @abstractmethod
    def raw_batches(self, rows: int) -> Iterator[Batch]:
        """Rows in order, at most `rows` at a time, not yet checked."""

    def batch_rows(self) -> int:
        """Rows that make a batch of about 32 MB."""
        return max(1, BATCH_BYTES // max(1, self.n_features * self.dtype.itemsize))

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Rows in order; every value finite, no id twice, at least one row."""
        seen, ids = 0, IdCheck(self.name)
        for batch in self.raw_batches(rows or self.batch_rows()):
            self._check_finite(batch)
            if batch.ids is not None:
                ids.add(batch.ids)
            seen += len(batch.values)
            yield batch
        self.check_unchanged()
        if seen == 0:
            raise InputError(f"{self.name} has no rows")
        ids.finish(self)

    def check_unchanged(self) -> None:
        """Raise an InputError if the file is not the one that was opened."""
        if self.stamp is not None:
            self.stamp.check()

    def load(self) -> Features:
        """Every row in memory (a subclass may map the file instead)."""
        if self.n_rows is None:
            parts = list(self.batches())
            values = np.concatenate([p.values for p in parts])
            return self._features(values, _join([p.ids for p in parts]))
        return self._load_in_place(self.n_rows)

    def _load_in_place(self, n_rows: int) -> Features:
        """Into one array of the size the file names, which a damaged file may not hold."""
        shape, seen = (n_rows, self.n_features), 0
        try:
            values = np.empty(shape, self.dtype)
        except (MemoryError, ValueError) as error:
            raise InputError(f"{self.name}: {shape} numbers do not fit in memory") from error
        ids = []
        for batch in self.batches():
            seen = batch.start + len(batch.values)
            if seen > n_rows:
                break
            values[batch.start : seen] = batch.values
            ids.append(batch.ids)
        if seen != n_rows:
            raise InputError(f"{self.name} is damaged: it says {n_rows} rows and has others")
        return self._features(values, _join(ids))

    def _features(self, values: Array, ids: Ids | None) -> Features:
        return Features(values, ids, self.id_name, self.feature_names, self.name)

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


def first_not_finite(values: Array) -> tuple[int, int] | None:
    """(row, column) of the first NaN or infinity, or None."""
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return None
    row, column = np.argwhere(~np.isfinite(values))[0]
    return int(row), int(column)


def check_compression(name: str, unpacked: int, stored: int) -> None:
    """Refuse a small file that would take all memory."""
    if unpacked > LARGE and unpacked > MOST_COMPRESSION * max(1, stored):
        raise InputError(f"{name} unpacks to {unpacked / 1e9:.1f} GB: it is not data")


def as_ids(values: Sequence[object] | NDArray[np.generic], name: str = "ids") -> Ids:
    """Ids as Python strings or integers (fixed-width text would cost the longest id per row)."""
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InputError(f"{name} has shape {values.shape}, and ids must have one dimension")
    array = np.empty(len(values), dtype=object)
    array[:] = values.tolist() if isinstance(values, np.ndarray) else values
    return array


def _join(parts: list[Ids | None]) -> Ids | None:
    present = [p for p in parts if p is not None]
    return np.concatenate(present) if present else None


class IdCheck:
    """Finds ids that occur twice, keeping eight bytes per row."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._hashes: list[NDArray[np.int64]] = []

    def add(self, ids: Ids) -> None:
        """Remember a batch."""
        for value in ids:
            if isinstance(value, str) and not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError:
                    shown = ascii(value[:40])
                    raise InputError(f"{self.name}: the id {shown} is not valid text") from None
        self._hashes.append(np.fromiter(map(hash, ids), dtype=np.int64, count=len(ids)))

    def finish(self, source: FeatureSource) -> None:
        """Raise if any id was seen twice (the file is read again only to name it)."""
        if not self._hashes:
            return
        hashes = np.sort(np.concatenate(self._hashes))
        if (hashes[1:] == hashes[:-1]).any():
            rows = [b.ids for b in source.raw_batches(source.batch_rows())]
            check_unique_ids(_join(rows), self.name)


def check_unique_ids(ids: Ids | None, name: str) -> None:
    """Raise an InputError that names the first id given to two rows."""
    first: dict[Any, int] = {}
    for row, value in enumerate(ids if ids is not None else ()):
        if value in first:
            raise InputError(
                f"{name}: id {value!r} is given to rows {first[value]} and {row} "
                "(counted from 0): ids must be unique"
            )
        first[value] = row


def pair_by_id(first: Features, second: Features) -> tuple[Array, Array]:
    """The rows of both, in the same order; where both have ids, those with the same id."""
    if first.ids is None or second.ids is None:
        return first.values, second.values
    place = {str(value): row for row, value in enumerate(second.ids)}
    pairs = [(i, place[str(v)]) for i, v in enumerate(first.ids) if str(v) in place]
    if not pairs:
        raise InputError(f"{first.name} and {second.name} have no id in common")
    rows, others = np.array(pairs).T
    return first.values[rows], second.values[others]
