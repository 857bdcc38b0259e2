"""Features in .npy (memory-mapped) and .npz; object arrays are refused, never unpickled."""

import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.source import (
    Batch,
    Features,
    FeatureSource,
    Ids,
    ReadOptions,
    as_ids,
    check_compression,
)
from rpml.io.features.text_files import csv_rows, read_column
from rpml.runtime.context import file_fingerprint
from rpml.runtime.errors import InputError, counted, explained
from rpml.runtime.rows import Array

_FEATURE_ARRAYS = ("X", "x", "features", "embeddings", "embedding", "vectors")
ID_ARRAYS = ("ids", "id")
FINGERPRINT = "fingerprint"  # the column of the ids that names their vectors
_HEADER_TRIES = 20
MAPPED_BYTES = 2**26  # smaller files are read, and so cannot change during a run


def check_dtype(dtype: np.dtype[np.generic], name: str, text: bool = False) -> None:
    """Raise InputError for anything but real numbers; ids and labels may also be text."""
    if dtype.hasobject:
        raise InputError(
            f"{name} holds Python objects, which are never loaded: save it as an array of numbers"
        )
    if dtype.kind not in ("fiubU" if text else "fiub"):
        raise InputError(f"{name} has dtype {dtype}, and features must be real numbers")


def load_npy(path: Path) -> NDArray[Any]:
    """Load the array of a .npy file; a large one is memory-mapped."""
    with explained(f"{path} is not a complete .npy file"), open(path, "rb") as file:
        shape, order, dtype = _checked_header(file, os.fstat(file.fileno()).st_size, str(path))
        if math.prod(shape) * dtype.itemsize > MAPPED_BYTES:
            return np.memmap(path, dtype, "r", file.tell(), shape, order)
        return np.fromfile(file, dtype, math.prod(shape)).reshape(shape, order=order)


def _checked_header(
    file: IO[bytes], size: int, name: str
) -> tuple[tuple[int, ...], Literal["F", "C"], np.dtype[np.generic]]:
    """Read (shape, order, dtype) of numbers or text that `size` bytes can hold."""
    shape, fortran, dtype = read_npy_header(file)
    check_dtype(dtype, name, text=True)
    missing = file.tell() + math.prod(shape) * dtype.itemsize - size
    if missing > 0:
        raise ValueError(f"its {shape} numbers need {missing} bytes more")
    return shape, "F" if fortran else "C", dtype


class ArraySource(FeatureSource):
    """Rows of an array that is mapped or in memory."""

    archive: "NpzFile | None" = None
    """What else is in the file of the array."""

    def __init__(self, array: Array, name: str, ids: Ids | None = None) -> None:
        check_dtype(array.dtype, name)
        if array.ndim != 2:
            raise InputError(
                f"{name} has shape {array.shape}, and features must have two dimensions (rows, "
                "columns)"
            )
        if 0 in array.shape:
            empty = "rows" if array.shape[0] == 0 else "columns"
            raise InputError(f"{name} has shape {array.shape}: it has no {empty}")
        self.name, self.dtype = name, array.dtype
        self.n_rows, self.n_features = array.shape
        self._array, self._ids = array, ids
        # native byte order, at most 64 bits, no booleans
        self._native = array.dtype.newbyteorder("=")
        if array.dtype.kind == "b" or array.dtype.itemsize > 8:
            self._native = np.dtype(np.float32 if array.dtype.kind == "b" else np.float64)
        self.has_ids = ids is not None
        if ids is not None and len(ids) != len(array):
            raise InputError(
                f"{name} has {counted(len(array), 'row')} and {counted(len(ids), 'id')}"
            )

    def ids(self) -> Ids | None:
        return self._ids

    def column(self, name: str) -> Sequence[object]:
        if self.archive is None:
            return super().column(name)
        return list(as_ids(self.archive.read(name), f"{self.archive.path}[{name!r}]"))

    def raw_batches(self, rows: int) -> Iterator[Batch]:
        return self._batches(0, len(self._array), rows)

    def batches_between(self, start: int, stop: int) -> Iterator[Batch]:
        return self._batches(start, min(stop, len(self._array)), self.batch_rows())

    def _batches(self, first: int, stop: int, rows: int) -> Iterator[Batch]:
        for start in range(first, stop, rows):
            end = min(start + rows, stop)
            ids = None if self._ids is None else self._ids[start:end]
            values = self._rows(start, end).astype(self._native, copy=False)
            yield Batch(start, values, ids)

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        """Read the rows of a mapped file, so that a truncation is an error."""
        array = self._array
        if not isinstance(array, np.memmap) or not array.flags.c_contiguous:
            return array[start:stop]
        count, offset = (stop - start) * self.n_features, array.offset + start * array.strides[0]
        values = np.fromfile(array.filename or self.name, array.dtype, count, offset=offset)
        if len(values) < count:
            raise InputError(f"{self.name} was truncated while it was read: run again")
        return values.reshape(-1, self.n_features)

    def load(self) -> Features:
        """Return the array itself, checked block by block and not copied."""
        for _ in self.batches():
            pass
        values = self._array.astype(self._native, copy=False)
        mapped = self.stamp if isinstance(values, np.memmap) else None
        names = self.id_name, self.feature_names, self.name
        return Features(values, self._ids, *names, mapped=mapped)


