"""What is read: vectors, labels, ids, images, models; and checks of what is written."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpml.cli.options import LABELS, NUISANCE, check_choice, number, option_group, parse_names, text
from rpml.runtime.errors import InputError, counted

if TYPE_CHECKING:
    from rpml.cli.command import Console
    from rpml.distributed import Cluster
    from rpml.distributed.source import PartitionedRows
    from rpml.estimator import RPML
    from rpml.io.features import Features, FeatureSource, ReadOptions
    from rpml.pages.items import Items
    from rpml.runtime.rows import AnyArray, Array


@option_group
class ReadingOptions:
    """Which columns or which array of a file are the vectors."""

    columns: str | None = text("NAMES", "Feature columns, comma-separated; * matches any text.")
    id_column: str | None = text("NAME", "Column or array that holds the ids.")
    array: str | None = text("NAME", "Array of an .npz file to read.")

    def options(self, exclude: Iterable[str] = (), keep: Iterable[str] = ()) -> ReadOptions:
        """Return the readers' options; columns to `exclude` and to `keep` are not features."""
        from rpml.io.features import ReadOptions

        chosen = tuple(parse_names(self.columns) or ()) or None
        return ReadOptions(chosen, self.id_column, self.array, tuple(exclude), keep=tuple(keep))

    def open(
        self, path: str, exclude: Iterable[str] = (), keep: Iterable[str] = ()
    ) -> FeatureSource:
        from rpml.io.features import open_features

        return open_features(path, self.options(exclude, keep))


@option_group
class LabeledReadingOptions(ReadingOptions):
    """Which columns are the vectors, and which one the labels."""

    label_column: str | None = text("NAME", "Column or array that holds the labels.")

    def labels_path(self, features: str, labels: str | None) -> str | None:
        """Return the file with the labels: that of the vectors if only --label-column is given."""
        if labels is not None or not self.label_column:
            return labels
        if features.lower().endswith(".npy"):
            raise InputError(
                f"--label-column {self.label_column}: {features} has no columns; give a file of "
                "labels with --labels"
            )
        return features

    def excluded(self, path: str, labels: str | None) -> tuple[str, ...]:
        """Return the label column, if it is in the file of the vectors."""
        inside = self.labels_path(path, labels) == path
        return (self.label_column,) if self.label_column and inside else ()

    def read_values(self, path: str, data: Features, column: str | None = None) -> list[object]:
        """Read a value per row, matched by id or by order; None where it is missing."""
        from rpml.io.features.labels import read_values, without_missing

        if path == data.name and column is not None and column in data.columns:
            return without_missing(data.columns[column], path)
        return read_values(path, data, column, self.id_column or None, partial=True)

    def read_labels(self, path: str, data: Features) -> AnyArray:
        """Read the labels of some rows, at least one."""
        from rpml.io.features.labels import as_label_array, labeled_mask

        y = as_label_array(self.read_values(path, data, self.label_column))
        if not labeled_mask(y).any():
            raise InputError(f"{path}: no row has a label, every one is empty or -1")
        return y


def load_model(path: str, dim: int | None = None) -> RPML:
    """Load a model, with only its first `dim` components if given."""
    from rpml.estimator import RPML

    model = RPML.load(path)
    if dim is None:
        return model
    if dim > (size := len(model.components_)):
        raise InputError(f"--dim {dim} is more than the {counted(size, 'component')} of {path}")
    return model._first(dim)


def check_table(output: str, force: bool, json_output: bool, inputs: Iterable[str | None]) -> None:
    """Raise InputError, before any work, if a table cannot be written."""
    from rpml.io.features import check_table_output

    if output == "-" and json_output:
        raise InputError("-o - and --json cannot both write to standard output")
    check_table_output(output, force, inputs)


def check_text_table(output: str, force: bool, inputs: Iterable[str | None]) -> None:
    """Raise InputError, before any work, if a table of results cannot be written."""
    from rpml.runtime.files import check_output

    check_output(output, force, inputs)
    if not output.endswith((".csv", ".json", ".md")):
        raise InputError(f"--output {output}: the name must end in .csv, .json or .md")


def short_names(paths: Sequence[str]) -> list[str]:
    """Return file names, or whole paths if the names are equal."""
    names = [Path(path).name for path in paths]
    return names if len(set(names)) == len(names) else list(paths)


