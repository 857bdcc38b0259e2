"""Atomic output of rows in the format of the suffix, one class per format."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.numpy_files import FINGERPRINT, sidecar
from rpml.io.features.reading import is_feature_file
from rpml.io.features.source import Columns, Ids, as_ids
from rpml.runtime.context import Json, file_fingerprint
from rpml.runtime.errors import InputError, require
from rpml.runtime.files import atomic_outputs, folder_outputs
from rpml.runtime.outputs import check_apart, check_folder, check_output
from rpml.runtime.schema import finite_json

if TYPE_CHECKING:
    import pyarrow as pa


SHARD_ROWS = 1_000_000
Values = NDArray[np.generic]


@dataclass(frozen=True)
class Layout:
    """What an output holds: the array's name, the names of its columns, and of the ids if any.

    An output with one column and ``vector=False`` holds plain values (labels). `kept` names
    columns copied from the input.
    """

    name: str
    columns: Sequence[str]
    id_name: str | None = None
    vector: bool = True
    kept: Sequence[str] = ()


class Writer(ABC):
    """Writes consecutive rows; `close` completes the file."""

    keeps_columns = False
    """Whether the format can hold columns copied from the input."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout

    @abstractmethod
    def write(self, values: Values, ids: Ids | None = None, kept: Columns | None = None) -> None:
        """Append rows."""

    @abstractmethod
    def close(self) -> None: ...


