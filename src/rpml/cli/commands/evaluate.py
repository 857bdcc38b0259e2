"""rpml evaluate: how well neighbors and clusters of vectors agree with labels."""

from functools import partial
from typing import Any

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import EngineOptions, LabeledReadingOptions, load_model
from rpml.runtime.errors import InputError, counted, text_table

_CLUSTERING = {"NMI": "nmi", "F": "f", "F precision": "precision", "F recall": "recall"}
EXAMPLES = """
  rpml evaluate vectors.npy --labels labels.npy
  rpml evaluate vectors.npy --labels labels.csv --model model.rpml
  rpml evaluate birds.parquet --label-column species --json
  rpml evaluate shards/ --labels labels.npy --engine dask --scheduler tcp://host:8786
"""


@command
def run(
    *,
    features: str = opt.FEATURES,
    labels: str | None = opt.LABELS,
    model: str | None = opt.text("MODEL", "Embed the vectors with this model first."),
    dim: int | None = opt.DIM,
    ks: str = opt.text("NUMBERS", "The K of Recall@K, comma-separated.", "--k", default="1,2,4,8"),
    metric: str = opt.text("NAME", "cosine or euclidean.", default="cosine"),
    clustering: bool = opt.flag("Also score k-means clusters; not with dask.", default=True),
    seed: int = opt.SEED,
    reading: LabeledReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Score vectors, or their embedding, against labels."""
    from rpml.estimator.features import check_features, load_embedded
    from rpml.evaluation.metrics import bounded_scores, kmeans_labels, recall_at_k
    from rpml.io.features.labels import labeled_mask
    from rpml.runtime.context import Context, Progress
    from rpml.runtime.intervals import bounded, share_interval

    if dim and model is None:
        raise InputError("--dim needs --model: it selects components of the model")
    opt.check_choice("--metric", metric, ("cosine", "euclidean"))
    if (path := reading.labels_path(features, labels)) is None:
        raise InputError("give the labels: --labels FILE, or --label-column NAME of FEATURES")
    fitted = None if model is None else load_model(model, dim)
    excluded, wanted = reading.excluded(features, path), opt.parse_numbers("--k", ks)
    scores: dict[str, float] = {}
    if engine.on_dask():
        from rpml.distributed import embedded, evaluate
        from rpml.distributed.apply import MAX_QUERIES

        read, by_id = reading.options(excluded), path != features
        with engine.load(console, features, read, by_id) as data:
            rows: Any = data.values
            y, run = reading.read_labels(path, data), Context(report=console.reporter())
            if fitted is not None:
                rows = embedded(check_features(fitted, rows, str(model)), rows, rows.cluster)
            recall = evaluate(rows, y, rows.cluster, ks=tuple(wanted), metric=metric, context=run)
        n, size, y = len(y), rows.n_features, y[labeled_mask(y)]
        queries = min(len(y), MAX_QUERIES)
    else:
        report, source = console.reporter(), reading.open(features, excluded)
        checked = fitted and check_features(fitted, source, str(model))
        data = source.load() if checked is None else load_embedded(checked, source)
        X, y, n = data.values, reading.read_labels(path, data), len(data.values)
        if not (labeled := labeled_mask(y)).all():
            X, y = X[labeled], y[labeled]

        def advance(stage: str, share: float) -> None:
            report(Progress(stage, round(share * len(y)), len(y)))

        recall = recall_at_k(X, y, wanted, metric, progress=partial(advance, "recall"))
        if clustering:
            found = kmeans_labels(X, y, seed, metric, progress=partial(advance, "kmeans"))
            scores = bounded_scores(found, y)
        size, queries = X.shape[1], len(y)
    if len(y) < n:
        console.note(
            f"{counted(n - len(y), 'row has', 'rows have')} no label: "
            f"only the {len(y):,} labeled ones count"
        )
    for k, share in recall.items():
        scores |= bounded(f"recall@{k}", share_interval(share, queries))
    about = {"rows": len(y), "unlabeled": n - len(y), "dim": size, "metric": metric}
    fields = {**about, **scores, "classes": len(set(y.tolist()))}
    named = {f"R@{k}": f"recall@{k}" for k in wanted}
    named |= {title: name for title, name in _CLUSTERING.items() if name in scores}
    columns = [["rows", f"{len(y):,}", "95%"], ["dim", str(size), ""]]
    for title, name in named.items():
        ends = [100 * scores[end] for end in (f"{name}_low", f"{name}_high") if end in scores]
        known = " to ".join(f"{end:.1f}" for end in ends)
        columns.append([title, f"{100 * scores[name]:.2f}", known])
    console.result(fields, text_table(zip(*columns, strict=True)))
