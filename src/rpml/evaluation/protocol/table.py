"""Published and measured rows in one table, as text, Markdown or JSON."""

from collections.abc import Sequence
from dataclasses import asdict

from rpml.evaluation.protocol.published import PublishedRow
from rpml.evaluation.protocol.scores import MeasuredRow
from rpml.runtime.context import Json

_CLUSTER = (("NMI", "nmi"), ("F", "f"), ("P", "precision"), ("R", "recall"))
PUBLISHED, MEASURED = "published", "measured"


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
