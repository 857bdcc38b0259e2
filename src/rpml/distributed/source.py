"""Rows on a cluster: files, a Dask array, or a column of vectors of a Dask DataFrame.

The rows are split into partitions of about equal size. A partition is read by the task that uses
it, in batches, and checked there, so that errors name the shard; the client only sees shapes.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import fsspec
import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.io.features import reading
from rpml.io.features.arrow_files import ArrowSource
from rpml.io.features.numpy_files import ArraySource, RemoteArray, read_ids
from rpml.io.features.source import (
    Batch,
    Features,
    FeatureSource,
    Ids,
    ReadOptions,
    as_ids,
    check_unique_ids,
    picked,
)
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError, explained, first_line
from rpml.runtime.rows import Array, Indices, as_matrix, float_dtype

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

    cluster: Cluster = field(repr=False)
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

    def __len__(self) -> int:
        return int(self.edges[-1])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.n_features

    def __getitem__(self, rows: Indices) -> Array:
        """Read rows by number, in ascending order, as of an array."""
        return self.read(rows, Context())

    def read(self, rows: Indices, context: Context) -> Array:
        """Read rows by number, in ascending order, and report how far that is."""
        tasks = self.each(picked, self.positions(rows))
        self.cluster.wait(tasks, context, "read")
        parts = self.cluster.values(tasks)
        values = np.concatenate([part for part in parts if len(part)])
        return values.astype(float_dtype(self), copy=False)

    def positions(self, wanted: Indices) -> list[Indices]:
        """Return the wanted rows of each partition, by their position there."""
        parts = np.split(wanted, np.searchsorted(wanted, self.edges[1:-1]))
        return [part - start for part, start in zip(parts, self.edges[:-1], strict=True)]

    def each(self, work: Work, *columns: Sequence[object]) -> list[Task]:
        """Submit work(batches, ...) for every partition; the columns have an item for each."""
        model = None if self.model is None else self.cluster.hold((self.model, self.output))
        how = {"work": work, "model": model}
        if self.options is not None:
            return self.cluster.each(_on_pieces, self.parts, *columns, options=self.options, **how)
        with self.cluster.failures():
            blocks = self.cluster.client.compute(self.parts)
        names = [f"{self.name}, from row {start} on" for start in self.edges[:-1].tolist()]
        return self.cluster.each(_on_block, blocks, names, *columns, **how)

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
        return replace(X, cluster=cluster)
    workers = cluster.workers()
    least = 1 if by_size else sum(workers.values()) * (2 if len(workers) > 1 else 1)
    if isinstance(X, str | Path):
        return _open_shards(str(X), cluster, options or ReadOptions(), partition_rows, least)
    if hasattr(X, "dask") and hasattr(X, "chunks"):
        return _from_array(cast("dask.array.Array", X), cluster, partition_rows, least)
    if hasattr(X, "dask") and hasattr(X, "to_delayed"):
        return _from_table(X, cluster, options or ReadOptions())
    raise TypeError(
        f"X is a {type(X).__name__}: give a Dask array, a Dask DataFrame, or the path of parquet, "
        ".npy or .npz files; for an array in memory RPML is the faster one."
    )


def _from_array(
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
    about = edges, width, np.dtype(X.dtype)
    return PartitionedRows(cluster, *about, list(blocks), X.name, name="the Dask array")


def _from_table(X: Any, cluster: Cluster, options: ReadOptions) -> PartitionedRows:
    """Return the vectors of a Dask Series, or of the only or the named column of a DataFrame."""
    if X.ndim == 2:
        columns = list(X.columns)
        wanted = list(options.columns or columns)
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
    about = np.cumsum([0, *sizes]), width, np.dtype(dtype)
    return PartitionedRows(cluster, *about, blocks, str(X._name), name=name)


def _look_at_block(block: Any, name: str) -> tuple[int, str]:
    values = _checked(block, name).values
    return values.shape[1], values.dtype.str


Model = tuple["RPML", str]
"""A fitted model and the output of its `transform`."""
_KNOWN = ("dtype", "name", "feature_names", "kept_names", "has_ids", "row_groups")
"""What a `FeatureSource` says about its file, besides its shape."""


def _open_shards(
    address: str, cluster: Cluster, options: ReadOptions, partition_rows: int | None, least: int
) -> PartitionedRows:
    paths, identity = shard_addresses(address)
    shards = cluster.values(cluster.each(_look, paths, options=options))
    first, width = shards[0], shards[0].n_features
    for shard in shards[1:]:
        reading.check_like(shard, first)
    sizes = [shard.n_rows for shard in shards]
    dtype = np.result_type(*(shard.dtype for shard in shards))
    edges = _edges(sum(sizes), width * dtype.itemsize, partition_rows, least)
    if any(shard.row_groups for shard in shards):
        groups = chain(*(shard.row_groups or (shard.n_rows,) for shard in shards))
        edges = _between(edges, np.cumsum([0, *groups]))
    about = edges, width, dtype, cut(paths, sizes, edges), identity
    return PartitionedRows(cluster, *about, options, first.feature_names, address)


def read_columns(rows: PartitionedRows, names: Sequence[str] = (), ids: bool = True) -> Features:
    """Return the rows, which stay where they are, with their ids and columns that are not features.

    Only these columns are read, by the workers; the client holds a value per row of each.
    """
    files = chain(*rows.parts) if rows.options and (names or ids) else ()
    paths = list(dict.fromkeys(path for path, _, _ in files))
    tasks = rows.cluster.each(_columns, paths, options=rows.options, names=list(names), ids=ids)
    shards = zip(*rows.cluster.values(tasks), strict=True)
    id_names, known, *columns = [list(chain(*parts)) for parts in shards] or [["id"], []]
    found, read = as_ids(known) if known else None, dict(zip(names, columns, strict=True))
    check_unique_ids(found, rows.name)
    about = id_names[0], rows.feature_names, rows.name, read
    return Features(cast("Array", rows), found, *about)


def _columns(
    path: str, options: ReadOptions, names: list[str], ids: bool
) -> list[Sequence[object] | Ids]:
    source = _open_shard(path, options)
    known = source.ids() if ids else None
    return [[source.id_name], () if known is None else known, *map(source.column, names)]


def shard_addresses(address: str) -> tuple[list[str], str]:
    """Return the feature files of a folder in natural order, all of one format; or the one file.

    If the folder has none, those of its subfolders (a partitioned parquet dataset). The second
    value names the files with their sizes and times.
    """
    with explained(f"cannot read {address}"):
        system, path = fsspec.core.url_to_fs(address)
        exists, is_file = system.exists(path), system.isfile(path)
    if not exists:
        raise InputError(f"cannot read {address}: there is no such file or folder")
    entries = [path]
    if not is_file:
        listings = (system.ls(path, detail=False), system.find(path))
        found = (
            [entry for entry in there if reading.is_feature_file(Path(entry))] for there in listings
        )
        entries = next(filter(None, found), [])
        reading.check_one_format(address, map(Path, entries))
        entries.sort(key=lambda entry: (str(Path(entry).parent), reading.natural_key(Path(entry))))
    known = [system.info(entry) for entry in entries]
    times = ("mtime", "ETag", "LastModified", "updated")
    stamps = [(info["size"], *(str(info[t]) for t in times if t in info)) for info in known]
    names = [e if "file" in system.protocol else system.unstrip_protocol(e) for e in entries]
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
        return reading.open_features(path, options)
    name, suffix = Path(path), Path(path).suffix.lower()
    try:
        if suffix not in (".npy", ".parquet", ".pq"):  # copied to this worker's disk
            name = _copied(path)
            source = reading.open_features(name, options)
        else:
            system, inside = fsspec.core.url_to_fs(path)
            file = system.open(inside, "rb", block_size=_READ_AHEAD)
            if suffix == ".npy":
                table = path[: -len(suffix)] + ".ids.csv"
                known = system.exists(table)
                ids = read_ids(_copied(table), options.id_column) if known else None
                source = RemoteArray(file, system.size(inside), path, ids)
            else:
                source = ArrowSource(name, options, file)
    except InputError as error:
        raise InputError(str(error).replace(str(name), path)) from error
    except Exception as error:  # every file system has its own errors
        raise InputError(f"cannot read {path}: {first_line(error)}") from error
    source.name = path
    return source


def _copied(address: str) -> Path:
    """Copy a remote file to this worker's disk, until its process ends."""
    return Path(fsspec.open_local(f"simplecache::{address}", simplecache={"same_names": True}))


def _look(path: str, options: ReadOptions) -> SimpleNamespace:
    source = _open_shard(path, options)
    rows = source.n_rows or sum(len(batch.values) for batch in source.batches())
    known = {name: getattr(source, name) for name in _KNOWN}
    return SimpleNamespace(n_rows=rows, n_features=source.n_features, **known)


def _on_pieces(
    pieces: list[Piece], *more: object, work: Work, options: ReadOptions, model: Model | None
) -> Any:
    batches = (batch for piece in pieces for batch in read_piece(piece, options))
    return work(_embedded(batches, model), *more)


def _on_block(block: Any, name: str, *more: object, work: Work, model: Model | None) -> Any:
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
    return next(ArraySource(values, name).batches(len(values)))
