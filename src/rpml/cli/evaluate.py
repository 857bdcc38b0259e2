"""rpml evaluate: how well neighbours and clusters of vectors agree with labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.cli import engine as where
from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, table
from rpml.cli.models import check_features, load_model

if TYPE_CHECKING:
    from rpml.io.features import Features, ReadOptions

EXAMPLES = """\b
Examples:
  rpml evaluate vectors.npy --labels labels.npy
  rpml evaluate vectors.npy --labels labels.csv --model model.rpml
  rpml evaluate birds.parquet --labels birds.parquet --label-column species --json
  rpml evaluate shards/ --labels labels.npy --engine dask --scheduler tcp://host:8786
"""


@command
def run(
    features: opt.Features,
    labels: Annotated[
        str,
        typer.Option(metavar="Y", help="Labels: .npy, .npz, .csv, .tsv, .txt or .parquet."),
    ],
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Embed the vectors with it first.")
    ] = None,
    dim: Annotated[
        int | None, typer.Option(min=1, help="Only the first components of the model.")
    ] = None,
    ks: Annotated[
        str, typer.Option("--k", metavar="NUMBERS", help="The K of Recall@K, by comma.")
    ] = "1,2,4,8",
    metric: Annotated[str, typer.Option(metavar="NAME", help="cosine or euclidean.")] = "cosine",
    clustering: Annotated[bool, typer.Option(help="Also score k-means clusters.")] = True,
    seed: opt.Seed = 0,
    label_column: opt.LabelColumn = None,
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
    """Score vectors, or a model's embedding of them, against labels."""
    opt.use_threads(threads)
    from rpml.evaluation.metrics import clustering_scores, recall_at_k
    from rpml.runtime.context import Progress

    console = Console(quiet, json_output)
    wanted = parse_ks(ks)
    excluded = (label_column,) if label_column and labels == features else ()
    reading = opt.read_options(columns, id_column, array, excluded)
    place = where.Workers(scheduler, workers, threads, None, partition_rows, tls or ())
    if where.check_engine(engine, place):
        known = (labels, label_column)
        fields = on_dask((features, reading), known, (model, dim), (wanted, metric), place, console)
        console.result(fields, as_table(fields, {}))
        return
    data = read(features, reading, model, dim)
    from rpml.io.features import read_labels

    y = read_labels(labels, len(data.values), data.ids, label_column, id_column)
    scores = {}
    with console.reporter() as report:

        def advance(stage: str) -> Callable[[float], None]:
            return lambda share: report(Progress(stage, round(share * len(y)), len(y)))

        recall = recall_at_k(data.values, y, wanted, metric, progress=advance("recall"))
        if clustering:
            show = advance("kmeans")
            scores = clustering_scores(data.values, y, seed, metric, progress=show)
    fields = {
        "rows": len(y),
        "classes": len(set(y.tolist())),
        "dim": data.values.shape[1],
        "metric": metric,
        "recall_at_k": {str(k): v for k, v in recall.items()},
        **scores,
    }
    console.result(fields, as_table(fields, scores))


def on_dask(
    source: tuple[str, ReadOptions],
    known: tuple[str, str | None],
    model: tuple[str | None, int | None],
    asked: tuple[list[int], str],
    place: where.Workers,
    console: Console,
) -> dict[str, Any]:
    """Recall@K by the neighbours that the workers find; k-means scores are for one machine."""
    from rpml.distributed import evaluate
    from rpml.io.features import read_labels
    from rpml.runtime.context import Context

    path, dim = model
    fitted = None if path is None else load_model(path, dim)
    ks, metric = asked
    with where.open_cluster(place, console) as cluster, console.reporter() as report:
        rows = where.open_on_dask(*source, cluster, place, console)
        if fitted is not None and path is not None:
            check_features(fitted, rows, path)
        y = read_labels(known[0], rows.count, None, known[1])
        listener = Context(report=report)
        recall = evaluate(
            rows, y, cluster, ks=tuple(ks), metric=metric, model=fitted, context=listener
        )
    return {
        "rows": rows.count,
        "classes": len(set(y.tolist())),
        "dim": rows.width if fitted is None else len(fitted.components_),
        "metric": metric,
        "recall_at_k": {str(k): v for k, v in recall.items()},
    }


def as_table(fields: dict[str, Any], scores: dict[str, float]) -> str:
    """Percentages, one column a score."""
    recall = fields["recall_at_k"]
    head = ["rows", "dim", *(f"R@{k}" for k in recall), *(name.upper() for name in scores)]
    values = [*recall.values(), *scores.values()]
    row = [str(fields["rows"]), str(fields["dim"]), *(f"{100 * v:.2f}" for v in values)]
    return table([head, row])


def parse_ks(text: str) -> list[int]:
    """1,2,4 as numbers."""
    from rpml.runtime.errors import InputError

    try:
        ks = [int(k) for k in text.split(",")]
    except ValueError:
        ks = []
    if not ks or min(ks) < 1:
        raise InputError(f"--k must be positive numbers such as 1,2,4, got {text!r}")
    return ks


def read(features: str, options: Any, model: str | None, dim: int | None) -> Features:
    """The vectors, embedded batch by batch if there is a model."""
    from dataclasses import replace

    import numpy as np

    from rpml.io.features import open_features
    from rpml.runtime.errors import InputError

    source = open_features(features, options)
    if model is None:
        if dim is not None:
            raise InputError("--dim needs --model: it cuts the model's components")
        return source.load()
    fitted = load_model(model, dim)
    check_features(fitted, source, model)
    batches = [replace(b, values=fitted.transform(b.values)) for b in source.batches()]
    values = np.concatenate([b.values for b in batches])
    ids = [b.ids for b in batches if b.ids is not None]
    return source._features(values, np.concatenate(ids) if ids else None)
