"""rpml embed: apply a model to vectors, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rpml.cli import engine as where
from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.cli.models import check_features, load_model

if TYPE_CHECKING:
    from rpml.io.features import ReadOptions

EXAMPLES = """\b
Examples:
  rpml embed model.rpml vectors.npy -o small.npy
  rpml embed model.rpml new.parquet -o small.parquet --dim 32
  cat vectors.csv | rpml embed model.rpml - -o - > small.csv
  rpml embed model.rpml shards/ -o embedded/         (a folder of .npy parts)
  rpml embed model.rpml shards/ -o embedded/ --engine dask --scheduler tcp://host:8786
"""


@command
def run(
    model: opt.ModelPath,
    features: opt.Features,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where to write: the suffix is the kind; NAME/ for shards, - for CSV.",
        ),
    ],
    dim: Annotated[
        int | None, typer.Option(min=1, help="Only the first components of the model.")
    ] = None,
    force: opt.Force = False,
    columns: opt.Columns = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    engine: where.Engine = "local",
    scheduler: where.Scheduler = None,
    workers: where.WorkerCount = None,
    partition_rows: where.PartitionRows = None,
    tls: where.Tls = None,
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Embed vectors with a model, batch by batch, ids carried through."""
    opt.use_threads(threads)
    from rpml.io.features import Layout, check_table_output, open_features, open_writer
    from rpml.runtime.context import Progress
    from rpml.runtime.errors import InputError

    if output == "-" and json_output:
        raise InputError("-o - and --json cannot both have standard output")
    console = Console(quiet, json_output)
    place = where.Workers(scheduler, workers, threads, None, partition_rows, tls or ())
    reading = opt.read_options(columns, id_column, array)
    if where.check_engine(engine, place):
        if force:
            raise InputError("--force is not for --engine dask: remove the folder instead")
        on_dask(model, dim, features, reading, output, place, console)
        return
    check_table_output(output, force)
    fitted = load_model(model, dim)
    source = open_features(features, reading)
    check_features(fitted, source, model)
    id_name = source.id_name if source.has_ids else None
    layout = Layout("embedding", [str(n) for n in fitted.get_feature_names_out()], id_name)
    rows = 0
    with open_writer(output, layout, force) as writer, console.reporter() as report:
        for batch in source.batches():
            writer.write(fitted.transform(batch.values), batch.ids)
            rows = batch.start + len(batch.values)
            report(Progress("embed", rows, source.n_rows or 0))
    fields = {"output": output, "rows": rows, "dim": len(fitted.components_)}
    text = "" if output == "-" else f"{output}: {rows} rows of {fields['dim']}"
    console.result(fields, text)


def on_dask(
    model: str,
    dim: int | None,
    features: str,
    reading: ReadOptions,
    output: str,
    place: where.Workers,
    console: Console,
) -> None:
    """A file a partition, written by the workers; called again it writes what is missing."""
    from rpml.runtime.context import Context
    from rpml.runtime.errors import InputError

    if not output.endswith("/"):
        raise InputError(f"--engine dask writes a folder of parts: -o {output}/")
    fitted = load_model(model, dim)
    from rpml.distributed import embed

    with where.open_cluster(place, console) as cluster, console.reporter() as report:
        rows = where.open_on_dask(features, reading, cluster, place, console, by_size=True)
        check_features(fitted, rows, model)
        parquet = rows.pieces[0][0].path.endswith((".parquet", ".pq"))
        context = Context(report=report)
        files = embed(
            fitted, rows, output, cluster, kind="parquet" if parquet else "npy", context=context
        )
    size = len(fitted.components_)
    fields = {"output": output, "rows": rows.count, "dim": size, "files": len(files)}
    console.result(fields, f"{output}: {rows.count} rows of {size} in {len(files)} files")
