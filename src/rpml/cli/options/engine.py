"""--engine dask: options for running on a cluster."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rpml.cli import options as opt
from rpml.runtime.errors import InputError
from rpml.runtime.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpml.cli.console import Console
    from rpml.distributed import Cluster
    from rpml.distributed.source import PartitionedRows
    from rpml.io.features import ReadOptions


@contextmanager
def _quiet_loggers(*packages: str) -> Iterator[None]:
    """Log only what is critical: a lost scheduler is an error of the command, not a traceback."""
    names = [n for n in logging.root.manager.loggerDict if n.partition(".")[0] in packages]
    levels = {logger: logger.level for logger in map(logging.getLogger, (*packages, *names))}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@opt.option_group
class EngineOptions:
    """Run in this process, or on a Dask cluster."""

    engine: str = opt.text("NAME", "local, or dask for rows beyond one machine.", default="local")
    scheduler: str | None = opt.text(
        "ADDRESS", "Dask scheduler, such as tcp://host:8786; default: a local one."
    )
    workers: int | None = opt.number("Worker processes that Dask starts here.")
    partition_rows: int | None = opt.number("Rows per Dask partition; default: 256 MB of rows.")
    tls: tuple[str, str, str] | None = opt.text(
        "CA CERT KEY", "TLS files for --scheduler tls://host:8786."
    )

    def on_dask(self, memory_limit: int | None = None) -> bool:
        """Whether the engine is Dask; InputError for options of the other engine."""
        opt.check_choice("--engine", self.engine, ("local", "dask"))
        if self.engine == "local" and self != EngineOptions():
            raise InputError("--scheduler and the options of workers need --engine dask")
        if self.engine == "dask" and self.scheduler and (self.workers or memory_limit):
            unused = "--workers" if self.workers else "--memory-limit"
            raise InputError(f"{unused} is for workers started here: omit it or --scheduler")
        return self.engine == "dask"

    @contextmanager
    def cluster(self, console: Console, memory_limit: int | None = None) -> Iterator[Cluster]:
        """Connect to the user's cluster, or start one on this machine for the block."""
        from rpml.distributed import Cluster

        names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
        with (
            _quiet_loggers("distributed", "asyncio", "tornado"),
            Cluster(
                self.scheduler,
                workers=self.workers,
                threads=console.threads,
                memory_limit=memory_limit or "auto",
                security=dict(zip(names, self.tls, strict=True)) if self.tls else None,
            ) as cluster,
        ):
            workers = cluster.workers()
            console.note(
                f"Dask: {counted(len(workers), 'worker')} with "
                f"{counted(sum(workers.values()), 'thread')}, "
                f"dashboard at {cluster.dashboard}"
            )
            yield cluster

    def open_rows(
        self,
        path: str,
        options: ReadOptions,
        cluster: Cluster,
        console: Console,
        by_size: bool = False,
    ) -> PartitionedRows:
        """Open the rows as partitions on the workers."""
        from rpml.distributed import open_rows

        address = path if "://" in path else str(Path(path).absolute())
        size = self.partition_rows
        rows = open_rows(address, cluster, options=options, partition_rows=size, by_size=by_size)
        console.note(
            f"{path}: {counted(rows.count, 'row')} of {counted(rows.n_features, 'feature')}, "
            f"{rows.dtype}, {counted(len(rows.edges) - 1, 'partition')}"
        )
        return rows
