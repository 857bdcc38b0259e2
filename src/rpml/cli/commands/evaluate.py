"""rpml evaluate: how well neighbors and clusters of vectors agree with labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.cli.options.engine import EngineOptions
from rpml.cli.options.reading import LabeledReadingOptions, load_model
from rpml.runtime.errors import InputError
from rpml.runtime.wording import counted, text_table

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from rpml.runtime.context import Json

_CLUSTERING = {"NMI": "nmi", "F": "f", "F precision": "precision", "F recall": "recall"}
EXAMPLES = """\b
Examples:
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
    clustering: bool = opt.flag("Also score k-means clusters.", default=True),
    seed: int = opt.SEED,
    reading: LabeledReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Score vectors, or their embedding, against labels."""
    if dim is not None and model is None:
        raise InputError("--dim needs --model: it selects components of the model")
    path = reading.labels_path(features, labels)
    if path is None:
        raise InputError("give the labels: --labels FILE, or --label-column NAME of FEATURES")
    task = Task(features, path, reading, model, parse_ks(ks), metric, dim)
    if engine.on_dask():
        scores = task.run_on_dask(engine, console)
    else:
        scores = task.run(seed if clustering else None, console)
    if scores.unlabeled:
        console.note(
            f"{counted(scores.unlabeled, 'row has', 'rows have')} no label: "
            f"only the {len(scores.labels):,} labeled ones count"
        )
    console.result(scores.fields(metric), scores.as_table())


@dataclass(frozen=True)
class Scores:
    """Scores of the labeled rows."""

    labels: NDArray[np.generic]
    unlabeled: int
    dim: int
    recall: dict[int, float]
    clustering: dict[str, float] = field(default_factory=dict)
    queries: int | None = None
    """How many of the rows were searched for; None: all."""

    def fields(self, metric: str) -> Json:
        """Return Recall@K with its 95% interval over the labeled rows, and the other scores."""
        from rpml.runtime.intervals import bounded, share_interval

        recall: dict[str, object] = {}
        for k, share in self.recall.items():
            interval = share_interval(share, self.queries or len(self.labels))
            recall |= bounded(f"recall@{k}", interval)
        return {
            "rows": len(self.labels),
            "unlabeled": self.unlabeled,
            "classes": len(set(self.labels.tolist())),
            "dim": self.dim,
            "metric": metric,
            **recall,
            **self.clustering,
        }

    def as_table(self) -> str:
        """Format percentages, one column per score, with 95% intervals below where known."""
        figures = self.fields("")
        named = {f"R@{k}": f"recall@{k}" for k in self.recall}
        named |= {title: name for title, name in _CLUSTERING.items() if name in figures}
        row = [f"{100 * figures[name]:.2f}" for name in named.values()]
        below = [
            f"{100 * figures[f'{name}_low']:.1f} to {100 * figures[f'{name}_high']:.1f}"
            if f"{name}_low" in figures
            else ""
            for name in named.values()
        ]
        head = [f"{len(self.labels):,}", str(self.dim)]
        return text_table([["rows", "dim", *named], [*head, *row], ["95%", "", *below]])


@dataclass(frozen=True)
class Task:
    """The vectors to score, and the scores."""

    features: str
    labels: str
    reading: LabeledReadingOptions
    model: str | None
    ks: list[int]
    metric: str
    dim: int | None

    def run(self, seed: int | None, console: Console) -> Scores:
        """Score in this process; with a seed also k-means clusters."""
        from rpml.estimator.features import check_features, load_embedded
        from rpml.evaluation.metrics import bounded_scores, kmeans_labels, recall_at_k
        from rpml.runtime.context import Progress

        source = self.reading.open(self.features, self._excluded())
        if self.model is None:
            data = source.load()
        else:
            fitted = load_model(self.model, self.dim)
            data = load_embedded(check_features(fitted, source, self.model), source)
        X, y = self.reading.labeled_rows(self.labels, data)
        with console.reporter() as report:

            def advance(stage: str) -> Callable[[float], None]:
                return lambda share: report(Progress(stage, round(share * len(y)), len(y)))

            recall = recall_at_k(X, y, self.ks, self.metric, progress=advance("recall"))
            clusters = {}
            if seed is not None:
                shared = kmeans_labels(X, y, seed, self.metric, progress=advance("kmeans"))
                clusters = bounded_scores(shared, y)
        return Scores(y, len(data.values) - len(y), X.shape[1], recall, clusters)

    def run_on_dask(self, engine: EngineOptions, console: Console) -> Scores:
        """Score on a Dask cluster, without k-means."""
        from rpml.distributed import embedded, evaluate
        from rpml.distributed.evaluation import MAX_QUERIES
        from rpml.estimator.features import check_features
        from rpml.io.features.labels import labeled_mask, read_labels
        from rpml.runtime.context import Context

        options, column = self.reading.options(self._excluded()), self.reading.label_column
        with engine.cluster(console) as cluster, console.reporter() as report:
            rows = engine.open_rows(self.features, options, cluster, console)
            inside = "" if self.labels == self.features else None  # by order within one file
            y = read_labels(self.labels, rows.count, None, column, inside, partial=True)
            if self.model is not None:
                fitted = load_model(self.model, self.dim)
                rows = embedded(check_features(fitted, rows, self.model), rows, cluster)
            context = Context(report=report)
            recall = evaluate(
                rows, y, cluster, ks=tuple(self.ks), metric=self.metric, context=context
            )
        labels = y[labeled_mask(y)]
        queries = min(len(labels), MAX_QUERIES)
        return Scores(labels, len(y) - len(labels), rows.n_features, recall, queries=queries)

    def _excluded(self) -> tuple[str, ...]:
        return self.reading.excluded(self.features, self.labels)


def parse_ks(text: str) -> list[int]:
    """Parse comma-separated positive integers."""
    try:
        ks = [int(k) for k in text.split(",")]
    except ValueError:
        ks = []
    if not ks or min(ks) < 1:
        raise InputError(f"--k must be positive integers such as 1,2,4, got {text!r}")
    return ks
