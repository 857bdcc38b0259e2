"""rpml fit: learn an embedding from a file of vectors."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.cli import engine as where
from rpml.cli import links
from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, fields_text
from rpml.cli.job import Job
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.estimator import RPML
    from rpml.io.features import Features

EXAMPLES = """\b
Examples:
  rpml fit vectors.npy -o model.rpml
  rpml fit birds.parquet -o birds.rpml --dim 64 --id-column image
  rpml fit vectors.npy -o model.rpml --resume        (after an interruption)
  rpml fit vectors.npy -o model.rpml --labels few.csv --must-link pairs.csv
  rpml fit vectors.npy -o model.rpml --set whiten=1 --set sampler=hard
  rpml fit --config run.toml
  rpml fit shards/ -o model.rpml --engine dask --scheduler tcp://host:8786
"""


@command
def run(
    features: opt.Features,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="MODEL", help="Model file to write.")
    ],
    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Size of the embedding; 128, or fewer if X has fewer."),
    ] = None,
    seed: opt.Seed = 0,
    weight: Annotated[
        str | None, typer.Option(metavar="NAME", help="concat, bilinear or constant.")
    ] = None,
    solver: Annotated[
        str | None, typer.Option(metavar="NAME", help="cg, stochastic or gd.")
    ] = None,
    neighbors: Annotated[int | None, typer.Option(min=1, help="Neighbours in the graph.")] = None,
    max_iter: Annotated[int | None, typer.Option(min=0, help="Most iterations.")] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Every setting as the paper prints it.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of RPML."),
    ] = None,
    pseudo_labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Clusters to learn from, instead of our own."),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Which rows show the same thing: a value a row."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A few true labels; empty or -1 where there is none."),
    ] = None,
    label_column: opt.LabelColumn = None,
    must_link: links.MustLink = None,
    cannot_link: links.CannotLink = None,
    closer: links.Closer = None,
    conflicts: links.Conflicts = "raise",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted fit of the same output.")
    ] = False,
    force: opt.Force = False,
    checkpoint: Annotated[
        bool, typer.Option(help="Keep finished stages beside the output until it is done.")
    ] = True,
    columns: opt.Columns = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    engine: where.Engine = "local",
    scheduler: where.Scheduler = None,
    workers: where.WorkerCount = None,
    partition_rows: where.PartitionRows = None,
    tls: where.Tls = None,
    threads: opt.Threads = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most memory to take, on Dask each worker: 800MB, 4GB."),
    ] = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Learn an embedding from vectors without labels, and write it as a model file."""
    opt.use_threads(threads)
    console = Console(quiet, json_output)
    limit = opt.parse_size(memory_limit, "--memory-limit")
    given = {
        "n_components": dim,
        "random_state": seed,
        "weight": weight,
        "solver": solver,
        "n_neighbors": neighbors,
        "max_iter": max_iter,
        "memory_limit": limit if engine == "local" else None,
    }
    target = check_model_output(output, force or resume)
    place = where.Workers(scheduler, workers, threads, limit, partition_rows, tls or ())
    on_dask = where.check_engine(engine, place)
    model = build(given, settings or [], paper, on_dask)
    reading = opt.read_options(columns, id_column, array)
    files = {
        "features": features,
        "groups": groups,
        "labels": labels,
        "pseudo_labels": pseudo_labels,
        "must_link": must_link,
        "cannot_link": cannot_link,
        "closer": closer,
    }
    used = {name: path and os.path.basename(path) for name, path in files.items()}
    used.update(columns=columns, id_column=id_column, array=array, label_column=label_column)
    with ExitStack() as stack:
        side: dict[str, Any] = {}
        if on_dask:
            side["cluster"] = stack.enter_context(where.open_cluster(place, console))
            source = (features, reading, side["cluster"], place, console)
            data, digest = where.open_partitions(*source)
        else:
            data, digest = load(features, reading, console), None
        add_sides(model, side, data, files, label_column)
        side |= links.read_constraints(files, data, side.get("y"), conflicts)
        job = Job(target, data, model, console, used, side, digest)
        finish(job, resume, force, checkpoint)


def add_sides(
    model: RPML,
    side: dict[str, Any],
    data: Features,
    files: dict[str, str | None],
    label_column: str | None,
) -> None:
    """Read the files that come with the features: clusters, groups, labels."""
    if files["pseudo_labels"] is not None:
        model.set_params(clustering=read_side(files["pseudo_labels"], data))
    if files["groups"] is not None:
        side["groups"] = read_side(files["groups"], data)
    if files["labels"] is not None:
        model.set_params(use_labels=True)
        side["y"] = read_side(files["labels"], data, label_column)


def finish(job: Job, resume: bool, force: bool, checkpoint: bool) -> None:
    """Run what is left to do and print the result."""
    if resume and job.already_done():
        job.console.result(job.summary(), f"{job.target} is already complete")
        return
    if resume and not force:
        job.check_resumable()
    job.open_checkpoint(resume, force, checkpoint)
    job.fit()
    job.console.result(job.summary(), fields_text(job.summary()))


def check_model_output(output: str, may_exist: bool) -> Path:
    """Refuse an output that exists, that cannot be written, or that looks like data."""
    from rpml.io.features.reading import SUFFIXES
    from rpml.runtime.atomic import check_output

    if Path(output).suffix.lower() in SUFFIXES:
        raise InputError(f"{output} is the name of a data file: call the model something.rpml")
    target = check_output(output, may_exist)
    if target.is_dir():
        raise InputError(f"{output} is a folder: give the model a file name")
    return target


def build(given: dict[str, Any], pairs: list[str], paper: bool, on_dask: bool) -> RPML:
    """The estimator with the settings of the command line, checked before any data is read."""
    from rpml.estimator import RPML

    kind = RPML
    if on_dask:
        from rpml.distributed import DaskRPML

        kind = DaskRPML
    chosen = {name: value for name, value in given.items() if value is not None}
    known = {k: v for k, v in RPML().get_params(deep=False).items() if k != "callback"}
    chosen.update(opt.parse_settings(pairs, known, "--set"))
    model = kind.paper(**chosen) if paper else kind(**chosen)
    model._validate_params()
    return model


def load(path: str, options: Any, console: Console) -> Features:
    """All rows, reported as they are read."""
    from rpml.io.features import open_features
    from rpml.runtime.context import Progress

    source = open_features(path, options)
    with console.reporter() as reporter:
        reporter(Progress("read", 0, 1))
        data = source.load()
        reporter(Progress("read", 1, 1))
    rows, width = data.values.shape
    console.note(f"{data.name}: {rows} rows of {width} features, {data.values.dtype}")
    return data


def read_side(path: str, data: Features, column: str | None = None) -> Any:
    """A value a row from another file (clusters, groups, labels); missing where there is none."""
    from rpml.io.features import read_labels

    return read_labels(path, len(data.values), data.ids, column, partial=True)
