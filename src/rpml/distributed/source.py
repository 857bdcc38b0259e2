"""Rows on a cluster: a Dask array, a parquet dataset, or a folder of .npy/.npz shards.

The rows are split into partitions of about equal size, independent of the files. Each partition is
read and checked by the worker that needs it, so that errors name the shard; the client only sees
shapes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.io.features.reading import SUFFIXES, open_features
from rpml.io.features.shards import check_one_format, is_feature_file, natural_key
from rpml.io.features.source import FeatureSource, Ids, ReadOptions
from rpml.runtime.digest import data_digest
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, first_not_finite
from rpml.runtime.wording import counted, first_line

if TYPE_CHECKING:
    import dask.array


PARTITION_BYTES = 64 * 2**20
MIN_PARTITION = 500  # rows; smaller partitions cost more in messages than they save


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one shard."""

    path: str
    start: int
    stop: int


@dataclass
class PartitionedRows:
    """Partitions of the rows: part i has the rows edges[i] to edges[i + 1]."""

    read: Callable[[], list[Task]]
    edges: NDArray[np.int64]
    n_features: int
    dtype: np.dtype[np.generic]
    pieces: list[list[Piece]] = field(default_factory=list)
    """The sources of each partition; empty for a Dask array."""
    options: ReadOptions = field(default_factory=ReadOptions)
    feature_names: tuple[str, ...] | None = None
    name: str = "X"
    _parts: list[Task] = field(default_factory=list)

    @property
    def parts(self) -> list[Task]:
        """The values of each partition, read on first access."""
        self._parts = self._parts or self.read()
        return self._parts

    def release(self) -> None:
        """Free the workers' memory; partitions are read again when needed."""
        self._parts = []

    @property
    def count(self) -> int:
        return int(self.edges[-1])

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.n_features

    def digest(self, cluster: Cluster) -> str:
        """Return a hash of all values, computed on the workers; of files independent of edges."""
        paths = dict.fromkeys(piece.path for part in self.pieces for piece in part)
        parts = cluster.each(_file_digest, list(paths)) or cluster.each(data_digest, self.parts)
        state = hashlib.sha256(repr((self.shape, self.options)).encode())
        for digest in cluster.values(parts):
            state.update(digest.encode())
        return state.hexdigest()


def open_rows(
    X: object,
    cluster: Cluster,
    *,
    options: ReadOptions | None = None,
    partition_rows: int | None = None,
    by_size: bool = False,
) -> PartitionedRows:
    """Split the rows into partitions; values are read when they are needed.

    `X` is a Dask array, or the path of a folder of .npy, .npz or parquet shards or of one such
    file: a path that every worker can access, or a URL that fsspec supports (``s3://...``), which
    workers copy to their disk. Partitions have `partition_rows` rows, by default at most 64 MB,
    with at least one partition per thread (two if there are several workers). With `by_size` the
    partitions do not depend on the number of threads.
    """
    if isinstance(X, PartitionedRows):
        return X
    least = 1 if by_size else _least(cluster)
    if isinstance(X, str | Path):
        return _open_shards(str(X), cluster, options or ReadOptions(), partition_rows, least)
    if not (hasattr(X, "dask") and hasattr(X, "chunks")):
        raise TypeError(
            f"X is a {type(X).__name__}: give a Dask array, or the path of parquet, .npy or .npz "
            "files; for an array in memory RPML is the faster one."
        )
    return _from_dask_array(cast("dask.array.Array", X), cluster, partition_rows, least)


def _least(cluster: Cluster) -> int:
    workers = cluster.workers()
    return sum(workers.values()) * (2 if len(workers) > 1 else 1)


def _from_dask_array(
    X: dask.array.Array, cluster: Cluster, partition_rows: int | None, least: int
) -> PartitionedRows:
    if X.ndim != 2 or np.isnan(X.shape[0]):
        raise InputError(
            f"the Dask array has shape {X.shape}: it must have two dimensions of known size "
            "(call compute_chunk_sizes() first)"
        )
    n, width = X.shape
    edges = _edges(n, width * X.dtype.itemsize, partition_rows, least)
    blocks = X.rechunk((tuple(int(s) for s in np.diff(edges)), (width,))).to_delayed().ravel()

    def read() -> list[Task]:
        with cluster.failures():
            raw = cluster.client.compute(list(blocks))
        return [
            cluster.submit(_checked, block, f"the Dask array, from row {start} on")
            for block, start in zip(raw, edges, strict=False)
        ]

    return PartitionedRows(read, edges, width, np.dtype(X.dtype))


def _open_shards(
    address: str, cluster: Cluster, options: ReadOptions, partition_rows: int | None, least: int
) -> PartitionedRows:
    paths = shard_addresses(address)
    looks = [cluster.submit(_look, path, options) for path in paths]
    seen: list[tuple[int, int, str, tuple[str, ...] | None]] = [
        cluster.value(look) for look in looks
    ]
    first = seen[0]
    for path, shard in zip(paths, seen, strict=True):
        if shard[1] != first[1]:
            raise InputError(f"{path} has {counted(shard[1], 'column')}, {paths[0]} has {first[1]}")
        if shard[3] != first[3]:
            raise InputError(f"{path} has other column names than {paths[0]}")
    sizes = [shard[0] for shard in seen]
    dtype = np.result_type(*(np.dtype(shard[2]) for shard in seen))
    n, width = sum(sizes), first[1]
    edges = _edges(n, width * dtype.itemsize, partition_rows, least)
    pieces = cut(paths, sizes, edges)

    def read() -> list[Task]:
        return [cluster.submit(read_part, part, width, str(dtype), options) for part in pieces]

    return PartitionedRows(read, edges, width, dtype, pieces, options, first[3], address)


