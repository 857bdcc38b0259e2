"""--engine dask: where a command runs, and rows that are never read here."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpml.cli.console import Console
    from rpml.distributed import Cluster
    from rpml.distributed.source import PartitionedRows
    from rpml.io.features import Features, ReadOptions

ENGINES = ("local", "dask")

Engine = Annotated[
    str, typer.Option(metavar="NAME", help="local, or dask for rows beyond one machine.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Dask scheduler, tcp://host:8786; else workers here."),
]
WorkerCount = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Worker processes that Dask starts here."),
]
PartitionRows = Annotated[
    int | None, typer.Option(min=1, help="Rows a partition on Dask; 64 MB if not given.")
]
Tls = Annotated[
    tuple[str, str, str] | None,
    typer.Option(metavar="CA CERT KEY", help="TLS files for --scheduler tls://host:8786."),
]


@dataclass(frozen=True)
class Workers:
    """The options that say where a command on Dask runs."""

    scheduler: str | None = None
    count: int | None = None
    threads: int | None = None
    memory_limit: int | None = None
    partition_rows: int | None = None
    tls: tuple[str, ...] = ()


def check_engine(engine: str, workers: Workers) -> bool:
    """Whether the engine is Dask; its options are refused with another one."""
    if engine not in ENGINES:
        raise InputError(f"--engine {engine}: use local or dask")
    if engine == "dask":
        local = {"--workers": workers.count, "--memory-limit": workers.memory_limit}
        given = [name for name, value in local.items() if value is not None]
        if workers.scheduler and given:
            raise InputError(f"{given[0]} is for workers started here: leave it out or --scheduler")
        return True
    if workers != Workers(threads=workers.threads, memory_limit=workers.memory_limit):
        raise InputError("--scheduler and the options of workers need --engine dask")
    return False


@contextmanager
def open_cluster(workers: Workers, console: Console) -> Iterator[Cluster]:
    """The user's cluster, or one on this machine until the block ends."""
    from rpml.distributed import Cluster

    security = None
    if workers.tls:
        names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
        security = dict(zip(names, workers.tls, strict=True))
    with Cluster(
        workers.scheduler,
        workers=workers.count,
        threads=workers.threads,
        memory_limit=workers.memory_limit or "auto",
        security=security,
    ) as cluster:
        known = cluster.workers()
        console.note(
            f"Dask: {len(known)} workers with {sum(known.values())} threads, "
            f"dashboard at {cluster.dashboard}"
        )
        yield cluster


def open_partitions(
    path: str, options: ReadOptions, cluster: Cluster, workers: Workers, console: Console
) -> tuple[Features, str]:
    """The rows as partitions on the workers, and the hash of their values."""
    from rpml.io.features import Features

    rows = open_on_dask(path, options, cluster, workers, console)
    values: Any = rows
    return Features(values, None, "id", rows.feature_names, path), rows.digest(cluster)


def open_on_dask(
    path: str,
    options: ReadOptions,
    cluster: Cluster,
    workers: Workers,
    console: Console,
    by_size: bool = False,
) -> PartitionedRows:
    """The rows as partitions on the workers."""
    from rpml.distributed import open_rows

    where = path if "://" in path else str(Path(path).absolute())
    cut = workers.partition_rows
    rows = open_rows(where, cluster, options=options, partition_rows=cut, by_size=by_size)
    console.note(
        f"{path}: {rows.count} rows of {rows.width} features, {rows.dtype}, "
        f"{len(rows.edges) - 1} partitions"
    )
    return rows
