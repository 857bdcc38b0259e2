"""rpml compare: RPML beside its alternatives, and what to use."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, table

EXAMPLES = """\b
Examples:
  rpml compare vectors.npy --dim 64
  rpml compare vectors.npy --labels labels.npy --dim 64 -o table.md
  rpml compare vectors.npy --labels labels.npy --methods raw,pca,rpml,rpml-leiden --seeds 1
\b
Classes are split: half to learn from (without labels), the others to score on. Methods that see
the labels of the first half are upper references and say so.
"""


@command
def run(
    features: opt.Features,
    labels: Annotated[
        str | None,
        typer.Option(metavar="Y", help="Classes, to score with; without them only a verdict."),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(min=1, help="Size of the embeddings; 128 if not given.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Which methods, by comma.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method that draws.")] = 3,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="TABLE", help="Also write .csv, .json or .md."),
    ] = None,
    force: opt.Force = False,
    seed: opt.Seed = 0,
    label_column: opt.LabelColumn = None,
    columns: opt.Columns = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Compare RPML with raw, PCA, whitening and more at equal size, and say which to use."""
    opt.use_threads(threads)
    from rpml.evaluation.comparison import compare
    from rpml.evaluation.recommendation import recommend
    from rpml.runtime.atomic import check_output

    console = Console(quiet, json_output)
    if output is not None:
        check_output(output, force)
        check_ending(output)
    excluded = (label_column,) if label_column and labels == features else ()
    X, y = read(
        features, labels, opt.read_options(columns, id_column, array, excluded), label_column
    )
    names = [name.strip() for name in methods.split(",")] if methods else None
    with console.following("rpml.evaluation.comparison"):
        found = compare(X, y, dim, methods=names, seeds=range(seed, seed + seeds))
    advice = recommend(X, found.order[0][1], random_state=seed)
    if output is not None:
        write(found, output, force)
    fields = {"rows": found.rows, "verdict": advice_fields(advice)}
    console.result(fields, f"{table(short(found.lines()))}\n\n{advice}")


def read(features: str, labels: str | None, options: Any, column: str | None) -> tuple[Any, Any]:
    """(vectors, classes or None)."""
    from rpml.io.features import open_features, read_labels

    data = open_features(features, options).load()
    if labels is None:
        return data.values, None
    return data.values, read_labels(labels, len(data.values), data.ids, column, options.id_column)


def check_ending(output: str) -> None:
    """Refuse a name before the work is done, not after."""
    from rpml.runtime.errors import InputError

    if not output.endswith((".csv", ".json", ".md")):
        raise InputError(f"--output {output}: the name must end in .csv, .json or .md")


def write(found: Any, output: str, force: bool) -> None:
    """Write the table, whole or not at all."""
    from pathlib import Path

    from rpml.runtime.atomic import atomic_output

    with atomic_output(output, force) as temporary:
        text = found.text(Path(output).suffix)
        Path(temporary).write_text(text, encoding="utf8")


def short(lines: list[list[str]]) -> list[list[str]]:
    """The columns a terminal has room for."""
    wanted = ("method", "dim", "r@1", "r@8", "nmi", "neighbours_kept", "hubness", "seconds")
    kept = [i for i, name in enumerate(lines[0]) if name in wanted or "PCA" in name]
    return [[line[i].replace("*", "") for i in kept] for line in lines]


def advice_fields(advice: Any) -> dict[str, Any]:
    """The recommendation as plain values."""
    from dataclasses import asdict
    from math import isnan

    fields = asdict(advice)
    fields["raw_ratio"] = None if isnan(advice.raw_ratio) else advice.raw_ratio
    return fields
