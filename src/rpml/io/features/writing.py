"""Atomic output of rows in the format of the suffix, one function per format."""

import csv
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import IO, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.numpy_files import FINGERPRINT, sidecar
from rpml.io.features.reading import is_feature_file
from rpml.io.features.source import Batch, Columns, Ids
from rpml.io.manifest import check_folder, folder_outputs
from rpml.runtime.context import Json, file_fingerprint
from rpml.runtime.errors import InputError, require
from rpml.runtime.files import atomic_outputs, check_apart, check_output
from rpml.runtime.schema import finite_json

SHARD_ROWS = 1_000_000
Values = NDArray[Any]


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


def write_npy(path: Path, layout: Layout, batches: Iterable[Batch]) -> None:
    """Write a .npy file, and the ids with its fingerprint next to it.

    The fingerprint is a second column, empty but for the first row.
    """
    with open(path, "wb") as file:
        ids = append_rows(file, layout, batches)
    if ids is not None:
        with open(sidecar(path), "w", encoding="utf8", newline="") as table:
            writer = csv.writer(table, lineterminator="\n")
            writer.writerow([layout.id_name or "id", FINGERPRINT])
            writer.writerow([ids[0], file_fingerprint(path)])
            writer.writerows([i, ""] for i in ids[1:])


def append_rows(file: IO[bytes], layout: Layout, batches: Iterable[Batch]) -> Ids | None:
    """Write rows as an array, whose header is corrected at the end; return their ids."""
    ids: list[Ids] = []
    rows, dtype = 0, np.dtype(np.float32)

    def write_header() -> None:
        # numpy leaves room for the first dimension to grow, so the header's length is constant
        shape = (rows, len(layout.columns)) if layout.vector else (rows,)
        descr = np.lib.format.dtype_to_descr(dtype)
        fields = {"descr": descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, fields)

    for batch in batches:
        if rows == 0:
            dtype = batch.values.dtype
            write_header()
        file.write(np.ascontiguousarray(batch.values).reshape(-1).view(np.uint8).data)
        rows += len(batch.values)
        if batch.ids is not None:
            ids.append(batch.ids)
    file.seek(0)
    write_header()
    return np.concatenate(ids) if ids else None


def write_npz(path: Path, layout: Layout, batches: Iterable[Batch]) -> None:
    """Write an uncompressed archive with one array and, if there are ids, a second one.

    It has no timestamps: equal rows give equal bytes.
    """
    # a member of an archive cannot be corrected at its end, as the header must be
    with tempfile.TemporaryFile(dir=path.parent) as part, zipfile.ZipFile(path, "w") as archive:
        ids = append_rows(part, layout, batches)
        part.seek(0)
        with archive.open(layout.name + ".npy", "w", force_zip64=True) as file:
            shutil.copyfileobj(part, file, 2**20)
        if ids is not None:
            whole = all(type(i) is int and -(2**63) <= i < 2**63 for i in ids)
            stored = ids.astype(np.int64) if whole else np.array([str(i) for i in ids])
            with archive.open("ids.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, stored, allow_pickle=False)


def write_csv(path: Path, layout: Layout, batches: Iterable[Batch]) -> None:
    """Write text with a header, separated by commas or tabs."""
    with open(path, "w", encoding="utf8", newline="") as file:
        write_lines(file, layout, batches, "\t" if path.suffix.lower() == ".tsv" else ",")


def write_lines(
    file: TextIO, layout: Layout, batches: Iterable[Batch], separator: str = ","
) -> None:
    """Write lines with enough digits to be read back exactly; without ids they are numbered."""
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    writer.writerow([layout.id_name or "id", *layout.kept, *layout.columns])
    for batch in batches:
        n = len(batch.values)
        ids = range(batch.start, batch.start + n) if batch.ids is None else batch.ids
        rows = zip(ids, _transposed(batch.kept, n), _numbers(batch.values), strict=True)
        writer.writerows([i, *other, *row] for i, other, row in rows)
    file.flush()


def _numbers(values: Values) -> list[list[object]]:
    """Return the rows; floats as text that is read back exactly."""
    rows = values.reshape(len(values), -1).tolist()
    digits = {2: "%.5g", 4: "%.9g"}.get(values.dtype.itemsize, "%.17g")
    return [[digits % v for v in row] for row in rows] if values.dtype.kind == "f" else rows


def _transposed(kept: Columns, n: int) -> Iterator[tuple[object, ...]]:
    """Return the values of the kept columns, row by row."""
    lists = [c.to_pylist() if hasattr(c, "to_pylist") else c for c in kept.values()]
    return zip(*lists, strict=True) if lists else iter([()] * n)


def write_jsonl(path: Path, layout: Layout, batches: Iterable[Batch]) -> None:
    """Write one JSON object per row."""
    with open(path, "w", encoding="utf8") as file:
        for batch in batches:
            values, kept = batch.values, _transposed(batch.kept, len(batch.values))
            for i, (row, others) in enumerate(zip(_numbers(values), kept, strict=True)):
                fields = {} if batch.ids is None else {layout.id_name or "id": batch.ids[i]}
                fields |= {k: finite_json(v) for k, v in zip(batch.kept, others, strict=True)}
                if values.dtype.kind == "f":
                    row = [float(str(v)) for v in row]
                fields[layout.name] = row if layout.vector else row[0]
                file.write(json.dumps(fields, ensure_ascii=False, default=str) + "\n")


def write_arrow(path: Path, layout: Layout, batches: Iterable[Batch]) -> None:
    """Write a fixed-size list column (or a plain one for labels), the ids and the kept columns."""
    arrow, parquet = (
        require(name, "parquet", f"writing {path.suffix}")
        for name in ("pyarrow", "pyarrow.parquet")
    )
    tables = (arrow.table(_columns(arrow, layout, batch)) for batch in batches)
    first = next(tables)
    new = arrow.ipc.new_file if path.suffix.lower() == ".feather" else parquet.ParquetWriter
    with new(path, first.schema) as file:
        for table in chain([first], tables):
            try:  # the types of shards may differ
                file.write_table(table.cast(first.schema))
            except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError) as error:
                types = zip(first.schema, table.schema, strict=True)
                old, new = next((old, new) for old, new in types if old.type != new.type)
                raise InputError(
                    f"the column {old.name!r} is {old.type} in the first rows and {new.type} in "
                    "later ones: give it one type in all files"
                ) from error


