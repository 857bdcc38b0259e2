"""Features in .parquet, .feather and .jsonl: one list column, or one column per feature."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from rpml.io.features.source import (
    Batch,
    FeatureSource,
    Ids,
    ReadOptions,
    as_ids,
    choose_column,
    find_ids,
    select_columns,
)
from rpml.runtime.errors import InputError, counted, explained, first_line, require
from rpml.runtime.rows import Array

if TYPE_CHECKING:
    import pyarrow as pa


FORMATS = {".parquet": "parquet", ".pq": "parquet", ".feather": "feather", ".jsonl": "json"}
SUFFIXES = tuple(FORMATS)
PACKED = tuple(suffix for suffix, kind in FORMATS.items() if kind != "json")
MAX_NESTING = 64
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_PAGES = 2**22  # bytes of a remote column that are read at a time


class ArrowFile:
    """A file that Arrow reads; InputError if it cannot.

    `index` are the columns that were the index of a data frame: ids, and never features.
    """

    def __init__(self, path: Path, remote: IO[bytes] | None = None) -> None:
        self.name, self._kind = str(path), FORMATS[path.suffix.lower()]
        dataset, parquet = (
            require(f"pyarrow.{module}", "parquet", f"reading {path.suffix}")
            for module in ("dataset", "parquet")
        )
        try:
            if self._kind == "parquet":
                pages = {} if remote is None else {"buffer_size": _PAGES, "pre_buffer": False}
                self._file = parquet.ParquetFile(remote or path, **pages)
                self.schema, self.n_rows = self._file.schema_arrow, self._file.metadata.num_rows
            else:
                if self._kind == "json":
                    _check_objects(path)
                self._file = dataset.dataset(path, format=self._kind)
                self.schema, self.n_rows = self._file.schema, self._file.count_rows()
            self.names: list[str] = list(self.schema.names)
            pandas = (self.schema.pandas_metadata or {}).get("index_columns", ())
            self.index = tuple(n for n in pandas if isinstance(n, str) and n in self.names)
        except Exception as error:  # damaged files raise anything
            reason = first_line(error).rpartition("Invalid: ")[2]  # without where Arrow was
            raise InputError(f"{path} is not a complete {self._kind} file: {reason}") from error
        if not self.names:
            raise InputError(f"{path} has no columns")
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise InputError(f"{path} has two columns {twice!r}: their names must differ")

    @property
    def row_groups(self) -> tuple[int, ...]:
        """The rows of each row group of a parquet file; none for other files."""
        if self._kind != "parquet":
            return ()
        about = self._file.metadata
        return tuple(about.row_group(i).num_rows for i in range(about.num_row_groups))

    def batches(
        self, columns: list[str], rows: int, groups: list[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches of the columns; a damaged page raises InputError.

        `groups` are the row groups to read of a parquet file, by default all.
        """
        with explained(f"{self.name} cannot be read"):
            if self._kind == "feather":
                yield from self._checked_batches(columns, rows)
            elif self._kind == "parquet":
                yield from self._file.iter_batches(rows, groups, columns)
            else:
                yield from self._file.to_batches(batch_size=rows, columns=columns)

    def column(self, wanted: str | None, usual: tuple[str, ...] = ()) -> list[object]:
        """Read one column as Python values: that named, one with a usual name, or the only one."""
        column = self.names[choose_column(self.names, wanted, usual, self.name)]
        check_plain(self.schema.field(column).type, f"{self.name}: column {column!r}")
        blocks = self.batches([column], 65536)
        return [value for block in blocks for value in block.column(0).to_pylist()]

    def _checked_batches(self, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read a feather file with validation; otherwise bad offsets crash Arrow."""
        import pyarrow as arrow

        chosen = [self.names.index(name) for name in columns]
        options = arrow.ipc.IpcReadOptions(included_fields=chosen)
        with arrow.OSFile(self.name) as file, arrow.ipc.open_file(file, options=options) as reader:
            for i in range(reader.num_record_batches):
                block = reader.get_batch(i)
                block.validate(full=True)
                for start in range(0, block.num_rows, rows):
                    yield block.slice(start, rows)


def _check_objects(path: Path) -> None:
    """Raise ValueError for lines that crash Arrow: null, and too deeply nested objects."""
    with open(path, "rb") as file:
        for line in file:
            if line.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"null"):
                raise ValueError("a line is null instead of an object")
            opened = line.count(b"[") + line.count(b"{")
            if opened > MAX_NESTING and _nesting(line) > MAX_NESTING:
                raise ValueError("it is nested too deeply")


def _nesting(line: bytes) -> int:
    """Return the depth of the lists and objects of a line."""
    signs = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    steps = np.isin(signs, (ord("["), ord("{"))).astype(int) - np.isin(signs, (ord("]"), ord("}")))
    return int(np.cumsum(steps).max(initial=0))


def _is(kind: pa.DataType, *names: str) -> bool:
    """Whether a type is one of these, by the names of Arrow's tests."""
    import pyarrow.types

    return any(getattr(pyarrow.types, f"is_{name}")(kind) for name in names)


def _is_number(kind: pa.DataType) -> bool:
    return _is(kind, "integer", "floating", "boolean")


def is_plain(kind: pa.DataType) -> bool:
    """Whether the values of a column are neither nested nor binary."""
    return not _is(kind, "nested", "binary", "large_binary", "fixed_size_binary")


def check_plain(kind: pa.DataType, name: str) -> None:
    """Raise InputError if a column of ids or labels holds nested or binary values."""
    if not is_plain(kind):
        raise InputError(f"{name} is {kind}: ids and labels are text or numbers")


class ArrowSource(FeatureSource):
    """Feature columns of an Arrow file, decoded batch by batch."""

    def __init__(self, path: Path, options: ReadOptions, remote: IO[bytes] | None = None) -> None:
        self.name, self._path = str(path), path
        self._file = ArrowFile(path, remote)
        self.n_rows = int(self._file.n_rows)
        if self.n_rows == 0:
            raise InputError(f"{path} has no rows")
        names, schema = self._file.names, self._file.schema
        self._kinds = dict(zip(names, schema.types, strict=True))
        id_at = find_ids(names, options.id_column, self.name, self._file.index)
        self.has_ids = id_at is not None
        self._id = None if id_at is None else names[id_at]
        if self._id is not None:
            check_plain(self._kinds[self._id], f"{self.name}: column {self._id!r}")
            self.id_name = "id" if self._id in ("", "__index_level_0__") else self._id
        lists = ("list", "large_list", "fixed_size_list")
        nested = {name: kind for name, kind in self._kinds.items() if _is(kind, *lists)}
        vectors = [name for name, kind in nested.items() if _is_number(kind.value_type)]
        options = replace(options, exclude=(*options.exclude, *self._file.index))
        self.kept_names, at = select_columns(names, id_at, options, self.name, vectors)
        self._names = [names[i] for i in at]
        self._vector = self._names[0] if len(at) == 1 and self._names[0] in vectors else ""
        for name in [] if self._vector else self._names:
            if not _is_number(self._kinds[name]):
                raise InputError(
                    f"{self.name}: column {name!r} is {self._kinds[name]}, not numbers: choose "
                    "the features with --columns or the ids with --id-column"
                )
        self.row_groups = self._file.row_groups
        self._measure()

    def _measure(self) -> None:
        """Determine width and dtype; for a list column from its first row."""
        if self._vector:
            first = next(self._file.batches([self._vector], 1), None)
            if first is None or first.num_rows == 0:
                raise InputError(f"{self.name} is damaged: it has fewer rows than it says")
            values = self._list_values(first.column(0), 0, None)
            self.n_features, self.dtype = values.shape[1], values.dtype
            if self.n_features == 0:
                raise InputError(f"{self.name}: column {self._vector!r} has empty vectors")
            return
        self.n_features = len(self._names)
        self.feature_names = tuple(self._names)
        kinds = [np.dtype(self._kinds[n].to_pandas_dtype()) for n in self._names]
        self.dtype = np.result_type(np.float32, *kinds)

    def raw_batches(self, rows: int) -> Iterator[Batch]:
        return self._decoded(rows, 0)

    def batches_between(self, start: int, stop: int) -> Iterator[Batch]:
        """Yield the batches of the row groups that hold the rows; of other files all batches."""
        if not self.row_groups:
            return super().batches_between(start, stop)
        ends = np.cumsum(self.row_groups)
        first, last = np.searchsorted(ends, (start, stop - 1), "right").tolist()
        skipped = int(ends[first - 1]) if first else 0
        return self._decoded(self.batch_rows(), skipped, list(range(first, last + 1)))

    def ids(self) -> Ids | None:
        found = [] if self._id is None else self.column(self._id)
        if None in found:
            raise InputError(f"{self.name}: row {found.index(None)} of {self._id!r} is empty")
        return as_ids(found) if self.has_ids else None

    def column(self, name: str) -> list[object]:
        return self._file.column(name)

    def _decoded(self, rows: int, start: int, groups: list[int] | None = None) -> Iterator[Batch]:
        columns = {*self._names, *self.kept_names, *([] if self._id is None else [self._id])}
        for block in self._file.batches(sorted(columns), rows, groups):
            if self._vector:
                values = self._list_values(block.column(self._vector), start, self.n_features)
            else:
                values = np.empty((block.num_rows, self.n_features), self.dtype)
                for i, name in enumerate(self._names):
                    values[:, i] = _numbers(block.column(name))
            ids = None if self._id is None else self._ids(block.column(self._id), start)
            yield Batch(start, values, ids, kept={n: block.column(n) for n in self.kept_names})
            start += len(values)

    def _list_values(self, column: pa.Array, start: int, width: int | None) -> Array:
        self._check_present(column, start, self._vector)
        import pyarrow.compute

        flat = _numbers(column.flatten())
        lengths = _numbers(pyarrow.compute.list_value_length(column))
        expected = int(lengths[0]) if width is None else width
        ragged = np.flatnonzero(lengths != expected)
        if len(ragged):
            raise InputError(
                f"{self.name}: row {start + ragged[0]} of {self._vector!r} has "
                f"{counted(lengths[ragged[0]], 'number')}, the first row has {expected}"
            )
        return flat.reshape(len(column), expected)

    def _ids(self, column: pa.Array, start: int) -> Ids:
        self._check_present(column, start, self._id)
        return as_ids(column.to_pylist())

    def _check_present(self, column: pa.Array, start: int, name: str | None) -> None:
        if column.null_count:
            row = start + int(column.is_null().to_numpy(zero_copy_only=False).argmax())
            raise InputError(f"{self.name}: row {row} of {name!r} is empty")


def _numbers(column: pa.Array) -> Array:
    """Convert a flat column to numbers; missing values become NaN, which later checks report."""
    values: Array = column.to_numpy(zero_copy_only=False)
    if values.dtype == object:  # booleans or integers with missing values
        values = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
    return values.astype(np.float32) if values.dtype.kind == "b" else values
