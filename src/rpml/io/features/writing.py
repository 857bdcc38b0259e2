"""Atomic output of tables, in the format of the suffix."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.numpy_files import sidecar
from rpml.io.features.shards import is_feature_file
from rpml.io.features.source import Ids
from rpml.io.features.writers import (
    ArrowWriter,
    CsvWriter,
    JsonLinesWriter,
    Layout,
    NpyWriter,
    NpzWriter,
    ShardWriter,
    Writer,
    write_ids,
)
from rpml.runtime.errors import InputError
from rpml.runtime.extras import require
from rpml.runtime.files import Outputs, atomic_outputs, folder_outputs
from rpml.runtime.outputs import check_apart, check_folder, check_output

WRITERS: dict[str, type[Writer]] = {
    ".npy": NpyWriter,
    ".npz": NpzWriter,
    ".parquet": ArrowWriter,
    ".pq": ArrowWriter,
    ".feather": ArrowWriter,
    ".jsonl": JsonLinesWriter,
    ".csv": CsvWriter,
    ".tsv": CsvWriter,
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
        vectors = [p.name for p in target.glob("*") if is_feature_file(p, tuple(WRITERS))]
        check_folder(target, overwrite, vectors)
    elif target.is_dir():
        raise InputError(f"{path} is a folder: give the output a file name, or end it with /")
    else:
        for output in outputs:
            if output == target or os.path.lexists(output):
                check_output(output, overwrite)


def writer_class(path: str) -> type[Writer]:
    """Return the writer for a path."""
    if path == "-":
        return CsvWriter
    return ShardWriter if path.endswith("/") else WRITERS[Path(path).suffix.lower()]


@contextmanager
def open_writer(path: str, layout: Layout, overwrite: bool = False) -> Iterator[Writer]:
    """Open a writer for the format of the suffix; the file appears only if the body succeeds."""
    check_table_output(path, overwrite)
    if layout.kept and not writer_class(path).keeps_columns:
        tables = ", ".join(s for s, kind in WRITERS.items() if kind.keeps_columns)
        raise InputError(f"{path} has no room for other columns: tables are {tables} and -")
    for name in {layout.name, *layout.columns} & set(layout.kept):
        raise InputError(f"the column {name!r} cannot be kept: the output has one of that name")
    if path == "-":
        if sys.stdout is None or getattr(sys.stdout, "name", "") == os.devnull:
            raise InputError("standard output is closed: there is nowhere to write to")
        writer = CsvWriter(Path("-.csv"), layout, sys.stdout)
        yield writer
        writer.close()
        return
    publishing = folder_outputs if path.endswith("/") else atomic_outputs
    with publishing(path, overwrite) as outputs, table_writer(outputs, path, layout) as table:
        yield table


@contextmanager
def table_writer(outputs: Outputs, path: str, layout: Layout) -> Iterator[Writer]:
    """Open a writer whose file, and the ids next to it, become part of the outputs."""
    if path.endswith("/"):
        writer: Writer = ShardWriter(Path(path), layout, outputs)
    else:
        writer = writer_class(path)(outputs.new(path), layout)
    yield writer
    writer.close()
    if isinstance(writer, NpyWriter):
        write_ids(outputs, Path(path), writer, layout)


def write_table(
    path: str, values: NDArray[np.generic], layout: Layout, ids: Ids | None, overwrite: bool = False
) -> None:
    """Write all rows at once."""
    with open_writer(path, layout, overwrite) as writer:
        writer.write(values, ids)