def shard_addresses(address: str) -> list[str]:
    """Return the feature files of a folder in natural order, all of one format; or the one file.

    If the folder has none, those of its subfolders (a partitioned parquet dataset).
    """
    import fsspec

    system, path = fsspec.core.url_to_fs(address)
    if not system.exists(path):
        raise InputError(f"cannot read {address}: there is no such file or folder")
    if system.isfile(path):
        return [address]
    entries = _features(system.ls(path, detail=False)) or _features(system.find(path))
    check_one_format(address, map(Path, entries), SUFFIXES)
    local = "file" in system.protocol
    entries.sort(key=lambda entry: (str(Path(entry).parent), natural_key(Path(entry))))
    return [entry if local else system.unstrip_protocol(entry) for entry in entries]


def _features(entries: Sequence[str]) -> list[str]:
    return [entry for entry in entries if is_feature_file(Path(entry), SUFFIXES)]


def cut(paths: Sequence[str], sizes: Sequence[int], edges: NDArray[np.int64]) -> list[list[Piece]]:
    """Return the pieces of shards that make up each partition."""
    starts = np.concatenate([[0], np.cumsum(sizes)])
    parts = []
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        which = range(int(np.searchsorted(starts, low, "right")) - 1, len(sizes))
        inside = [i for i in which if starts[i] < high and sizes[i]]
        parts.append(
            [
                Piece(
                    paths[i],
                    int(max(low - starts[i], 0)),
                    int(min(high, starts[i + 1]) - starts[i]),
                )
                for i in inside
            ]
        )
    return parts


def _edges(n: int, row_bytes: int, partition_rows: int | None, least: int) -> NDArray[np.int64]:
    """Cut the rows into partitions of a number of rows, or by size into `least` or more."""
    if partition_rows is not None and partition_rows < 1:
        raise ValueError(f"partition_rows={partition_rows}: must be at least 1")
    if partition_rows is None:
        by_size = -(-n * row_bytes // PARTITION_BYTES)
        count = int(max(1, min(max(by_size, least), n // MIN_PARTITION)))
    else:
        count = max(1, -(-n // partition_rows))
    return np.array([n * i // count for i in range(count + 1)], np.int64)


def local_copy(path: str) -> str:
    """Return the path itself, or the local copy of a remote file."""
    if "://" not in path:
        return path
    import fsspec

    try:
        cached = fsspec.open_local(f"simplecache::{path}", simplecache={"same_names": True})
    except Exception as error:  # every file system has its own errors
        raise InputError(f"cannot read {path}: {first_line(error)}") from error
    return str(cached)


def _file_digest(path: str) -> str:
    with open(local_copy(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_shard(path: str, options: ReadOptions) -> FeatureSource:
    """Open a shard; error messages use its original name."""
    source = open_features(local_copy(path), options)
    source.name = path
    return source


def _look(path: str, options: ReadOptions) -> tuple[int, int, str, tuple[str, ...] | None]:
    """Return (rows, columns, dtype, column names) of a shard."""
    source = open_shard(path, options)
    rows = source.n_rows
    if rows is None:
        rows = sum(len(batch.values) for batch in source.batches())
    return rows, source.n_features, np.dtype(source.dtype).str, source.feature_names


def read_part(
    pieces: list[Piece], width: int, dtype: str, options: ReadOptions
) -> NDArray[np.generic]:
    """Read the values of a partition; all are finite."""
    out = np.empty((sum(p.stop - p.start for p in pieces), width), np.dtype(dtype))
    at = 0
    for piece in pieces:
        for values, _ in read_piece(piece, options):
            out[at : at + len(values)] = values
            at += len(values)
    return out


def read_piece(piece: Piece, options: ReadOptions) -> list[tuple[Array, Ids | None]]:
    """Read (values, ids) of the rows of a piece, in batches."""
    source = open_shard(piece.path, options)
    batches, seen = [], 0
    for batch in source.raw_batches(source.batch_rows()):
        low = max(piece.start - batch.start, 0)
        high = min(piece.stop - batch.start, len(batch.values))
        if low < high:
            source._check_finite(batch)
            values = np.array(batch.values[low:high])  # copies from a mapped file
            batches.append((values, None if batch.ids is None else batch.ids[low:high]))
            seen += high - low
        if batch.start + len(batch.values) >= piece.stop:
            break
    if seen != piece.stop - piece.start:
        raise InputError(f"{piece.path} is damaged: it has fewer rows than it says")
    return batches


def _checked(values: ArrayLike, name: str) -> Array:
    block: Array = np.ascontiguousarray(values)
    if block.dtype.kind not in "fiub":
        raise InputError(f"{name}: dtype {block.dtype}, and features must be real numbers")
    bad = first_not_finite(block)
    if bad is not None:
        what = "NaN" if np.isnan(block[bad]) else "infinite"
        raise InputError(f"{name}: row {bad[0]}, column {bad[1]} is {what}: remove or fill it")
    return block
