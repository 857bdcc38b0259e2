"""rpml suggest: which rows to label next."""

from __future__ import annotations

from typing import Annotated

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.cli.models import check_features, load_model

EXAMPLES = """\b
Examples:
  rpml suggest model.rpml -n 50 -o ask.csv
  rpml suggest model.rpml -n 50 -o ask.csv --features birds.parquet --id-column image
  rpml fit birds.parquet -o better.rpml --labels answered.csv
"""


@command
def run(
    model: opt.ModelPath,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="Where to write; - for CSV.")
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many rows.")] = 20,
    features: Annotated[
        str | None,
        typer.Option(metavar="FEATURES", help="The vectors fitted on: better choice, ids."),
    ] = None,
    force: opt.Force = False,
    columns: opt.Columns = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Rank the rows a model was fitted on by what their label would tell, row numbers from 0."""
    from rpml.io.features import Layout, check_table_output, open_features, write_table
    from rpml.runtime.errors import InputError

    if output == "-" and json_output:
        raise InputError("-o - and --json cannot both have standard output")
    console = Console(quiet, json_output)
    check_table_output(output, force)
    fitted = load_model(model)
    X, ids, name = None, None, None
    if features is not None:
        source = open_features(features, opt.read_options(columns, id_column, array))
        check_features(fitted, source, model)
        data = source.load()
        if len(data.values) != len(fitted.labels_):
            raise InputError(
                f"{features} has {len(data.values)} rows, {model} was fitted on "
                f"{len(fitted.labels_)}: pass the file it was fitted on"
            )
        X = data.values
        if data.ids is not None:
            ids, name = data.ids, data.id_name
    rows = fitted.suggest_labels(count, X)
    of_rows = None if ids is None else ids[rows]
    write_table(output, rows, Layout("row", ["row"], name, False), of_rows, force)
    fields = {"output": output, "rows": rows.tolist()}
    console.result(fields, "" if output == "-" else f"{output}: {len(rows)} rows to label")
