"""rpml bridge: let an old index answer the queries of a new encoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console, fields_text

if TYPE_CHECKING:
    from rpml.runtime.intervals import Interval

EXAMPLES = """\b
Examples:
  rpml bridge old.npy new.npy -o bridge.rpml
  rpml embed bridge.rpml queries.npy -o mapped.npy       (new vectors, now in the old space)
\b
OLD and NEW hold the same items in the same order, a few thousand are enough; where both files have
ids, rows are paired by id.
"""


@command
def run(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Vectors of the old encoder.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same items by the new encoder.")],
    output: Annotated[str, opt.output("MODEL", "Model file to write.")],
    force: opt.Force = False,
    seed: opt.Seed = 0,
    *,
    reading: opt.ReadingOptions,
    console: Console,
) -> None:
    """Learn the map from a new encoder's space to the old one, so the old index stays in use."""
    from rpml.estimator import save_model
    from rpml.io.features.source import pair_by_id
    from rpml.io.model_file import check_model_output
    from rpml.search import learn_bridge

    check_model_output(output, force, [old, new])
    bridge = learn_bridge(*pair_by_id(reading.open(old).load(), reading.open(new).load()), seed)
    check_model_output(output, force)  # it may have appeared meanwhile
    save_model(bridge.model, output, {"options": {"features": new, "old": old, "seed": seed}})
    fields = {
        "output": output,
        "pairs": bridge.n_pairs,
        "features": bridge.model.n_features_in_,
        "dim": len(bridge.model.components_),
        "method": bridge.method,
        "penalty": bridge.penalty,
        "held_out": bridge.n_held_out,
        **_bounded("neighbors_kept", bridge.neighbors_kept),
        **_bounded("encoder_overlap", bridge.encoder_overlap),
    }
    console.result(fields, fields_text(fields))


def _bounded(name: str, share: Interval) -> dict[str, float]:
    bounds = {f"{name}_low": share.low, f"{name}_high": share.high}
    return {key: round(value, 4) for key, value in {name: share.value, **bounds}.items()}
