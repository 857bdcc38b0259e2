"""rpml embed: apply a model to vectors, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.cli.engine import EngineOptions
from rpml.cli.models import check_features, load_model
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.distributed import Cluster
    from rpml.distributed.source import PartitionedRows
    from rpml.estimator import RPML

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
    threads: opt.Threads = None,
    *,
    reading: opt.ReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Embed vectors with a model, batch by batch; ids are carried through."""
    opt.use_threads(threads)
    from rpml.io.features import check_table_output

    opt.check_stdout(output, console.json_output)
    if not engine.on_dask():
        check_table_output(output, force)
        embed(load_model(model, dim), model, reading.open(features), output, force, console)
        return
    if force:
        raise InputError("--force is not for --engine dask: remove the folder instead")
    if not output.endswith("/"):
        raise InputError(f"--engine dask writes a folder of parts: -o {output}/")
    fitted = load_model(model, dim)
    with engine.cluster(console, threads) as cluster:
        rows = engine.open_rows(features, reading.options(), cluster, console, by_size=True)
        check_features(fitted, rows, model)
        embed_partitions(fitted, rows, output, cluster, console)


def embed(
    fitted: RPML, model: str, source: Any, output: str, force: bool, console: Console
) -> None:
    """One batch at a time, in this process."""
    from rpml.io.features import Layout, open_writer
    from rpml.runtime.context import Progress

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
    text = f"{output}: {rows} rows, {fields['dim']} dimensions"
    console.result(fields, "" if output == "-" else text)


def embed_partitions(
    fitted: RPML, rows: PartitionedRows, output: str, cluster: Cluster, console: Console
) -> None:
    """One file per partition, written by the workers; a second run writes what is missing."""
    from rpml.distributed import embed
    from rpml.runtime.context import Context

    kind = "parquet" if rows.pieces[0][0].path.endswith((".parquet", ".pq")) else "npy"
    with console.reporter() as report:
        files = embed(fitted, rows, output, cluster, kind=kind, context=Context(report=report))
    size = len(fitted.components_)
    fields = {"output": output, "rows": rows.count, "dim": size, "files": len(files)}
    text = f"{output}: {rows.count} rows, {size} dimensions, {len(files)} files"
    console.result(fields, text)
