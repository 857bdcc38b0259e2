"""rpml cluster: Authority Ascent Shift alone."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, fields_text

EXAMPLES = """\b
Examples:
  rpml cluster vectors.npy -o clusters.csv
  rpml cluster vectors.parquet -o clusters.parquet --merge saddle
  rpml cluster vectors.npy -o labels.npy --neighbors 30 --epsilon 0.65 --metric cosine
"""


@command
def run(
    features: opt.Features,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="LABELS", help="Where to write a label a row."),
    ],
    neighbors: Annotated[int, typer.Option(min=1, help="Neighbours in the graph.")] = 50,
    gamma: Annotated[float, typer.Option(help="Sharpness of the ascent.")] = 100.0,
    epsilon: Annotated[
        str, typer.Option(metavar="NUMBER|auto", help="Threshold on the affinities.")
    ] = "auto",
    metric: Annotated[str, typer.Option(metavar="NAME", help="euclidean or cosine.")] = "euclidean",
    merge: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="saddle: join modes over shallow saddles."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other AuthorityAscentShift setting."),
    ] = None,
    force: opt.Force = False,
    columns: opt.Columns = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Cluster vectors by ascending the authority of their neighbourhood graph."""
    opt.use_threads(threads)
    from rpml.io.features import Layout, check_table_output, read_features, write_table
    from rpml.method.clustering.aas import AuthorityAscentShift
    from rpml.method.graph.neighbors import nearest_neighbors
    from rpml.runtime.context import Progress
    from rpml.runtime.errors import InputError

    if output == "-" and json_output:
        raise InputError("-o - and --json cannot both have standard output")
    console = Console(quiet, json_output)
    check_table_output(output, force)
    chosen: dict[str, Any] = {
        "gamma": gamma,
        "epsilon": parse_epsilon(epsilon),
        "metric": metric,
        "merge": merge,
    }
    chosen.update(opt.parse_settings(settings or [], AuthorityAscentShift().get_params(), "--set"))
    aas = AuthorityAscentShift(neighbors, **chosen)
    data = read_features(features, opt.read_options(columns, id_column, array))
    n = len(data.values)
    with console.reporter() as report:
        found = nearest_neighbors(
            data.values,
            neighbors,
            metric=aas.metric,
            method=aas.method,
            progress=lambda share: report(Progress("neighbors", round(share * n), n)),
        )
        report(Progress("cluster", 0, 1))
        labels = aas.fit_predict(found)
        report(Progress("cluster", 1, 1))
    layout = Layout("label", ["label"], data.id_name if data.ids is not None else None, False)
    write_table(output, labels, layout, data.ids, force)
    counts = sorted(Counter(labels.tolist()).values(), reverse=True)
    fields = {
        "output": output,
        "rows": len(labels),
        "clusters": len(counts),
        "largest": counts[0],
        "singletons": counts.count(1),
        "epsilon": float(aas.epsilon_),
    }
    console.result(fields, "" if output == "-" else fields_text(fields))


def parse_epsilon(text: str) -> float | str:
    """A number, or "auto"."""
    from rpml.runtime.errors import InputError

    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--epsilon must be a number or auto, got {text!r}") from None