class RemoteArray(ArraySource):
    """Rows of a .npy file of which only those asked for are read."""

    def __init__(self, file: IO[bytes], size: int, name: str, ids: Ids | None = None) -> None:
        with explained(f"{name} is not a complete .npy file"):
            shape, order, dtype = _checked_header(file, size, name)
        if order == "F":
            raise InputError(f"{name} is stored by column (Fortran order): save it by row")
        super().__init__(np.broadcast_to(np.zeros((), dtype), shape), name, ids)
        self._remote, self._offset = file, file.tell()

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        count, width = stop - start, self.n_features * self.dtype.itemsize
        self._remote.seek(self._offset + start * width)
        data = bytearray(self._remote.read(count * width))
        return np.frombuffer(data, self.dtype).reshape(count, -1)


def sidecar(path: Path) -> Path:
    """Return the path of the ids of a .npy file: x.npy -> x.ids.csv."""
    return path.with_name(path.stem + ".ids.csv")


def open_npy(path: Path, options: ReadOptions) -> FeatureSource:
    """Open a .npy file, with the ids from the file next to it if there is one."""
    table = sidecar(path)
    ids = read_ids(table, options.id_column, path) if table.is_file() else None
    return ArraySource(load_npy(path), str(path), ids)


def read_ids(ids: Path, column: str | None, path: Path | None = None) -> Ids:
    """Read the ids of a .npy file; InputError if they were written for others than at `path`."""
    with csv_rows(ids) as lines:
        header, first = (next(lines, (0, [""]))[1] for _ in range(2))
    if len(header) > 1 and header[-1] == FINGERPRINT:
        if path is not None and first[-1] != file_fingerprint(path):
            raise InputError(
                f"{ids} was written for other vectors than {path}: write both again, or remove its "
                f"column {FINGERPRINT} if they do belong together"
            )
        column = column or header[0]
    return as_ids(read_column(ids, column))


class NpzFile:
    """The named arrays of an .npz file, loaded on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained(f"{path} is not a complete .npz file"), zipfile.ZipFile(path) as archive:
            names = [i.filename for i in archive.infolist()]
        self.names = [n.removesuffix(".npy") for n in names if n.endswith(".npy")]

    def read(self, name: str) -> NDArray[Any]:
        """Read one array; its size must match the archive's, so that a header cannot lie."""
        if name not in self.names:
            raise InputError(f"{self.path} has no array {name!r}: it has {self._listing()}")
        label = f"{self.path}[{name!r}]"
        with explained(f"{label} cannot be read"), zipfile.ZipFile(self.path) as archive:
            entry = archive.getinfo(name + ".npy")
            check_compression(label, entry.file_size, entry.compress_size)
            with archive.open(entry) as file:
                shape, order, dtype = _checked_header(file, entry.file_size, label)
                held = math.prod(shape) * dtype.itemsize
                values = np.frombuffer(bytearray(file.read(held)), dtype)
                return values.reshape(shape, order=order)

    def choose(self, name: str | None, usual_names: tuple[str, ...], what: str, option: str) -> str:
        """Return the array to use: the one named, one with a usual name, or the only one."""
        if name is not None:
            return name
        usual = [n for n in usual_names if n in self.names]
        if usual or len(self.names) == 1:
            return [*usual, *self.names][0]
        hint = f": name the one with the {what} with {option}" if self.names else ""
        raise InputError(f"{self.path} has {self._listing()}{hint}")

    def _listing(self) -> str:
        return "the arrays " + ", ".join(self.names[:20]) if self.names else "no arrays"


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return (shape, fortran_order, dtype); a damaged header raises anything."""
    version, start = np.lib.format.read_magic(file), file.tell()
    parse = getattr(np.lib.format, f"read_array_header_{min(version[0], 2)}_0")
    for _ in range(_HEADER_TRIES):
        with suppress(SystemError):  # python 3.11 counts the depth of its parser over all threads
            return parse(file)  # type: ignore[no-any-return]
        file.seek(start)
    raise InputError("the header cannot be read")


def open_npz(path: Path, options: ReadOptions) -> FeatureSource:
    """Open the features of an .npz file, with its array of ids if it has one."""
    archive = NpzFile(path)
    name = archive.choose(options.array, _FEATURE_ARRAYS, "features", "--array")
    values = archive.read(name)
    key = options.id_column or next((n for n in ID_ARRAYS if n in archive.names), None)
    ids = None if key is None else as_ids(archive.read(key), f"{path}[{key!r}]")
    source = ArraySource(values, f"{path}[{name!r}]", ids)
    source.archive = archive
    return source
