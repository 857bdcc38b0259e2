"""Features in .npy (memory-mapped) and .npz; object arrays are refused, never unpickled."""

import math
import mmap
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

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
from rpml.io.features.text_files import read_column
from rpml.runtime.errors import InputError
from rpml.runtime.files.inputs import map_npy
from rpml.runtime.rows import Array
from rpml.runtime.wording import counted, first_line

_FEATURE_ARRAYS = ("X", "x", "features", "embeddings", "embedding", "vectors")
_ID_ARRAYS = ("ids", "id")
MAPPED_BYTES = 2**26  # smaller files are read, and so cannot change during a run


def check_dtype(dtype: np.dtype[np.generic], name: str) -> None:
    """Raise InputError for anything but real numbers."""
    if dtype.hasobject:
        raise InputError(
            f"{name} holds Python objects, which are never loaded: save it as an array of numbers"
        )
    if dtype.kind not in "fiub":
        raise InputError(f"{name} has dtype {dtype}, and features must be real numbers")


def check_matrix(array: NDArray[np.generic], name: str) -> None:
    """Raise InputError for anything but a non-empty (n, d) array of numbers."""
    check_dtype(array.dtype, name)
    if array.ndim != 2:
        raise InputError(
            f"{name} has shape {array.shape}, and features must have two dimensions (rows, columns)"
        )
    if 0 in array.shape:
        empty = "rows" if array.shape[0] == 0 else "columns"
        raise InputError(f"{name} has shape {array.shape}: it has no {empty}")


def load_npy(path: Path) -> NDArray[Any]:
    """Load the array of a .npy file; a large one is memory-mapped."""
    try:
        with open(path, "rb") as file:
            shape, _, dtype = read_npy_header(file)
            held = math.prod(shape) * dtype.itemsize
            missing = file.tell() + held - os.fstat(file.fileno()).st_size
            if missing > 0 and not dtype.hasobject:
                raise ValueError(f"its {shape} numbers need {missing} bytes more")
            if held > MAPPED_BYTES:
                return map_npy(path)
            file.seek(0)
            return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # a damaged header raises anything
        if "Object arrays" in str(error):
            check_dtype(np.dtype(object), str(path))
        raise InputError(f"{path} is not a complete .npy file: {first_line(error)}") from error


def release_rows(array: NDArray[np.generic], start: int, stop: int) -> None:
    """Release the pages of rows already read, so that a mapped file never fills the memory."""
    pages = getattr(array, "_mmap", None)
    if pages is None or not array.flags.c_contiguous or not hasattr(pages, "madvise"):
        return
    row, page = array.strides[0], mmap.PAGESIZE
    before = getattr(array, "offset", 0) % mmap.ALLOCATIONGRANULARITY
    first = -(-(before + start * row) // page) * page
    last = (before + min(stop, len(array)) * row) // page * page
    if last > first:
        pages.madvise(mmap.MADV_DONTNEED, first, last - first)


class ArraySource(FeatureSource):
    """Rows of an array that is mapped or in memory."""

    def __init__(self, array: Array, name: str, ids: Ids | None = None) -> None:
        check_matrix(array, name)
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

    def raw_batches(self, rows: int) -> Iterator[Batch]:
        return self._batches(0, len(self._array), rows)

    def batches_between(self, start: int, stop: int) -> Iterator[Batch]:
        return self._batches(start, min(stop, len(self._array)), self.batch_rows())

    def _batches(self, first: int, stop: int, rows: int) -> Iterator[Batch]:
        for start in range(first, stop, rows):
            ids = None if self._ids is None else self._ids[start : start + rows]
            values = self._array[start : start + rows].astype(self._native, copy=False)
            yield Batch(start, values, ids)
            release_rows(self._array, start, start + rows)

    def load(self) -> Features:
        """Return the array itself, checked block by block and not copied."""
        for _ in self.batches():
            pass
        values = self._array.astype(self._native, copy=False)
        return Features(values, self._ids, self.id_name, self.feature_names, self.name)


def sidecar(path: Path) -> Path:
    """Return the path of the ids of a .npy file: x.npy -> x.ids.csv."""
    return path.with_name(path.stem + ".ids.csv")


def open_npy(path: Path, options: ReadOptions) -> FeatureSource:
    """Open a .npy file, with the ids from the file next to it if there is one."""
    ids = None
    if sidecar(path).is_file():
        ids = as_ids(read_column(sidecar(path), options.id_column))
    return ArraySource(load_npy(path), str(path), ids)


class NpzFile:
    """The named arrays of an .npz file, loaded on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                names = [i.filename for i in archive.infolist()]
        except Exception as error:  # damaged archives raise anything
            raise InputError(f"{path} is not a complete .npz file: {first_line(error)}") from error
        self.names = [n.removesuffix(".npy") for n in names if n.endswith(".npy")]

    def read(self, name: str) -> NDArray[Any]:
        """Read one array; its size must match the archive's, so that a header cannot lie."""
        if name not in self.names:
            raise InputError(f"{self.path} has no array {name!r}: it has {self._listing()}")
        label = f"{self.path}[{name!r}]"
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(name + ".npy") as file:
                shape, _, dtype = read_npy_header(file)
                check_dtype_or_text(dtype, label)
                entry = archive.getinfo(name + ".npy")
                stored = entry.file_size
                check_compression(label, stored, entry.compress_size)
                if int(np.prod(shape, dtype=object)) * dtype.itemsize > stored:
                    raise InputError(f"{label} is truncated: {shape} does not fit {stored} bytes")
                file.seek(0)
                return np.lib.format.read_array(file, allow_pickle=False)
        except InputError:
            raise
        except Exception as error:  # damaged data raise anything
            raise InputError(f"{label} cannot be read: {first_line(error)}") from error

    def choose(self, name: str | None, usual_names: tuple[str, ...], what: str, option: str) -> str:
        """Return the array to use: the one named, one with a usual name, or the only one."""
        if name is not None:
            return name
        usual = [n for n in usual_names if n in self.names]
        if usual:
            return usual[0]
        if len(self.names) == 1:
            return self.names[0]
        hint = f": name the one with the {what} with {option}" if self.names else ""
        raise InputError(f"{self.path} has {self._listing()}{hint}")

    def _listing(self) -> str:
        return "the arrays " + ", ".join(self.names[:20]) if self.names else "no arrays"


def check_dtype_or_text(dtype: np.dtype[np.generic], name: str) -> None:
    """Raise InputError for anything but numbers and text (ids and labels may be text)."""
    if dtype.kind != "U":
        check_dtype(dtype, name)


def read_npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return (shape, fortran_order, dtype); a damaged header raises anything."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    return np.lib.format.read_array_header_2_0(file)


def open_npz(path: Path, options: ReadOptions) -> FeatureSource:
    """Open the features of an .npz file, with its array of ids if it has one."""
    archive = NpzFile(path)
    name = archive.choose(options.array, _FEATURE_ARRAYS, "features", "--array")
    values = archive.read(name)
    ids = None
    chosen = [options.id_column] if options.id_column else list(_ID_ARRAYS)
    id_names = [n for n in chosen if n in archive.names]
    if options.id_column and not id_names:
        archive.read(options.id_column)  # raises the error that lists the arrays
    if id_names:
        ids = as_ids(archive.read(id_names[0]), f"{path}[{id_names[0]!r}]")
    return ArraySource(values, f"{path}[{name!r}]", ids)
