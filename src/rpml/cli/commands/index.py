"""rpml index: encode vectors for rpml search."""

from typing import Annotated

from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.cli.options import common as opt
from rpml.runtime.wording import counted

EXAMPLES = """\b
Examples:
  rpml index model.rpml vectors.npy -o vectors.index
  rpml index model.rpml birds.parquet -o birds.index --id-column image --dim 64
  rpml search vectors.index queries.npy -k 10
"""


@command
def run(
    model: opt.ModelPath,
    features: opt.FeaturesPath,
    output: Annotated[str, opt.output("INDEX", "Index file to write.")],
    dim: opt.Dim = None,
    force: opt.Force = False,
    *,
    reading: opt.ReadingOptions,
    console: Console,
) -> None:
    """Build an index for rpml search.

    It holds int8 codes, with ids.
    """
    from rpml.estimator.features import check_features
    from rpml.io.model_file import check_model_output
    from rpml.runtime.context import Progress
    from rpml.search import Index

    check_model_output(output, force, [model, features], ".index")
    fitted = opt.load_model(model, dim)
    source = reading.open(features)
    names = getattr(fitted, "feature_names_in_", None)
    index = Index(check_features(fitted, source, model))
    with console.reporter() as report:
        for batch in source.batches():
            index.add(batch.values, batch.ids)
            report(Progress("embed", len(index), source.n_rows or 0))
    if names is not None:
        index.model.feature_names_in_ = names  # by which a search checks its queries
    index.save(output, overwrite=force)
    fields = {"output": output, "rows": len(index), "bytes_per_row": index.bytes_per_row}
    size = f"{counted(index.bytes_per_row, 'byte')} per row"
    console.result(fields, f"{output}: {counted(len(index), 'row')}, {size}")
