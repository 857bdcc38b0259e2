"""rpml embed: apply a model to vectors, in bounded memory."""

from __future__ import annotations

from typing import Annotated

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.cli.models import check_features, load_model

EXAMPLES = """\b
Examples:
  rpml embed model.rpml vectors.npy -o small.npy
  rpml embed model.rpml new.parquet -o small.parquet --dim 32
  cat vectors.csv | rpml embed model.rpml - -o - > small.csv
  rpml embed model.rpml shards/ -o embedded/         (a folder of .npy parts)
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
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Embed vectors with a model, batch by batch, ids carried through."""
    opt.use_threads(threads)
    from rpml.context import Progress
    from rpml.data import Layout, check_table_output, open_features, open_writer
    from rpml.errors import InputError

    if output == "-" and json_output:
        raise InputError("-o - and --json cannot both have standard output")
    console = Console(quiet, json_output)
    check_table_output(output, force)
    fitted = load_model(model, dim)
    source = open_features(features, opt.read_options(columns, id_column, array))
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
