"""rpml estimate: memory and time of a fit, before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rpml.cli.command import command
from rpml.cli.console import Console, fields_text
from rpml.cli.options import common as opt
from rpml.cli.progress import STAGES
from rpml.runtime.errors import InputError
from rpml.runtime.wording import counted

if TYPE_CHECKING:
    from rpml.runtime.rows import Array

EXAMPLES = """\b
Examples:
  rpml estimate vectors.npy --dim 64
  rpml estimate --shape 1000000x128
"""


@command
def run(
    features: Annotated[
        str | None, typer.Argument(metavar="FEATURES", help=f"Vectors: {opt.KINDS}.")
    ] = None,
    shape: Annotated[str | None, opt.text("ROWSxFEATURES", "Shape, instead of a file.")] = None,
    dim: Annotated[int | None, opt.number("Dimensions of the embedding.")] = None,
    settings: opt.Settings = None,
    *,
    reading: opt.ReadingOptions,
    console: Console,
) -> None:
    """Estimate the memory and time of a fit.

    A short pilot run on a few thousand rows is extrapolated.
    """
    from rpml.estimator import RPML
    from rpml.evaluation.resources import estimate_resources
    from rpml.runtime.environment import memory_gb

    names = RPML().get_params(deep=False).keys() - {"callback"}
    given = [] if dim is None else ["n_components"]
    chosen = {"n_components": dim, "random_state": 0}
    chosen |= opt.parse_settings(settings, names, given)
    if (features is None) == (shape is None):
        raise InputError("give either FEATURES or --shape ROWSxFEATURES")
    data: Array | None = None
    if features is not None:
        data = reading.open(features).load().values
    n, d = parse_shape(str(shape)) if data is None else data.shape
    mapped = type(data).__name__ == "memmap"
    estimate = estimate_resources(n, d, X=data, mapped=mapped, **chosen)
    fields = {
        "rows": n,
        "features": d,
        "memory_gb": round(estimate.memory / 2**30, 2),
        "seconds": round(estimate.seconds, 3),
        "stages": {name: round(seconds, 3) for name, seconds in estimate.stages.items()},
        "pilot_rows": estimate.pilot_rows,
        "machine_memory_gb": memory_gb(),
    }
    available = memory_gb()
    stages = ", ".join(f"{STAGES.get(name, name)} {s:.2g}" for name, s in estimate.stages.items())
    room = "" if available is None else f" (this machine has {available:g} GB)"
    told = {
        "rows": n,
        "features": d,
        "memory": f"{fields['memory_gb']:g} GB{room}",
        "seconds": f"{estimate.seconds:.3g} ({stages})",
        "extrapolated from": counted(estimate.pilot_rows, "row"),
    }
    console.result(fields, fields_text(told))
    if available is not None and estimate.memory > available * 2**30:
        console.note("this machine has less memory than that: use fewer rows or a smaller dtype")


def parse_shape(text: str) -> tuple[int, int]:
    """Parse 1000000x128 as (rows, features)."""
    rows, _, width = text.lower().partition("x")
    if not (rows.isdigit() and width.isdigit() and int(rows) > 1 and int(width) > 0):
        raise InputError(f"--shape must look like 1000000x128, got {text!r}")
    return int(rows), int(width)
