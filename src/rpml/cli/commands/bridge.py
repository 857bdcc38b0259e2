"""rpml bridge: let an old index answer the queries of a new encoder."""

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import ReadingOptions

EXAMPLES = """
  rpml bridge old.npy new.npy -o bridge.rpml
  rpml embed bridge.rpml queries.npy -o mapped.npy       (new vectors, now in the old space)
\b
OLD and NEW hold the same items in the same order; a few thousand are enough. If both files have
ids, rows are paired by id.
"""


@command
def run(
    *,
    old: str = opt.argument("OLD", "Vectors of the old encoder."),
    new: str = opt.argument("NEW", "The same items by the new encoder."),
    output: str = opt.output("MODEL", "Model file to write."),
    force: bool = opt.FORCE,
    seed: int = opt.SEED,
    reading: ReadingOptions,
    console: Console,
) -> None:
    """Learn the map from a new encoder's space to the old one.

    With it an index of old vectors answers queries of the new encoder.
    """
    from rpml.estimator.fitted import save_model
    from rpml.io.container import check_model_output
    from rpml.io.features.source import pair_by_id
    from rpml.runtime.intervals import bounded
    from rpml.search import learn_bridge

    check_model_output(output, force, [old, new])
    data = [reading.open(path).load() for path in (old, new)]
    bridge = learn_bridge(*pair_by_id(*data), seed)
    for rows in data:
        rows.check_unchanged()
    options = {"features": new, "old": old, "seed": seed}
    save_model(bridge.model, output, {"options": options}, overwrite=force)
    fields: dict[str, object] = {
        "output": output,
        "pairs": bridge.n_pairs,
        "features": bridge.model.n_features_in_,
        "dim": len(bridge.model.components_),
        "method": bridge.method,
        "penalty": bridge.penalty,
        "held_out": bridge.n_held_out,
    }
    shares = {"neighbors_kept": bridge.neighbors_kept, "encoder_overlap": bridge.encoder_overlap}
    lines = dict(fields)
    for name, share in shares.items():
        interval = f"95% interval {100 * share.low:.1f} to {100 * share.high:.1f}"
        lines[name] = f"{share.value:.1%} ({interval})"
        fields |= {key: round(value, 4) for key, value in bounded(name, share).items()}
    console.result(fields, lines)
