"""rpml recommend: which method and size to use, and the command that does it."""

import shlex
from dataclasses import asdict
from typing import Annotated

import typer

from rpml.cli.command import command
from rpml.cli.console import Console, table
from rpml.cli.options import common as opt
from rpml.runtime.errors import InputError

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
    features: opt.FeaturesPath,
    labels: opt.Labels = None,
    dim: Annotated[
        int | None, opt.number("Dimensions of the embedding; default: 128, or fewer.")
    ] = None,
    n_bytes: Annotated[
        int | None, opt.number("Bytes per vector: recommend dimensions and a code.", "--bytes")
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Fewest bytes that keep this share of the neighbors."),
    ] = None,
    queries: Annotated[
        str | None, opt.text("FILE", "Real queries, whose nearest rows are to be kept.")
    ] = None,
    seed: opt.Seed = 0,
    *,
    reading: opt.LabeledReadingOptions,
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
        next_step = f"rpml fit {shlex.quote(features)} --bytes {size.n_bytes} -o model.rpml"
        fields = {"n_components": size.n_components, "output": size.output, "bytes": size.n_bytes}
        shown = f"{table(size.lines())}\n{NOTE}\n\n"
        text = "\n".join([*size.reasons, f"Next: {next_step}"])
        fields |= {"table": size.table, "reasons": size.reasons, "next": next_step}
        console.result(fields, shown + text)
        return
    if queries is not None:
        raise InputError("--queries is for --bytes and --keep")
    advice = recommend(values, dim, y=y, random_state=seed)
    next_step = _next_step(advice.choice, features, advice.n_components)
    figure = "Recall@1" if advice.uses_labels else "rank gain over PCA"
    rows = [
        (METHODS[name].title, f"{gain.value:+z.3f}", f"{gain.low:+z.3f} to {gain.high:+z.3f}")
        for name, gain in advice.evidence.items()
    ]
    shown = table([("method", figure, "95% interval"), *rows]) + "\n\n" if rows else ""
    text = "\n".join([*advice.reasons, f"Next: {next_step}"])
    console.result({**asdict(advice), "next": next_step}, shown + text)


def _next_step(choice: str, features: str, size: int) -> str:
    """Return the command or the line of Python that follows the advice."""
    if choice == "raw":
        return "keep the vectors as they are"
    if choice in ("rpml", "pca"):  # without evidence for more, a fit is PCA
        return f"rpml fit {shlex.quote(features)} --dim {size} -o model.rpml"
    return f"in Python: rpml.recommend(X, {size}).estimator().fit(X)"
