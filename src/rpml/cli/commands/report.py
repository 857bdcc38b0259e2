"""rpml report: one HTML file that shows whether the embedding helped."""

import shlex
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import EngineOptions, ItemOptions, LabeledReadingOptions, short_names
from rpml.runtime.errors import InputError, require

EXAMPLES = """
  rpml report model.rpml vectors.npy -o report.html
  rpml report model.rpml vectors.npy --labels labels.csv -o report.html
  rpml report old.rpml new.rpml vectors.npy --labels labels.csv -o report.html
  rpml report model.rpml birds.npz --images photos/ --ids names.txt -o report.html
  rpml report model.rpml vectors.parquet --nuisance language,length -o report.html
  rpml report model.rpml documents.npy --queries log.npy -o report.html
  rpml report model.rpml shards/ -o report.html --engine dask --scheduler tcp://host:8786
\b
The page opens offline from disk; nothing is loaded from the network.
"""


@command
def run(
    *,
    models: list[str] = opt.MODELS,
    features: str = opt.FEATURES,
    output: str = opt.output("REPORT", "The .html file to write."),
    rows: ItemOptions,
    queries: str | None = opt.QUERIES,
    seed: int = opt.SEED,
    force: bool = opt.FORCE,
    reading: LabeledReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Write a self-contained HTML report of an embedding.

    It holds a verdict, scores before and after, maps, neighbors and the training.
    """
    from rpml.runtime.files import check_output

    require("jinja2", "report", "rpml report")
    from rpml.pages.notebook import Report
    from rpml.pages.report.measurements import Measurements, Source
    from rpml.pages.report.page import build_report

    if not output.endswith((".html", ".htm")):
        raise InputError(f"--output {output}: the page is HTML, call it something.html")
    check_output(output, force, [*models, features, queries, *rows.inputs()])
    command = shlex.join(["rpml", *sys.argv[1:]])
    report = console.reporter()
    with ExitStack() as stack:
        opened = partial(engine.load, console, features)
        load = (lambda how: stack.enter_context(opened(how))) if engine.on_dask() else None
        fitted, values, items = rows.load(models, features, reading, queries=queries, load=load)
        first, *second = short_names(models)
        source = Source(first, Path(features).name, command, *second)
        page = build_report(Measurements(fitted, values, items, source, seed, report), report)
    Report(page).save(output, force)
    fields = {"output": output, "rows": len(items), "bytes": len(page.encode("utf8"))}
    console.result(fields, fields)
