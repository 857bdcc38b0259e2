"""rpml embed: apply a model to vectors, in bounded memory."""

from __future__ import annotations

from typing import Annotated

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.cli.engine import EngineOptions
from rpml.runtime.errors import InputError

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
    features: opt.FeaturesPath,
    output: Annotated[
        str, opt.output("OUT", "Output; the suffix sets the format, NAME/ writes shards, - CSV.")
    ],
    dim: opt.Dim = None,
    force: opt.Force = False,
    *,
    reading: opt.ReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Embed vectors with a model; ids are carried through."""
    from rpml.model import check_features, embed_file
    from rpml.runtime.context import Context

    if engine.on_dask():
        embed_on_dask(model, dim, features, output, force, reading, engine, console)
        return
    opt.check_table(output, force, console.json_output, [model, features])
    fitted = opt.load_model(model, dim)
    source = reading.open(features)
    check_features(fitted, source, model)
    with console.reporter() as report:
        rows = embed_file(fitted, source, output, force, Context(report=report))
    fields = {"output": output, "rows": rows, "dim": len(fitted.components_)}
    text = f"{output}: {rows} rows, {len(fitted.components_)} dimensions"
    console.result(fields, "" if output == "-" else text)


def embed_on_dask(
    model: str,
    dim: int | None,
    features: str,
    output: str,
    force: bool,
    reading: opt.ReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """One file per partition, written by the workers; a second run writes what is missing."""
    from rpml.distributed import embed
    from rpml.model import check_features
    from rpml.runtime.context import Context
    from rpml.runtime.outputs import check_apart

    if force:
        raise InputError("--force is not for --engine dask: remove the folder instead")
    if not output.endswith("/"):
        raise InputError(f"--engine dask writes a folder of parts: -o {output}/")
    check_apart([output], [model, features])
    fitted = opt.load_model(model, dim)
    with engine.cluster(console) as cluster, console.reporter() as report:
        rows = engine.open_rows(features, reading.options(), cluster, console, by_size=True)
        check_features(fitted, rows, model)
        kind = "parquet" if rows.pieces[0][0].path.endswith((".parquet", ".pq")) else "npy"
        files = embed(fitted, rows, output, cluster, kind=kind, context=Context(report=report))
    size = len(fitted.components_)
    fields = {"output": output, "rows": rows.count, "dim": size, "files": len(files)}
    console.result(fields, f"{output}: {rows.count} rows, {size} dimensions, {len(files)} files")
