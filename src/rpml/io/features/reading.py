"""Opening features by suffix; a folder holds shards, and `-` is standard input."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from rpml.io.features.arrow_files import SUFFIXES as ARROW
from rpml.io.features.arrow_files import ArrowSource
from rpml.io.features.numpy_files import ArraySource, open_npy, open_npz, sidecar
from rpml.io.features.source import Batch, Features, FeatureSource, ReadOptions, file_stamp
from rpml.io.features.text_files import CsvSource
from rpml.io.manifest import FOLDER_MANIFEST, Manifest
from rpml.runtime.errors import InputError, counted, explained, require

Opener = Callable[[Path, ReadOptions], FeatureSource]
OPENERS: dict[str, Opener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    **dict.fromkeys(ARROW, ArrowSource),
    ".csv": CsvSource,
    ".tsv": CsvSource,
}
SUFFIXES = tuple(OPENERS)
TABLES = ("groups.csv", "labels.csv", "failures.csv", "whitening.npz")
"""What `rpml features` writes along with the vectors."""


def check_readable(path: Path) -> None:
    """Raise InputError if a file is missing, unreadable, special or empty."""
    with explained(f"cannot read {path}"):
        status = os.stat(path)
    if path.is_dir():
        return
    if not path.is_file():
        raise InputError(f"cannot read {path}: it is not a regular file (use - to read a pipe)")
    if not os.access(path, os.R_OK):
        raise InputError(f"cannot read {path}: permission denied")
    if status.st_size == 0:
        raise InputError(f"{path} is empty")


def open_features(path: str | Path, options: ReadOptions | None = None) -> FeatureSource:
    """Open a file of vectors, a folder of such files, a URL, or standard input (``-``).

    Files are .npy, .npz, .parquet, .feather, .jsonl, .csv or .tsv. A URL that fsspec supports
    (``s3://...``, ``https://...``) is copied to a temporary folder. `options` say which columns,
    array and ids to read, where the file leaves a choice.
    """
    options = options or ReadOptions()
    if str(path) == "-":
        return _copied("standard input", _copy_standard_input, options)
    if "://" in str(path):
        return _copied(str(path), partial(_copy_remote, str(path)), options)
    path = Path(path)
    check_readable(path)
    if path.is_dir():
        return ShardedSource(path, options)
    return _open_file(path, options)


def _open_file(path: Path, options: ReadOptions) -> FeatureSource:
    opener = OPENERS.get(path.suffix.lower())
    if opener is None:
        kind = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise InputError(f"{path} has {kind}: features are read from {', '.join(SUFFIXES)}")
    check_readable(path)
    with explained(f"cannot read {path}"):
        stamp = file_stamp(path)
        source = opener(path, options)
        source.stamp = stamp
    if options.keep and not source.kept_names:
        raise InputError(f"{path} has no columns to keep: only tables have")
    if options.columns is not None and isinstance(source, ArraySource):
        raise InputError(f"{path} has no columns to choose with --columns: only tables have")
    return source


def read_features(path: str | Path, options: ReadOptions | None = None) -> Features:
    """Read all rows of `open_features(path, options)`; a .npy file beyond 64 MB is mapped."""
    return open_features(path, options).load()


def natural_key(path: Path) -> list[tuple[int, int, str]]:
    """Return a sort key that puts part-2 before part-10."""
    pieces = re.split(r"(\d+)", path.name)
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in pieces]


def is_feature_file(path: Path) -> bool:
    """Whether a file of a folder of shards holds vectors; ids and other tables do not."""
    other = path.name.startswith(".") or path.name.endswith(".ids.csv") or path.name in TABLES
    return path.suffix.lower() in SUFFIXES and not other


def check_one_format(folder: object, paths: Iterable[Path]) -> None:
    """Raise InputError if a folder has no feature files, or files of several formats."""
    kinds = sorted({path.suffix.lower() for path in paths})
    if not kinds:
        raise InputError(f"{folder} has no feature files ({', '.join(SUFFIXES)})")
    if len(kinds) > 1:
        raise InputError(f"{folder} mixes {' and '.join(kinds)} files: keep one kind per folder")


def _check_complete(folder: Path, paths: list[Path]) -> None:
    """Raise InputError if a folder that rpml wrote has not exactly the vectors of its manifest."""
    manifest = Manifest(folder / FOLDER_MANIFEST)
    listed = {path.name for path in manifest.files if is_feature_file(path)}
    if listed and not (manifest.complete and listed == {path.name for path in paths}):
        raise InputError(
            f"{folder} has not exactly the files that {FOLDER_MANIFEST} lists: write it again, or "
            f"remove {FOLDER_MANIFEST} if its files do belong together"
        )


def shard_paths(folder: Path) -> list[Path]:
    """Return the feature files of a folder in natural order."""
    with explained(f"cannot read the folder {folder}"):
        paths = sorted(filter(is_feature_file, folder.iterdir()), key=natural_key)
    check_one_format(folder, paths)
    _check_complete(folder, paths)
    return paths


class ShardedSource(FeatureSource):
    """Several files with the same columns, concatenated."""

    def __init__(self, folder: Path, options: ReadOptions) -> None:
        self.name = str(folder)
        self._parts = [_open_file(path, options) for path in shard_paths(folder)]
        first = self._parts[0]
        for part in self._parts[1:]:
            check_like(part, first)
        for name in ("n_features", "has_ids", "id_name", "feature_names", "kept_names"):
            setattr(self, name, getattr(first, name))
        self.dtype = np.result_type(*(p.dtype for p in self._parts))
        counts = [p.n_rows for p in self._parts]
        self.n_rows = None if None in counts else sum(c for c in counts if c is not None)

    def raw_batches(self, rows: int) -> Iterator[Batch]:
        """Yield the batches of each file, checked here so that errors name the file."""
        start = 0
        for part in self._parts:
            for batch in part.raw_batches(rows):
                part._check_finite(batch)
                yield replace(batch, start=start + batch.start)
            part.check_unchanged()
            start += part.n_rows if part.n_rows is not None else batch.start + len(batch.values)


def check_like(part: Any, first: Any) -> None:
    """Raise InputError if two shards, or their descriptions, differ in their columns."""
    if part.n_features != first.n_features:
        raise InputError(
            f"{part.name} has {counted(part.n_features, 'column')}, {first.name} has "
            f"{first.n_features}: keep files of other vectors in other folders"
        )
    same = {"feature_names": "column names", "kept_names": "columns to keep", "has_ids": "ids"}
    for name, meaning in same.items():
        if getattr(part, name) != getattr(first, name):
            raise InputError(f"{part.name} has other {meaning} than {first.name}")


_MAGIC = {
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
    b"PAR1": ".parquet",
    b"ARROW1": ".feather",
    b"{": ".jsonl",
}


def _copied(name: str, copy: Callable[[Path], Path], options: ReadOptions) -> FeatureSource:
    """Open a copy in a temporary folder, which the source keeps, and name it by its origin."""
    folder = tempfile.TemporaryDirectory(prefix="rpml-")
    path = copy(Path(folder.name))
    try:
        source = open_features(path, options)
    except InputError as error:
        raise InputError(str(error).replace(str(path), name)) from error
    source.name = source.name.replace(str(path), name)
    source.stamp = None
    source._spool = folder  # type: ignore[attr-defined]
    return source


def _copy_standard_input(folder: Path) -> Path:
    """Copy it to a file, so that every format works in bounded memory."""
    spool = folder / "stdin"
    with open(spool, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with open(spool, "rb") as file:
        start = file.readline(1 << 16)
    if not start:
        raise InputError("standard input is empty")
    suffix = next((s for m, s in _MAGIC.items() if start.startswith(m)), None)
    return spool.rename(spool.with_suffix(suffix or (".tsv" if b"\t" in start else ".csv")))


def _copy_remote(address: str, folder: Path) -> Path:
    """Copy a file or a folder of shards from a URL that fsspec supports."""
    fsspec = require("fsspec", "remote", f"reading {address.split('://')[0]}://")
    with explained(f"cannot read {address}"):
        system, place = fsspec.core.url_to_fs(address)
        target = folder / Path(urlsplit(place).path.rstrip("/")).name
        if target.suffix.lower() in SUFFIXES:
            system.get_file(place, str(target))
        else:
            system.get(place, str(target), recursive=True)
        ids = place.removesuffix(".npy") + ".ids.csv"
        if place.endswith(".npy") and system.exists(ids):
            system.get_file(ids, str(sidecar(target)))
    return target