@option_group
class ItemOptions:
    """Labels, images and ids of the rows."""

    labels: str | None = LABELS
    images: str | None = text("DIR", "Images of the rows, matched by id.")
    ids: str | None = text("FILE", "One id per line, in row order.")
    texts: str | None = text("FILE", "Texts: a .txt, a table, or a text column of FEATURES.")
    nuisance: str | None = NUISANCE

    def load(
        self,
        models: Sequence[str],
        features: str,
        reading: LabeledReadingOptions,
        dim: int | None = None,
        queries: str | None = None,
        load: Callable[[str, ReadOptions], Features] | None = None,
    ) -> tuple[list[RPML], Array, Items]:
        """Load one or two models, the vectors and their items, checked against each other.

        `load` opens vectors on a cluster.
        """
        import numpy as np

        from rpml.cli.options.knowledge import nuisance_columns, read_nuisance_columns, read_queries
        from rpml.estimator.features import check_features
        from rpml.io.features import open_features
        from rpml.pages.items import make_items, read_ids, read_texts

        if len(models) > 2:
            raise InputError(f"at most two models can be compared, {len(models)} were given")
        fitted = [load_model(path, dim) for path in models]
        labels = reading.labels_path(features, self.labels)
        inside = nuisance_columns(self.nuisance)
        options = reading.options((*reading.excluded(features, labels), *inside))
        opened: Any = open_features(features, options) if load is None else load(features, options)
        checked = zip(fitted, models, strict=True)
        about = opened if load is None else opened.values
        fitted = [check_features(model, about, path) for model, path in checked]
        data: Features = opened.load() if load is None else opened
        n = len(data.values)
        names = data.ids if self.ids is None else read_ids(self.ids, n)
        named = data if names is None else replace(data, ids=np.asarray(names))
        y = None if labels is None else reading.read_labels(labels, named)
        texts = None if self.texts is None else read_texts(self.texts, named, features)
        known = self.nuisance and read_nuisance_columns(self.nuisance, named, reading)
        items = make_items(n, names, y, self.images, texts, known or None)
        if queries is not None:
            items = replace(items, queries=read_queries(queries, data, features, reading))
        return fitted, data.values, items


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


@option_group
class EngineOptions:
    """Run in this process, or on a Dask cluster."""

    engine: str = text("NAME", "local, or dask for rows beyond one machine.", default="local")
    scheduler: str | None = text("ADDRESS", "Such as tcp://host:8786; default: a local one.")
    workers: int | None = number("Worker processes that Dask starts here.")
    partition_rows: int | None = number("Rows per Dask partition; default: 256 MB of rows.")
    tls: tuple[str, str, str] | None = text("CA CERT KEY", "TLS files for tls://host:8786.")

    def on_dask(self, memory_limit: int | None = None) -> bool:
        """Whether the engine is Dask; InputError for options of the other engine."""
        check_choice("--engine", self.engine, ("local", "dask"))
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

    @contextmanager
    def load(
        self,
        console: Console,
        path: str,
        options: ReadOptions,
        ids: bool = True,
        memory_limit: int | None = None,
    ) -> Iterator[Features]:
        """Load the vectors; on Dask they are opened for the block, and the excluded columns read.

        There `ids` says whether they are needed.
        """
        if not self.on_dask(memory_limit):
            from rpml.io.features import open_features

            yield open_features(path, options).load()
            return
        from rpml.distributed import read_columns

        with self.cluster(console, memory_limit) as cluster:
            rows = self.open_rows(path, options, cluster, console)
            yield replace(read_columns(rows, options.exclude, ids), name=path)

    def open_rows(
        self,
        path: str,
        options: ReadOptions,
        cluster: Cluster,
        console: Console,
        by_size: bool = False,
    ) -> PartitionedRows:
        from rpml.distributed import open_rows

        address = path if "://" in path else str(Path(path).absolute())
        size = self.partition_rows
        rows = open_rows(address, cluster, options=options, partition_rows=size, by_size=by_size)
        console.note(
            f"{path}: {counted(len(rows), 'row')} of {counted(rows.n_features, 'feature')}, "
            f"{rows.dtype}, {counted(len(rows.edges) - 1, 'partition')}"
        )
        return rows
