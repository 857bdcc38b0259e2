"""rpml suggest: which rows to label next."""

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import ReadingOptions, check_table, load_model
from rpml.runtime.errors import InputError, counted

EXAMPLES = """
  rpml suggest model.rpml -n 50 -o ask.csv
  rpml suggest model.rpml -n 50 -o ask.csv --features birds.parquet --id-column image
  rpml fit birds.parquet -o better.rpml --labels answered.csv
"""


@command
def run(
    *,
    model: str = opt.MODEL,
    output: str = opt.output("OUT", "Where to write the row numbers; - for CSV."),
    count: int = opt.number("Number of rows.", "--count", "-n", default=20),
    features: str | None = opt.text("FEATURES", "Training vectors, for a better choice and ids."),
    force: bool = opt.FORCE,
    reading: ReadingOptions,
    console: Console,
) -> None:
    """Choose the training rows whose labels would help most.

    Rows are numbered from 0.
    """
    from rpml.estimator.features import check_features
    from rpml.io.features import Features, Layout, write_table
    from rpml.io.features.source import as_ids

    check_table(output, force, console.json_output, [model, features])
    fitted = load_model(model)
    data: Features | None = None
    if features is not None:
        source = reading.open(features)
        fitted = check_features(fitted, source, model)
        data = source.load()
        if len(data.values) != fitted.n_samples_:
            raise InputError(
                f"{features} has {counted(len(data.values), 'row')}, {model} was fitted on "
                f"{fitted.n_samples_}: pass the file it was fitted on"
            )
    rows = fitted.suggest_labels(count, None if data is None else data.values)
    ids, name = as_ids(rows.tolist()), "id"  # by which fit --labels finds the rows
    if data is not None and data.ids is not None:
        ids, name = data.ids[rows], data.id_name
    write_table(output, rows, Layout("row", ["row"], name, False), ids, force)
    fields = {"output": output, "suggested": rows.tolist()}
    text = f"{output}: {counted(len(rows), 'row')} to label"
    console.result(fields, "" if output == "-" else text)
