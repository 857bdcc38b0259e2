"""rpml report: one HTML file that shows whether the embedding helped."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from rpml.cli import options as opt
from rpml.cli import rows
from rpml.cli.command import command
from rpml.cli.console import Console, fields_text

EXAMPLES = """\b
Examples:
  rpml report model.rpml vectors.npy -o report.html
  rpml report model.rpml vectors.npy --labels labels.csv -o report.html
  rpml report model.rpml birds.npz --images photos/ --ids names.txt -o report.html
\b
The page opens offline from disk; nothing is loaded from the network.
"""


@command
def run(
    model: opt.ModelPath,
    features: opt.Features,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="REPORT", help="The .html file to write.")
    ],
    labels: rows.Labels = None,
    images: rows.Images = None,
    ids: rows.Ids = None,
    seed: opt.Seed = 0,
    force: opt.Force = False,
    label_column: opt.LabelColumn = None,
    columns: opt.Columns = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Write a self-contained page: verdict, before and after, maps, neighbours, training."""
    opt.use_threads(threads)
    from rpml.runtime.atomic import atomic_output, check_output
    from rpml.runtime.extras import require

    require("jinja2", "report", "rpml report")
    from rpml.pages.report.build import Source, build_report

    console = Console(quiet, json_output)
    check_output(output, force)
    reading = rows.Reading(labels, images, ids, label_column, id_column)
    options = opt.read_options(columns, id_column, array, reading.excluded(features))
    fitted, values, items = reading.load(model, features, options)
    source = Source(Path(model).name, Path(features).name, shlex.join(["rpml", *sys.argv[1:]]))
    with console.reporter() as report:
        page = build_report(fitted, values, items, source, seed, report)
    with atomic_output(output, force) as temporary:
        temporary.write_text(page, encoding="utf8")
    fields = {"output": output, "rows": len(items), "bytes": len(page.encode("utf8"))}
    console.result(fields, fields_text(fields))
