"""Fits on the training classes without labels, scored on the test classes, and their table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from rpml.evaluation.metrics import clustering_scores, recall_at_k
from rpml.evaluation.protocol.descriptors import Descriptors
from rpml.evaluation.protocol.published import PublishedRow
from rpml.evaluation.registry import Method, chosen_methods
from rpml.evaluation.split import make_split
from rpml.runtime.context import Context, Json, Progress
from rpml.runtime.rows import Array
from rpml.runtime.schema import COUNT, ArraySpec, Number, Schema
from rpml.runtime.wording import one_line

DEFAULT_METHODS = (
    *("raw", "whitened-512", "random", "pca", "half-whitened", "pca-whitened"),
    *("rpml", "rpml-bilinear", "srpml-random", "paper", "paper-stochastic"),
)
_CLUSTER = (("NMI", "nmi"), ("F", "f"), ("P", "precision"), ("R", "recall"))
PUBLISHED, MEASURED = "published", "measured"
LEARNED = "rpml"  # the row whose embedding the figures show


@dataclass(frozen=True)
class MeasuredRow:
    """One measured row; scores are shares in [0, 1].

    `scores` has an entry "cosine" and, for embeddings without unit norm, another "euclidean" (the
    measure of the paper's authors); each has nmi, f, precision, recall and recall_at, a dict of K
    to Recall@K.
    """

    method: str
    title: str
    dim: int
    scores: dict[str, Json]
    seconds: float
    settings: Json = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    uses_labels: bool = False


_SCHEMA = Schema(
    {"Z": ArraySpec("f", ("rows", "dim"))},
    {
        "method": str,
        "title": str,
        "dim": COUNT,
        "scores": {"*": {"recall_at": {"*": Number(0, 1)}, "*": Number(0, 1)}},
        "seconds": Number(0),
        "settings": {},
        "warnings": [str],
        "uses_labels": bool,
    },
)
"""A finished row in a checkpoint."""


def run_methods(
    data: Descriptors, names: Sequence[str], dim: int, seed: int = 0, context: Context | None = None
) -> tuple[list[MeasuredRow], dict[str, Array]]:
    """Measure methods of the registry on descriptors; only the scores use the labels.

    The context's store keeps finished rows. Returns the rows, and the embedding of the test rows
    by each method.
    """
    methods = chosen_methods(names)
    context = context or Context()
    rows, embeddings = [], {}
    for number, method in enumerate(methods):
        context.report(Progress("methods", number, len(methods)))
        saved = context.load(f"row-{method.name}", _SCHEMA)
        if saved is None:
            row, Z = measure(data, method, dim, seed)
            context.save(f"row-{method.name}", {"Z": Z}, asdict(row))
        else:
            row, Z = (
                MeasuredRow(**{name: saved[1][name] for name in _SCHEMA.metadata}),
                saved[0]["Z"],
            )
        rows.append(row)
        embeddings[method.name] = Z
    context.report(Progress("methods", len(names), len(names)))
    return rows, embeddings


def measure(data: Descriptors, method: Method, dim: int, seed: int) -> tuple[MeasuredRow, Array]:
    """Fit a method on the training rows, embed and score the test rows."""
    fit, Z = make_split(data.X, data.labels, data.train).embed(method, dim, seed)
    y = data.labels[~data.train]
    metrics = ["cosine"] + ([] if getattr(fit.estimator, "normalize", True) else ["euclidean"])
    row = MeasuredRow(
        method.name,
        method.title,
        Z.shape[1],
        {metric: scores_of(Z, y, metric, data.ks, seed) for metric in metrics},
        fit.seconds,
        _settings(fit.estimator),
        fit.warnings,
        method.uses_labels,
    )
    return row, Z


def scores_of(
    Z: Array, y: NDArray[np.generic], metric: str, ks: tuple[int, ...], seed: int
) -> Json:
    """Return NMI, F, precision, recall and Recall@K of embedded test rows."""
    scores: Json = dict(clustering_scores(Z, y, seed, metric))
    scores["recall_at"] = {str(k): v for k, v in recall_at_k(Z, y, ks, metric).items()}
    return scores


def _settings(estimator: BaseEstimator) -> Json:
    """Return the non-default arguments of the constructor, as text where necessary."""
    defaults = type(estimator)().get_params(deep=False)
    parameters = estimator.get_params(deep=False)
    plain = (bool, int, float, str, type(None))
    changed = {k: v for k, v in parameters.items() if repr(v) != repr(defaults[k])}
    return {
        "class": type(estimator).__name__,
        **{k: v if isinstance(v, plain) else one_line(repr(v)) for k, v in changed.items()},
    }


def _header(ks: Sequence[int]) -> list[str]:
    names = [name for name, _ in _CLUSTER] + [f"R@{k}" for k in ks]
    return ["method", "dim", *names, "labels", "source"]


def _published_cells(row: PublishedRow, ks: Sequence[int]) -> list[str]:
    recall = [f"{row.recall[k]:.1f}" for k in ks]
    labels = "yes" if row.uses_labels else "no"
    return [row.method, "", f"{row.nmi:.1f}", "", "", "", *recall, labels, PUBLISHED]


def _measured_cells(row: MeasuredRow, metric: str, ks: Sequence[int]) -> list[str]:
    scores = row.scores[metric]
    cluster = [f"{100 * scores[key]:.1f}" for _, key in _CLUSTER]
    recall = [f"{100 * scores['recall_at'][str(k)]:.1f}" for k in ks]
    title = row.title if metric == "cosine" else f"{row.title}, Euclidean"
    labels = "yes" if row.uses_labels else "no"
    return [title, str(row.dim), *cluster, *recall, labels, MEASURED]


def as_lines(
    rows: Sequence[MeasuredRow], published: Sequence[PublishedRow], ks: Sequence[int]
) -> list[list[str]]:
    """Return the cells of a header, of the published rows and of the measured rows."""
    lines = [_published_cells(row, ks) for row in published]
    lines += [_measured_cells(row, metric, ks) for row in rows for metric in row.scores]
    return [_header(ks), *lines]


def as_markdown(
    rows: Sequence[MeasuredRow], published: Sequence[PublishedRow], ks: Sequence[int]
) -> str:
    """Return a Markdown table with published figures in italics."""
    header, *body = as_lines(rows, published, ks)
    lines = [header, ["---", *["---:"] * (len(header) - 3), "---", "---"]]
    for line in body:
        mark = "*" if line[-1] == PUBLISHED else ""
        lines.append([f"{mark}{cell}{mark}" if cell else "" for cell in line])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def as_fields(
    rows: Sequence[MeasuredRow], published: Sequence[PublishedRow]
) -> dict[str, list[Json]]:
    """Return both kinds of rows as JSON values; published figures are in percent, as printed."""
    measured = [{**asdict(row), "source": MEASURED} for row in rows]
    for fields in measured:
        fields["scores"] = {m: named_recall(s, "recall_at") for m, s in fields["scores"].items()}
    quoted = [named_recall(asdict(row), "recall") for row in published]
    printed = {"source": PUBLISHED, "unit": "percent"}
    return {"measured": measured, "published": [{**fields, **printed} for fields in quoted]}


def named_recall(fields: Json, name: str) -> Json:
    """Replace the dict of K to Recall@K called `name` by fields recall@K."""
    recall = {f"recall@{k}": value for k, value in fields[name].items()}
    return {**recall, **{key: value for key, value in fields.items() if key != name}}