class NpyWriter(Writer):
    """Appends rows to a .npy file and corrects its header at the end."""

    def __init__(self, path: Path, layout: Layout, file: IO[bytes] | None = None) -> None:
        super().__init__(path, layout)
        self._file = file or open(path, "wb")  # noqa: SIM115 (closed in close)
        self._rows = 0
        self._dtype: np.dtype[np.generic] = np.dtype(np.float32)
        self._ids: list[Ids] = []

    def write(self, values: Values, ids: Ids | None = None, kept: Columns | None = None) -> None:
        if self._rows == 0:
            self._dtype = values.dtype
            self._write_header()
        self._file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        self._rows += len(values)
        if ids is not None:
            self._ids.append(ids)

    def _write_header(self) -> None:
        # numpy leaves room for the first dimension to grow, so the header's length is constant
        shape = (self._rows, len(self.layout.columns)) if self.layout.vector else (self._rows,)
        descr = np.lib.format.dtype_to_descr(self._dtype)
        fields = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, fields)

    def close(self) -> None:
        """Write the header again, and the ids with the fingerprint of the vectors next to them.

        The fingerprint is a second column, empty but for the first row.
        """
        self._file.seek(0)
        self._write_header()
        self._file.close()
        if (ids := self.ids()) is not None:
            with open(sidecar(self.path), "w", encoding="utf8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow([self.layout.id_name or "id", FINGERPRINT])
                writer.writerow([ids[0], file_fingerprint(self.path)])
                writer.writerows([i, ""] for i in ids[1:])

    def ids(self) -> Ids | None:
        """Return the ids of all rows written."""
        return np.concatenate(self._ids) if self._ids else None


class NpzWriter(NpyWriter):
    """An uncompressed archive with one array and, if there are ids, a second one."""

    def __init__(self, path: Path, layout: Layout) -> None:
        # a member of an archive cannot be corrected at its end, as the header must be
        part = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 (closed in close)
        super().__init__(path, layout, part)

    def close(self) -> None:
        """Put the arrays into the archive without timestamps: equal rows give equal bytes."""
        self._file.seek(0)
        self._write_header()
        with self._file, zipfile.ZipFile(self.path, "w") as archive:
            self._file.seek(0)
            with archive.open(self.layout.name + ".npy", "w", force_zip64=True) as file:
                shutil.copyfileobj(self._file, file, 2**20)
            if (ids := self.ids()) is not None:
                whole = all(type(i) is int and -(2**63) <= i < 2**63 for i in ids)
                stored = ids.astype(np.int64) if whole else np.array([str(i) for i in ids])
                with archive.open("ids.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, stored, allow_pickle=False)


class CsvWriter(Writer):
    """Text with a header; numbers have enough digits to be read back exactly."""

    keeps_columns = True

    def __init__(self, path: Path, layout: Layout, file: TextIO | None = None) -> None:
        super().__init__(path, layout)
        self._own = file is None
        self._file = file or open(path, "w", encoding="utf8", newline="")  # noqa: SIM115
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        self._writer = csv.writer(self._file, delimiter=separator, lineterminator="\n")
        self._rows = 0
        self._writer.writerow([layout.id_name or "id", *layout.kept, *layout.columns])

    def write(self, values: Values, ids: Ids | None = None, kept: Columns | None = None) -> None:
        """Append rows; without ids they are numbered."""
        if ids is None:
            ids = as_ids(list(range(self._rows, self._rows + len(values))))
        rows = zip(ids, _transposed(kept or {}, len(values)), _numbers(values), strict=True)
        self._writer.writerows([i, *other, *row] for i, other, row in rows)
        self._rows += len(values)

    def close(self) -> None:
        self._file.flush()
        if self._own:
            self._file.close()


def _numbers(values: Values) -> list[list[object]]:
    """Return the rows; floats as text that is read back exactly."""
    rows = values.reshape(len(values), -1).tolist()
    digits = {2: "%.5g", 4: "%.9g"}.get(values.dtype.itemsize, "%.17g")
    return [[digits % v for v in row] for row in rows] if values.dtype.kind == "f" else rows


def _transposed(kept: Columns, n: int) -> Iterator[tuple[object, ...]]:
    """Return the values of the kept columns, row by row."""
    lists = [c.to_pylist() if hasattr(c, "to_pylist") else c for c in kept.values()]
    return zip(*lists, strict=True) if lists else iter([()] * n)


class JsonLinesWriter(Writer):
    """One JSON object per row."""

    keeps_columns = True

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self._file = open(path, "w", encoding="utf8")  # noqa: SIM115 (closed in close)

    def write(self, values: Values, ids: Ids | None = None, kept: Columns | None = None) -> None:
        kept = kept or {}
        rows = zip(_numbers(values), _transposed(kept, len(values)), strict=True)
        for i, (row, others) in enumerate(rows):
            fields = {} if ids is None else {self.layout.id_name or "id": ids[i]}
            fields |= {name: finite_json(v) for name, v in zip(kept, others, strict=True)}
            if values.dtype.kind == "f":
                row = [float(str(v)) for v in row]
            fields[self.layout.name] = row if self.layout.vector else row[0]
            self._file.write(json.dumps(fields, ensure_ascii=False, default=str) + "\n")

    def close(self) -> None:
        self._file.close()


class ArrowWriter(Writer):
    """A fixed-size list column (or a plain one for labels), the ids and the kept columns."""

    keeps_columns = True

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self._arrow = require("pyarrow", "parquet", f"writing {path.suffix}")
        self._parquet = require("pyarrow.parquet", "parquet", f"writing {path.suffix}")
        self._file: pa.ipc.RecordBatchFileWriter | None = None

    def write(self, values: Values, ids: Ids | None = None, kept: Columns | None = None) -> None:
        table = self._arrow.table(self._columns(values, ids, kept or {}))
        if self._file is None:
            feather = self.path.suffix.lower() == ".feather"
            new = self._arrow.ipc.new_file if feather else self._parquet.ParquetWriter
            self._file, self._schema = new(self.path, table.schema), table.schema
        try:  # the types of shards may differ
            self._file.write_table(table.cast(self._schema))
        except (self._arrow.ArrowInvalid, self._arrow.ArrowNotImplementedError) as error:
            types = zip(self._schema, table.schema, strict=True)
            old, new = next((old, new) for old, new in types if old.type != new.type)
            raise InputError(
                f"the column {old.name!r} is {old.type} in the first rows and {new.type} in later "
                "ones: give it one type in all files"
            ) from error

    def _columns(self, values: Values, ids: Ids | None, kept: Columns) -> Json:
        pa = self._arrow
        columns: Json = {}
        if ids is not None:
            whole = all(type(i) is int for i in ids)
            plain = list(ids) if whole else [str(i) for i in ids]
            kind = pa.int64() if whole else pa.string()
            columns[self.layout.id_name or "id"] = pa.array(plain, kind)
        columns |= kept
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        if self.layout.vector:
            flat = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        columns[self.layout.name] = flat
        return columns

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ShardWriter(Writer):
    """A folder of .npy files of at most a million rows, each with its ids next to it."""

    def __init__(self, path: Path, layout: Layout) -> None:
        super().__init__(path, layout)
        self._count, self._in_part = 0, 0
        self._part: NpyWriter | None = None

    def write(self, values: Values, ids: Ids | None = None, kept: Columns | None = None) -> None:
        while len(values):
            if self._part is None:
                self._part = NpyWriter(self.path / f"part-{self._count:05d}.npy", self.layout)
            room = SHARD_ROWS - self._in_part
            self._part.write(values[:room], None if ids is None else ids[:room])
            self._in_part += len(values[:room])
            values, ids = values[room:], None if ids is None else ids[room:]
            if self._in_part == SHARD_ROWS:
                self.close()

    def close(self) -> None:
        if self._part is not None:
            self._part.close()
            self._part, self._in_part = None, 0
            self._count += 1


WRITERS: dict[str, type[Writer]] = {
    ".npy": NpyWriter,
    ".npz": NpzWriter,
    **dict.fromkeys((".parquet", ".pq", ".feather"), ArrowWriter),
    ".jsonl": JsonLinesWriter,
    **dict.fromkeys((".csv", ".tsv"), CsvWriter),
}


def check_table_output(
    path: str, overwrite: bool, inputs: Iterable[str | Path | None] = ()
) -> None:
    """Raise InputError, before any work, if an output has an unknown format or must not be written.

    In an existing folder only files that rpml wrote are replaced, and there must be no other
    vectors. `inputs` are the files that are read and must not be replaced.
    """
    if path == "-":
        return
    target = Path(path)
    if not path.endswith("/") and target.suffix.lower() not in WRITERS:
        kind = f"the suffix {target.suffix!r}" if target.suffix else "no suffix"
        raise InputError(
            f"{path} has {kind}: outputs are written as {', '.join(WRITERS)}, "
            "a folder of shards (ending in /), or - for standard output"
        )
    if WRITERS.get(target.suffix.lower()) is ArrowWriter:
        require("pyarrow.parquet", "parquet", f"writing {target.suffix}")
    read = [Path(i) for i in inputs if i is not None]
    outputs = [target, sidecar(target)] if target.suffix.lower() == ".npy" else [target]
    check_apart(outputs, [*read, *(sidecar(i) for i in read if i.suffix.lower() == ".npy")])
    if path.endswith("/"):
        vectors = [p.name for p in target.glob("*") if is_feature_file(p)]
        check_folder(target, overwrite, vectors)
    elif target.is_dir():
        raise InputError(f"{path} is a folder: give the output a file name, or end it with /")
    else:
        for output in outputs:
            if output == target or os.path.lexists(output):
                check_output(output, overwrite)


@contextmanager
def open_writer(path: str, layout: Layout, overwrite: bool = False) -> Iterator[Writer]:
    """Open a writer for the format of the suffix; the file appears only if the body succeeds."""
    check_table_output(path, overwrite)
    tables = [suffix for suffix, kind in WRITERS.items() if kind.keeps_columns]
    if layout.kept and path != "-" and not path.lower().endswith(tuple(tables)):
        shown = ", ".join(tables)
        raise InputError(f"{path} has no room for other columns: tables are {shown} and -")
    if twice := {layout.name, *layout.columns} & set(layout.kept):
        raise InputError(f"the column {min(twice)!r} cannot be kept: the output has that name")
    if path == "-":
        if sys.stdout is None or getattr(sys.stdout, "name", "") == os.devnull:
            raise InputError("standard output is closed: there is nowhere to write to")
        writer = CsvWriter(Path("-.csv"), layout, sys.stdout)
        yield writer
        writer.close()
        return
    target = Path(path)
    if path.endswith("/"):
        publishing = folder_outputs(path, overwrite)
    else:
        ids = [sidecar(target)] if target.suffix.lower() == ".npy" else []
        publishing = atomic_outputs(path, overwrite, ids)
    with publishing as scratch, table_writer(scratch, path, layout) as table:
        yield table


@contextmanager
def table_writer(scratch: Path, path: str, layout: Layout) -> Iterator[Writer]:
    """Open a writer of the format of `path` whose files are written to another folder."""
    if path.endswith("/"):
        writer: Writer = ShardWriter(scratch, layout)
    else:
        writer = WRITERS[Path(path).suffix.lower()](scratch / Path(path).name, layout)
    yield writer
    writer.close()


def write_table(
    path: str, values: Values, layout: Layout, ids: Ids | None, overwrite: bool = False
) -> None:
    """Write all rows at once."""
    with open_writer(path, layout, overwrite) as writer:
        writer.write(values, ids)
