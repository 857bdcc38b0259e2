"""Rows on a cluster: files, a Dask array, or a column of vectors of a Dask DataFrame.

The rows are split into partitions of about equal size. A partition is read by the task that uses
it, in batches, and checked there, so that errors name the shard; the client only sees shapes.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.io.features.arrow_files import ArrowSource
from rpml.io.features.numpy_files import RemoteArray
from rpml.io.features.reading import (
    check_one_format,
    is_feature_file,
    natural_key,
    open_features,
)
from rpml.io.features.source import Batch, FeatureSource, ReadOptions
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, as_matrix, first_not_finite
from rpml.runtime.wording import counted, first_line

if TYPE_CHECKING:
    import dask.array

    from rpml.estimator import RPML


PARTITION_BYTES = 256 * 2**20
_READ_AHEAD = 2**16  # bytes; enough for a header
MIN_PARTITION = 500  # rows; smaller partitions cost more in messages than they save
_ADVICE = " (Dask turns vectors into text unless dataframe.convert-string is False)"
Piece = tuple[str, int, int]
"""The path of a shard, and its first and last row plus one."""
Work = Callable[..., Any]
"""A function of the batches of a partition, and of further arguments."""


@dataclass(frozen=True)
class PartitionedRows:
    """Partitions of the rows: partition i has the rows edges[i] to edges[i + 1]."""

    edges: NDArray[np.int64]
    n_features: int
    dtype: np.dtype[np.generic]
    parts: list[Any]
    """Of each partition: the pieces of shards, or a delayed block of a Dask collection."""
    identity: str
    """What tells these rows from others: names, sizes and times of the files."""
    options: ReadOptions | None = None
    """How files are read; None for a Dask collection."""
    feature_names: tuple[str, ...] | None = None
    name: str = "X"
    model: RPML | None = field(default=None, repr=False)
    """Applied to every batch."""
    output: str = "float"
    """Of the model, as in `RPML.transform`."""

    @property
    def count(self) -> int:
        return int(self.edges[-1])

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.n_features

    def each(self, cluster: Cluster, work: Work, *columns: Sequence[object]) -> list[Task]:
        """Submit work(batches, ...) for every partition; the columns have an item for each."""
        model = None if self.model is None else cluster.hold((self.model, self.output))
        count = len(self.parts)
        if self.options is not None:
            fixed = ([work] * count, [self.options] * count, [model] * count)
            return cluster.each(_on_pieces, self.parts, *fixed, *columns)
        with cluster.failures():
            blocks = cluster.client.compute(self.parts)
        names = [f"{self.name}, from row {start} on" for start in self.edges[:-1].tolist()]
        return cluster.each(_on_block, blocks, [work] * count, names, [model] * count, *columns)

    def digest(self) -> str:
        """Return a hash that changes with the files or the Dask collection; nothing is read."""
        text = repr((self.shape, self.options, self.identity))
        return hashlib.sha256(text.encode()).hexdigest()


def open_rows(
    X: object,
    cluster: Cluster,
    *,
    options: ReadOptions | None = None,
    partition_rows: int | None = None,
    by_size: bool = False,
) -> PartitionedRows:
    """Split the rows into partitions; values are read when they are needed.

    `X` is a Dask array, a Dask DataFrame or Series with a column of vectors, or the path of a
    folder of .npy, .npz or parquet shards or of one such file: a path that every worker can access,
    or a URL that fsspec supports (``s3://...``), which workers copy to their disk. Partitions have
    `partition_rows` rows, by default 256 MB or fewer, so that there is at least one per thread (two
    if there are several workers); parquet files are split between their row groups, Dask
    collections of vectors not at all. With `by_size` the partitions do not depend on the number of
    threads.
    """
    if isinstance(X, PartitionedRows):
        return X
    workers = cluster.workers()
    least = 1 if by_size else sum(workers.values()) * (2 if len(workers) > 1 else 1)
    if isinstance(X, str | Path):
        return _open_shards(str(X), cluster, options or ReadOptions(), partition_rows, least)
    if hasattr(X, "dask") and hasattr(X, "chunks"):
        return _from_array(cast("dask.array.Array", X), partition_rows, least)
    if hasattr(X, "dask") and hasattr(X, "to_delayed"):
        return _from_table(X, cluster, options or ReadOptions())
    raise TypeError(
        f"X is a {type(X).__name__}: give a Dask array, a Dask DataFrame, or the path of parquet, "
        ".npy or .npz files; for an array in memory RPML is the faster one."
    )


def _from_array(X: dask.array.Array, partition_rows: int | None, least: int) -> PartitionedRows:
    if X.ndim != 2 or np.isnan(X.shape[0]):
        raise InputError(
            f"the Dask array has shape {X.shape}: it must have two dimensions of known size "
            "(call compute_chunk_sizes() first)"
        )
    n, width = X.shape
    edges = _edges(n, width * X.dtype.itemsize, partition_rows, least)
    blocks = X.rechunk((tuple(int(s) for s in np.diff(edges)), (width,))).to_delayed().ravel()
    return PartitionedRows(
        edges, width, np.dtype(X.dtype), list(blocks), X.name, name="the Dask array"
    )


def _from_table(X: Any, cluster: Cluster, options: ReadOptions) -> PartitionedRows:
    """Return the vectors of a Dask Series, or of the only or the named column of a DataFrame."""
    columns = list(getattr(X, "columns", [])) if X.ndim == 2 else []
    wanted = list(options.columns or columns)
    if X.ndim == 2:
        if len(wanted) != 1 or wanted[0] not in columns:
            raise InputError(
                f"the Dask DataFrame has the columns {', '.join(map(str, columns))}: pass the one "
                "with the vectors, df['name']"
            )
        X = X[wanted[0]]
    blocks, name = X.to_delayed(), f"the column {X.name!r}"
    with cluster.failures():  # of a parquet file, the lengths need no values
        counts = cluster.client.compute(X.index.to_delayed())
        sizes = cluster.values(cluster.each(len, counts))
        if not any(sizes):
            raise InputError(f"{name} has no rows")
        first = cluster.client.compute(blocks[int(np.argmax(np.array(sizes) > 0))])
    width, dtype = cluster.value(cluster.submit(_look_at_block, first, name))
    edges = np.cumsum([0, *sizes])
    return PartitionedRows(edges, width, np.dtype(dtype), blocks, str(X._name), name=name)


def _look_at_block(block: Any, name: str) -> tuple[int, str]:
    values = _checked(block, name).values
    return values.shape[1], values.dtype.str


Model = tuple["RPML", str]
"""A fitted model and the output of its `transform`."""
Look = tuple[int, int, str, tuple[str, ...] | None, tuple[int, ...]]
"""(rows, columns, dtype, column names, rows of each row group) of a shard."""


def _open_shards(
    address: str, cluster: Cluster, options: ReadOptions, partition_rows: int | None, least: int
) -> PartitionedRows:
    paths, identity = shard_addresses(address)
    seen: list[Look] = cluster.values(cluster.each(_look, paths, [options] * len(paths)))
    first = seen[0]
    for path, shard in zip(paths, seen, strict=True):
        if shard[1] != first[1]:
            raise InputError(f"{path} has {counted(shard[1], 'column')}, {paths[0]} has {first[1]}")
        if shard[3] != first[3]:
            raise InputError(f"{path} has other column names than {paths[0]}")
    sizes = [shard[0] for shard in seen]
    dtype = np.result_type(*(np.dtype(shard[2]) for shard in seen))
    edges = _edges(sum(sizes), first[1] * dtype.itemsize, partition_rows, least)
    if any(shard[4] for shard in seen):
        groups = [rows for shard in seen for rows in shard[4] or (shard[0],)]
        edges = _between(edges, np.cumsum([0, *groups]))
    pieces = cut(paths, sizes, edges)
    return PartitionedRows(edges, first[1], dtype, pieces, identity, options, first[3], address)


def shard_addresses(address: str) -> tuple[list[str], str]:
    """Return the feature files of a folder in natural order, all of one format; or the one file.

    If the folder has none, those of its subfolders (a partitioned parquet dataset). The second
    value names the files with their sizes and times.
    """
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(address)
        exists, is_file = system.exists(path), system.isfile(path)
    except Exception as error:  # every file system has its own errors
        raise InputError(f"cannot read {address}: {first_line(error)}") from error
    if not exists:
        raise InputError(f"cannot read {address}: there is no such file or folder")
    entries = [path]
    if not is_file:
        listings = (system.ls(path, detail=False), system.find(path))
        found = ([entry for entry in there if is_feature_file(Path(entry))] for there in listings)
        entries = next(filter(None, found), [])
        check_one_format(address, map(Path, entries))
        entries.sort(key=lambda entry: (str(Path(entry).parent), natural_key(Path(entry))))
    known = [system.info(entry) for entry in entries]
    times = ("mtime", "ETag", "LastModified", "updated")
    stamps = [(info["size"], *(str(info[t]) for t in times if t in info)) for info in known]
    local = "file" in system.protocol
    names = [entry if local else system.unstrip_protocol(entry) for entry in entries]
    return ([address] if is_file else names), repr([*zip(names, stamps, strict=True)])


def cut(paths: Sequence[str], sizes: Sequence[int], edges: NDArray[np.int64]) -> list[list[Piece]]:
    """Return the pieces of shards that make up each partition."""
    starts = np.cumsum([0, *sizes]).tolist()

    def pieces(low: int, high: int) -> list[Piece]:
        inside = range(bisect_right(starts, low) - 1, bisect_left(starts, high))
        ends = {i: (max(low - starts[i], 0), min(high, starts[i + 1]) - starts[i]) for i in inside}
        return [(paths[i], start, stop) for i, (start, stop) in ends.items() if sizes[i]]

    return [pieces(low, high) for low, high in pairwise(edges.tolist())]


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


def _between(edges: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Move each edge to the nearest boundary of row groups, so that each group is read once."""
    above = np.clip(np.searchsorted(groups, edges), 1, len(groups) - 1)
    low, high = groups[above - 1], groups[above]
    return np.unique(np.where(edges - low < high - edges, low, high))


def _open_shard(path: str, options: ReadOptions) -> FeatureSource:
    """Open a shard; of remote .npy and parquet files only the rows asked for are read."""
    if "://" not in path:
        return open_features(path, options)
    import fsspec

    name, suffix = Path(path), Path(path).suffix.lower()
    try:
        if suffix not in (".npy", ".parquet", ".pq"):  # copied to this worker's disk
            name = Path(fsspec.open_local(f"simplecache::{path}", simplecache={"same_names": True}))
            source = open_features(name, options)
        else:
            system, inside = fsspec.core.url_to_fs(path)
            file = system.open(inside, "rb", block_size=_READ_AHEAD)
            if suffix == ".npy":
                source = RemoteArray(file, system.size(inside), path)
            else:
                source = ArrowSource(name, options, file)
    except InputError as error:
        raise InputError(str(error).replace(str(name), path)) from error
    except Exception as error:  # every file system has its own errors
        raise InputError(f"cannot read {path}: {first_line(error)}") from error
    source.name = path
    return source


def _look(path: str, options: ReadOptions) -> Look:
    source = _open_shard(path, options)
    rows = source.n_rows
    if rows is None:
        rows = sum(len(batch.values) for batch in source.batches())
    dtype = np.dtype(source.dtype).str
    return rows, source.n_features, dtype, source.feature_names, source.row_groups


def _on_pieces(
    pieces: list[Piece], work: Work, options: ReadOptions, model: Model | None, *more: object
) -> Any:
    batches = (batch for piece in pieces for batch in read_piece(piece, options))
    return work(_embedded(batches, model), *more)


def _on_block(block: Any, work: Work, name: str, model: Model | None, *more: object) -> Any:
    batches = [_checked(block, name)] if len(block) else []
    return work(_embedded(iter(batches), model), *more)


def _embedded(batches: Iterator[Batch], model: Model | None) -> Iterator[Batch]:
    for batch in batches:
        if model is not None:
            fitted, output = model
            batch = replace(batch, values=np.asarray(fitted.transform(batch.values, output=output)))
        yield batch


def read_piece(piece: Piece, options: ReadOptions) -> Iterator[Batch]:
    """Read the rows of a piece in batches; all values are finite."""
    path, start, stop = piece
    source, seen = _open_shard(path, options), start
    for batch in source.batches_between(start, stop):
        low, high = max(start - batch.start, 0), min(stop - batch.start, len(batch.values))
        if low < high:
            source._check_finite(batch)
            ids = None if batch.ids is None else batch.ids[low:high]
            yield Batch(batch.start + low, np.asarray(batch.values[low:high]), ids)
            seen = batch.start + high
        if seen >= stop:
            return
    raise InputError(f"{path} is damaged: it has fewer rows than it says")


def _checked(block: Any, name: str) -> Batch:
    """Return a block of a Dask collection: rows of numbers, or a column of vectors."""
    try:
        values = np.ascontiguousarray(as_matrix(block))
    except ValueError as error:
        raise InputError(f"{name}: {first_line(error)}") from None
    if values.dtype.kind not in "fiub" or values.ndim != 2:
        kind = f"dtype {values.dtype}, shape {values.shape}"
        raise InputError(f"{name}: {kind}, and features must be rows of real numbers{_ADVICE}")
    rows: Array = values
    bad = first_not_finite(rows)
    if bad is not None:
        what = "NaN" if np.isnan(rows[bad]) else "infinite"
        raise InputError(f"{name}: row {bad[0]}, column {bad[1]} is {what}: remove or fill it")
    return Batch(0, rows)
