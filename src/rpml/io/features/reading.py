"""Opening features by suffix; a folder holds shards, and `-` is standard input."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from rpml.io.features.arrow_files import SUFFIXES as ARROW
from rpml.io.features.arrow_files import ArrowSource
from rpml.io.features.numpy_files import ArraySource, open_npy, open_npz, sidecar
from rpml.io.features.shards import ShardedSource, shard_paths
from rpml.io.features.source import Features, FeatureSource, ReadOptions, Stamp
from rpml.io.features.text_files import CsvSource
from rpml.runtime.errors import InputError
from rpml.runtime.extras import require
from rpml.runtime.files import scratch_folder
from rpml.runtime.wording import one_line, reason_of

Opener = Callable[[Path, ReadOptions], FeatureSource]
OPENERS: dict[str, Opener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    **dict.fromkeys(ARROW, ArrowSource),
    ".csv": CsvSource,
    ".tsv": CsvSource,
}
SUFFIXES = tuple(OPENERS)


def check_readable(path: Path) -> None:
    """Raise InputError if a file is missing, unreadable, special or empty."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
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
        return _standard_input(options)
    if "://" in str(path):
        return _remote(str(path), options)
    path = Path(path)
    check_readable(path)
    if path.is_dir():
        paths = shard_paths(path, SUFFIXES)
        return ShardedSource(path, paths, lambda p: _open_file(p, options))
    return _open_file(path, options)


def _open_file(path: Path, options: ReadOptions) -> FeatureSource:
    opener = OPENERS.get(path.suffix.lower())
    if opener is None:
        kind = f"the suffix {path.suffix!r}" if path.suffix else "no suffix"
        raise InputError(f"{path} has {kind}: features are read from {', '.join(SUFFIXES)}")
    check_readable(path)
    try:
        stamp = Stamp.of(path)
        source = opener(path, options)
        source.stamp = stamp
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
    if options.keep and not source.kept_names:
        raise InputError(f"{path} has no columns to keep: only tables have")
    if options.columns is not None and isinstance(source, ArraySource):
        raise InputError(f"{path} has no columns to choose with --columns: only tables have")
    return source


def read_features(path: str | Path, options: ReadOptions | None = None) -> Features:
    """Read all rows of `open_features(path, options)`; a .npy file beyond 64 MB is mapped."""
    return open_features(path, options).load()


_MAGIC = {
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
    b"PAR1": ".parquet",
    b"ARROW1": ".feather",
    b"{": ".jsonl",
}


def _standard_input(options: ReadOptions) -> FeatureSource:
    """Copy standard input to a temporary file, so that every format works in bounded memory."""
    folder = scratch_folder()
    spool = Path(folder.name) / "stdin"
    with open(spool, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with open(spool, "rb") as file:
        start = file.readline(1 << 16)
    if not start:
        raise InputError("standard input is empty")
    suffix = next((s for m, s in _MAGIC.items() if start.startswith(m)), None)
    suffix = suffix or (".tsv" if b"\t" in start else ".csv")
    path = spool.rename(spool.with_suffix(suffix))
    return _named(lambda: _open_file(path, options), folder, path, "standard input")


def _remote(address: str, options: ReadOptions) -> FeatureSource:
    """Copy a file or a folder of shards from a URL that fsspec supports."""
    fsspec = require("fsspec", "remote", f"reading {address.split('://')[0]}://")
    folder = scratch_folder()
    try:
        system, place = fsspec.core.url_to_fs(address)
        target = Path(folder.name) / Path(urlsplit(place).path.rstrip("/")).name
        if target.suffix.lower() in SUFFIXES:
            system.get_file(place, str(target))
        else:
            system.get(place, str(target), recursive=True)
        ids = place.removesuffix(".npy") + ".ids.csv"
        if place.endswith(".npy") and system.exists(ids):
            system.get_file(ids, str(sidecar(target)))
    except FileNotFoundError as error:
        raise InputError(f"cannot read {address}: there is no such file") from error
    except Exception as error:  # every file system has its own errors
        reason = one_line(error) or type(error).__name__
        raise InputError(f"cannot read {address}: {reason}") from error
    return _named(lambda: open_features(target, options), folder, target, address)


def _named(
    open_copy: Callable[[], FeatureSource], folder: TemporaryDirectory[str], path: Path, name: str
) -> FeatureSource:
    """Open a copy in a temporary folder, which the source keeps, and name it by its origin."""
    try:
        source = open_copy()
    except InputError as error:
        raise InputError(str(error).replace(str(path), name)) from error
    source.name = source.name.replace(str(path), name)
    source.stamp = None
    source._spool = folder  # type: ignore[attr-defined]
    return source
