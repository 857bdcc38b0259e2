"""rpml index: encode vectors for rpml search."""

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import ReadingOptions, load_model
from rpml.runtime.errors import InputError, counted

EXAMPLES = """
  rpml index model.rpml vectors.npy -o vectors.index
  rpml index model.rpml birds.parquet -o birds.index --id-column image --dim 64
  rpml index model.rpml vectors.npy -o small.index --codes int2 --rescore int8
  rpml search vectors.index queries.npy -k 10
"""
ADVICE = "; --rescore int8 or more bytes find more"


@command
def run(
    *,
    model: str = opt.MODEL,
    features: str = opt.FEATURES,
    output: str = opt.output("INDEX", "Index file to write."),
    dim: int | None = opt.DIM,
    codes: str | None = opt.text(
        "NAME", "Codes to scan: int8, int4, int2, binary or pq; default: pq if learned, else int8."
    ),
    rescore: str | None = opt.text("NAME", "Finer codes to rank again: int8, int4 or int2."),
    force: bool = opt.FORCE,
    reading: ReadingOptions,
    console: Console,
) -> None:
    """Build an index for rpml search.

    The index holds codes and ids.
    """
    from rpml.estimator.features import check_features
    from rpml.io.container import check_model_output
    from rpml.method.codes import CODES
    from rpml.runtime.context import Progress
    from rpml.search import Index
    from rpml.search.index import FINER_CODES, LOW_RECALL

    check_model_output(output, force, [model, features], ".index")
    opt.check_choice("--codes", codes, CODES)
    opt.check_choice("--rescore", rescore, FINER_CODES)
    fitted = load_model(model, dim)
    source = reading.open(features)
    names = getattr(fitted, "feature_names_in_", None)
    checked = check_features(fitted, source, model)
    try:
        index = Index(checked, None, codes, rescore)
    except ValueError as error:
        raise InputError(f"{model}: {error}") from error
    report = console.reporter()
    for batch in source.batches():
        index.add(batch.values, batch.ids)
        report(Progress("embed", len(index), source.n_rows or 0))
    if names is not None:
        index.model.feature_names_in_ = names  # by which a search checks its queries
    index.save(output, overwrite=force)
    fields = {"output": output, "rows": len(index), "bytes_per_row": index.bytes_per_row}
    fields |= {"codes": index.output, "rescore": index.rescore, "recall": index.recall}
    text = f"{output}: {counted(len(index), 'row')}, {counted(index.bytes_per_row, 'byte')} per row"
    if index.recall is not None:
        text += (
            f"\n{index.recall:.0%} of the 10 nearest rows by the float embedding are found"
            f"{'' if index.recall >= LOW_RECALL else ADVICE}"
        )
    console.result(fields, text)
