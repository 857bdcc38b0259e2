"""rpml estimate: memory and time of a fit, before it starts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, fields_text

EXAMPLES = """\b
Examples:
  rpml estimate vectors.npy --dim 64
  rpml estimate --shape 1000000x128
"""


@command
def run(
    features: Annotated[
        str | None, typer.Argument(metavar="[FEATURES]", help=f"Vectors: {opt.KINDS}.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(metavar="ROWSxFEATURES", help="Instead of a file.")
    ] = None,
    dim: Annotated[int | None, typer.Option(min=1, help="Size of the embedding.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of RPML."),
    ] = None,
    columns: opt.Columns = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Tell the memory and time a fit would take, by trying it on a few thousand rows."""
    opt.use_threads(threads)
    from rpml.cli.doctor import memory_gb
    from rpml.estimator import RPML
    from rpml.evaluation.resources import estimate_resources

    known = {k: v for k, v in RPML().get_params(deep=False).items() if k != "callback"}
    chosen = {"n_components": dim, "random_state": 0}
    chosen.update(opt.parse_settings(settings or [], known, "--set"))
    n, d, data = find_shape(features, shape, opt.read_options(columns, id_column, array))
    mapped = type(data).__name__ == "memmap"
    found = estimate_resources(n, d, X=data, mapped=mapped, **chosen)
    fields = {
        "rows": n,
        "features": d,
        "memory_gb": round(found.memory / 2**30, 2),
        "seconds": round(found.seconds, 1),
        "stages": {name: round(seconds, 1) for name, seconds in found.stages.items()},
        "pilot_rows": found.pilot_rows,
        "machine_memory_gb": memory_gb(),
    }
    console = Console(quiet, json_output)
    console.result(fields, fields_text({**fields, "stages": _listed(fields["stages"])}))
    available = memory_gb()
    if available is not None and found.memory > available * 2**30:
        console.note("this machine has less memory than that: use fewer rows or smaller dtypes")


def _listed(stages: Any) -> str:
    return ", ".join(f"{name} {seconds} s" for name, seconds in stages.items())


def find_shape(path: str | None, shape: str | None, options: Any) -> tuple[int, int, Any]:
    """(rows, features, vectors or None)."""
    from rpml.io.features import read_features
    from rpml.runtime.errors import InputError

    if (path is None) == (shape is None):
        raise InputError("give either FEATURES or --shape ROWSxFEATURES")
    if path is not None:
        values = read_features(path, options).values
        return *values.shape, values
    rows, _, width = str(shape).lower().partition("x")
    if not (rows.isdigit() and width.isdigit() and int(rows) > 1 and int(width) > 0):
        raise InputError(f"--shape must look like 1000000x128, got {shape!r}")
    return int(rows), int(width), None
