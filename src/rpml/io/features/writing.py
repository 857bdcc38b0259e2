"""Outputs by suffix, whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rpml.io.features.numpy_files import sidecar
from rpml.io.features.source import Ids
from rpml.io.features.writers import (
    CsvWriter,
    Layout,
    NpyWriter,
    NpzWriter,
    ParquetWriter,
    ShardWriter,
    Writer,
    write_ids,
)
from rpml.runtime.atomic import atomic_output, check_output
from rpml.runtime.errors import InputError
from rpml.runtime.extras import require

WRITERS: dict[str, Callable[[Path, Layout], Writer]] = {
    ".npy": NpyWriter,
    ".npz": NpzWriter,
    ".parquet": ParquetWriter,
    ".pq": ParquetWriter,
    ".csv": CsvWriter,
    ".tsv": CsvWriter,
}


def check_table_output(path: str, overwrite: bool) -> None:
    """Refuse an output of unknown kind, or one that exists, before any work is done."""
    if path == "-":
        return
    target = Path(path)
    if not path.endswith("/") and target.suffix.lower() not in WRITERS:
        kind = f"the suffix {target.suffix!r}" if target.suffix else "no suffix"
        raise InputError(
            f"{path} has {kind}: outputs are written as {', '.join(WRITERS)}, "
            "a folder of shards (ending in /), or - for standard output"
        )
    if target.suffix.lower() in (".parquet", ".pq"):
        require("pyarrow.parquet", "parquet", "writing .parquet")
    check_output(target, overwrite)
    if target.suffix.lower() == ".npy" and not overwrite and sidecar(target).exists():
        check_output(sidecar(target), overwrite)


@contextmanager
def open_writer(path: str, layout: Layout, overwrite: bool = False) -> Iterator[Writer]:
    """A writer for the kind of file the suffix names; published only if the body succeeds."""
    check_table_output(path, overwrite)
    if path == "-":
        writer: Writer = CsvWriter(Path("stdout.csv"), layout, sys.stdout)
        yield writer
        writer.close()
        return
    with atomic_output(path, overwrite) as temporary:
        kind = ShardWriter if path.endswith("/") else WRITERS[Path(path).suffix.lower()]
        writer = kind(temporary, layout)
        try:
            yield writer
            writer.close()
        except BaseException:
            writer.discard()
            raise
        if isinstance(writer, NpyWriter):
            _publish_ids(Path(path), writer.ids(), layout)


def _publish_ids(path: Path, ids: Ids | None, layout: Layout) -> None:
    """Keep the ids of a .npy file beside it; no ids also removes those of an older file."""
    if ids is None:
        sidecar(path).unlink(missing_ok=True)
        return
    with atomic_output(sidecar(path)) as temporary:
        write_ids(temporary, ids, layout)


def write_table(
    path: str, values: NDArray[Any], layout: Layout, ids: Ids | None, overwrite: bool = False
) -> None:
    """Write all rows at once."""
    with open_writer(path, layout, overwrite) as writer:
        writer.write(values, ids)