def _columns(arrow: ModuleType, layout: Layout, batch: Batch) -> Json:
    columns: Json = {}
    if batch.ids is not None:
        whole = all(type(i) is int for i in batch.ids)
        plain = list(batch.ids) if whole else [str(i) for i in batch.ids]
        kind = arrow.int64() if whole else arrow.string()
        columns[layout.id_name or "id"] = arrow.array(plain, kind)
    columns |= batch.kept
    flat = arrow.array(np.ascontiguousarray(batch.values).reshape(-1))
    if layout.vector:
        flat = arrow.FixedSizeListArray.from_arrays(flat, batch.values.shape[1])
    return {**columns, layout.name: flat}


def _cut(batches: Iterable[Batch]) -> Iterator[tuple[int, Batch]]:
    """Yield the number of the shard and the rows, batches being cut where a shard ends."""
    seen = 0
    for batch in batches:
        values, ids = batch.values, batch.ids
        while len(values):
            number, before = divmod(seen, SHARD_ROWS)
            room = SHARD_ROWS - before
            yield number, Batch(seen, values[:room], None if ids is None else ids[:room])
            seen += len(values[:room])
            values, ids = values[room:], None if ids is None else ids[room:]


WRITERS: dict[str, Callable[[Path, Layout, Iterable[Batch]], None]] = {
    ".npy": write_npy,
    ".npz": write_npz,
    **dict.fromkeys((".parquet", ".pq", ".feather"), write_arrow),
    ".jsonl": write_jsonl,
    **dict.fromkeys((".csv", ".tsv"), write_csv),
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
    if WRITERS.get(target.suffix.lower()) is write_arrow:
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


def write_batches(
    path: str, layout: Layout, batches: Iterable[Batch], overwrite: bool = False
) -> None:
    """Write rows in the format of the suffix; the file appears only if all of them are written."""
    check_table_output(path, overwrite)
    tables = [suffix for suffix in WRITERS if suffix not in (".npy", ".npz")]
    if layout.kept and path != "-" and not path.lower().endswith(tuple(tables)):
        shown = ", ".join(tables)
        raise InputError(f"{path} has no room for other columns: tables are {shown} and -")
    if twice := {layout.name, *layout.columns} & set(layout.kept):
        raise InputError(f"the column {min(twice)!r} cannot be kept: the output has that name")
    if path == "-":
        if sys.stdout is None or getattr(sys.stdout, "name", "") == os.devnull:
            raise InputError("standard output is closed: there is nowhere to write to")
        write_lines(sys.stdout, layout, batches)
        return
    if path.endswith("/"):
        publishing = folder_outputs(path, overwrite)
    else:
        ids = [sidecar(Path(path))] if path.lower().endswith(".npy") else []
        publishing = atomic_outputs(path, overwrite, ids)
    with publishing as scratch:
        write_drafts(scratch, path, layout, batches)


def write_drafts(scratch: Path, path: str, layout: Layout, batches: Iterable[Batch]) -> None:
    """Write the files of an output to another folder: of NAME/ those of its shards."""
    if path.endswith("/"):
        for number, parts in groupby(_cut(batches), key=itemgetter(0)):
            write_npy(scratch / f"part-{number:05d}.npy", layout, (batch for _, batch in parts))
    else:
        WRITERS[Path(path).suffix.lower()](scratch / Path(path).name, layout, batches)


def write_table(
    path: str, values: Values, layout: Layout, ids: Ids | None, overwrite: bool = False
) -> None:
    """Write all rows at once."""
    write_batches(path, layout, [Batch(0, values, ids)], overwrite)
