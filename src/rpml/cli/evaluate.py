"""rpml evaluate: how well neighbours and clusters of vectors agree with labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, table
from rpml.cli.engine import EngineOptions
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from rpml.runtime.rows import Array

EXAMPLES = """\b
Examples:
  rpml evaluate vectors.npy --labels labels.npy
  rpml evaluate vectors.npy --labels labels.csv --model model.rpml
  rpml evaluate birds.parquet --labels birds.parquet --label-column species --json
  rpml evaluate shards/ --labels labels.npy --engine dask --scheduler tcp://host:8786
"""


@command
def run(
    features: opt.FeaturesPath,
    labels: Annotated[
        str, opt.text("FILE", "One label per row: .npy, .npz, .csv, .tsv, .txt or .parquet.")
    ],
    model: Annotated[
        str | None, opt.text("MODEL", "Embed the vectors with this model first.")
    ] = None,
    dim: opt.Dim = None,
    ks: Annotated[
        str, opt.text("NUMBERS", "The K of Recall@K, comma-separated.", "--k")
    ] = "1,2,4,8",
    metric: Annotated[str, opt.text("NAME", "cosine or euclidean.")] = "cosine",
    clustering: Annotated[bool, opt.flag("Also score k-means clusters.")] = True,
    seed: opt.Seed = 0,
    *,
    reading: opt.LabeledReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Score vectors, or their embedding, against labels."""
    from rpml.estimator import check_features, load_embedded

    wanted = parse_ks(ks)
    on_dask = engine.on_dask()
    if dim is not None and model is None:
        raise InputError("--dim needs --model: it selects components of the model")
    fitted = None if model is None else opt.load_model(model, dim)
    excluded = reading.excluded(features, labels)
    scores: dict[str, float] = {}
    unlabeled = 0
    if on_dask:
        from rpml.distributed import embedded, evaluate
        from rpml.io.features import read_labels
        from rpml.runtime.context import Context

        with engine.cluster(console) as cluster, console.reporter() as report:
            rows = engine.open_rows(features, reading.options(excluded), cluster, console)
            if fitted is not None:
                check_features(fitted, rows, str(model))
            y = read_labels(labels, rows.count, None, reading.label_column)
            if fitted is not None:
                rows = embedded(fitted, rows, cluster)
            told = Context(report=report)
            recall = evaluate(rows, y, cluster, ks=tuple(wanted), metric=metric, context=told)
        width = rows.width
    else:
        source = reading.open(features, excluded)
        if fitted is None:
            data = source.load()
        else:
            check_features(fitted, source, str(model))
            data = load_embedded(fitted, source)
        width = data.values.shape[1]
        values, y = reading.labeled_rows(labels, data)
        unlabeled = len(data.values) - len(y)
        recall, scores = measure(values, y, wanted, metric, seed if clustering else None, console)
    fields = {
        "rows": len(y),
        "unlabeled": unlabeled,
        "classes": len(set(y.tolist())),
        "dim": width,
        "metric": metric,
        "recall_at_k": {str(k): v for k, v in recall.items()},
        **scores,
    }
    if unlabeled:
        console.note(f"{unlabeled:,} rows have no label: only the {len(y):,} labeled ones count")
    console.result(fields, as_table(len(y), width, recall, scores))


def measure(
    X: Array, y: NDArray[np.generic], ks: list[int], metric: str, seed: int | None, console: Console
) -> tuple[dict[int, float], dict[str, float]]:
    """Recall@K and, with a seed, the scores of k-means clusters."""
    from rpml.evaluation.metrics import clustering_scores, recall_at_k
    from rpml.runtime.context import Progress

    with console.reporter() as report:

        def advance(stage: str) -> Callable[[float], None]:
            return lambda share: report(Progress(stage, round(share * len(y)), len(y)))

        recall = recall_at_k(X, y, ks, metric, progress=advance("recall"))
        if seed is None:
            return recall, {}
        return recall, clustering_scores(X, y, seed, metric, progress=advance("kmeans"))


def as_table(rows: int, dim: int, recall: dict[int, float], scores: dict[str, float]) -> str:
    """Percentages, one column per score."""
    head = ["rows", "dim", *(f"R@{k}" for k in recall), *(name.upper() for name in scores)]
    values = [*recall.values(), *scores.values()]
    row = [str(rows), str(dim), *(f"{100 * v:.2f}" for v in values)]
    return table([head, row])


def parse_ks(text: str) -> list[int]:
    """1,2,4 as numbers."""
    try:
        ks = [int(k) for k in text.split(",")]
    except ValueError:
        ks = []
    if not ks or min(ks) < 1:
        raise InputError(f"--k must be positive integers such as 1,2,4, got {text!r}")
    return ks
