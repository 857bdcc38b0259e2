"""rpml recommend: which method and size to use, and the command that does it."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, table
from rpml.cli.options.reading import LabeledReadingOptions
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from rpml.evaluation.recommendation import Recommendation

EXAMPLES = """\b
Examples:
  rpml recommend vectors.npy
  rpml recommend vectors.npy --dim 64
  rpml recommend vectors.npy --labels labels.npy
  rpml recommend vectors.npy --bytes 16
  rpml recommend vectors.npy --keep 0.9 --queries queries.npy
\b
Without labels, methods are judged by held-out neighbors: how well they rank, in one half of the
features, the rows that the other half finds near. With labels, Recall@1 on classes that were not
used to fit decides. With --bytes, codes of equal bytes are compared on a sample of the rows, which
is searched by float queries.
"""
NOTE = """[...]: 95% intervals; shares of the 10 nearest rows by the raw vectors, and by the float
embedding, that stay among the 10 nearest by the code"""


@command
def run(
    *,
    features: str = opt.FEATURES,
    labels: str | None = opt.LABELS,
    dim: int | None = opt.number("Dimensions of the embedding; default: 128, or fewer."),
    n_bytes: int | None = opt.number(
        "Bytes per vector: recommend dimensions and a code.", "--bytes"
    ),
    keep: float | None = typer.Option(
        None, metavar="SHARE", help="Fewest bytes that keep this share of the neighbors."
    ),
    queries: str | None = opt.text("FILE", "Real queries, whose nearest rows are to be kept."),
    seed: int = opt.SEED,
    reading: LabeledReadingOptions,
    console: Console,
) -> None:
    """Recommend a method and a size; labels are optional."""
    from rpml.evaluation.recommendation import recommend
    from rpml.evaluation.registry import METHODS

    path = reading.labels_path(features, labels)
    data = reading.open(features, reading.excluded(features, labels)).load()
    values, y = (data.values, None) if path is None else reading.labeled_rows(path, data)
    if n_bytes is not None or keep is not None:
        if dim is not None:
            raise InputError("--bytes and --keep choose the dimensions: leave out --dim")
        asked = None if queries is None else reading.open(queries).load().values
        size = recommend(values, bytes=n_bytes, keep=keep, queries=asked, y=y, random_state=seed)
        step = f"rpml fit {shlex.quote(features)} --bytes {size.n_bytes} -o model.rpml"
        fields = {"n_components": size.n_components, "output": size.output, "bytes": size.n_bytes}
        shown = f"{table(size.lines())}\n{NOTE}\n\n"
        text = "\n".join([*size.reasons, f"Next: {step}"])
        fields |= {"table": size.table, "reasons": size.reasons, "next": step}
        console.result(fields, shown + text)
        return
    if queries is not None:
        raise InputError("--queries is for --bytes and --keep")
    advice = recommend(values, dim, y=y, random_state=seed)
    step = next_step(advice, features)
    figure = "Recall@1" if advice.uses_labels else "rank gain over PCA"
    rows = [
        (METHODS[name].title, f"{gain.value:+z.3f}", f"{gain.low:+z.3f} to {gain.high:+z.3f}")
        for name, gain in advice.evidence.items()
    ]
    shown = table([("method", figure, "95% interval"), *rows]) + "\n\n" if rows else ""
    text = "\n".join([*advice.reasons, f"Next: {step}"])
    console.result({**asdict(advice), "next": step}, shown + text)


def next_step(advice: Recommendation, features: str) -> str:
    """Return the command that follows the advice, or the line of Python if there is none."""
    if advice.choice == "raw":
        return advice.next_step
    if advice.choice in ("rpml", "pca"):  # without evidence for more, a fit is PCA
        return f"rpml fit {shlex.quote(features)} --dim {advice.n_components} -o model.rpml"
    return f"in Python: {advice.next_step}"
