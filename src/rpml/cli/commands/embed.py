"""rpml embed: apply a model to vectors, in bounded memory."""

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import EngineOptions, ReadingOptions, check_table, load_model
from rpml.runtime.errors import InputError, counted

EXAMPLES = """
  rpml embed model.rpml vectors.npy -o small.npy
  rpml embed model.rpml new.parquet -o small.parquet --dim 32
  rpml embed model.rpml vectors.npy -o codes.npy --codes int8
  rpml embed model.rpml items.parquet -o small.parquet --keep-columns 'title,price'
  cat vectors.csv | rpml embed model.rpml - -o - > small.csv
  rpml embed model.rpml shards/ -o embedded/         (a folder of .npy parts)
  rpml embed model.rpml shards/ -o embedded/ --engine dask --scheduler tcp://host:8786
"""


@command
def run(
    *,
    model: str = opt.MODEL,
    features: str = opt.FEATURES,
    output: str = opt.output("OUT", "The suffix sets the format; NAME/ writes shards, - CSV."),
    dim: int | None = opt.DIM,
    codes: str | None = opt.text("NAME", "Write codes: int8, int4, int2, binary or pq."),
    keep_columns: str | None = opt.text("NAMES", "Columns to carry through; * matches any text."),
    force: bool = opt.FORCE,
    reading: ReadingOptions,
    engine: EngineOptions,
    console: Console,
) -> None:
    """Embed vectors with a model.

    Ids are carried through, other columns if asked.
    """
    from rpml.estimator.features import check_features, embed_file
    from rpml.method.codes import CODES
    from rpml.runtime.context import Context
    from rpml.runtime.files import check_apart

    on_dask, context = engine.on_dask(), Context(report=console.reporter())
    if on_dask:
        if force:
            raise InputError("--force is not for --engine dask: remove the folder instead")
        if keep_columns is not None:
            raise InputError("--keep-columns is not for --engine dask: embed locally")
        if not output.endswith("/"):
            raise InputError(f"--engine dask writes a folder of parts: -o {output}/")
        check_apart([output], [model, features])
    else:
        check_table(output, force, console.json_output, [model, features])
    fitted = load_model(model, dim)
    size = len(fitted.components_)
    if codes is not None:
        opt.check_choice("--codes", codes, CODES)
        fitted.codec(codes)  # checked before anything is read
    if on_dask:  # one file per partition, written by the workers; a second run writes the rest
        from rpml.distributed import embed

        with engine.cluster(console) as cluster:
            rows = engine.open_rows(features, reading.options(), cluster, console, by_size=True)
            fitted = check_features(fitted, rows, model)
            kind = "parquet" if rows.parts[0][0][0].endswith((".parquet", ".pq")) else "npy"
            files = embed(
                fitted, rows, output, cluster, kind=kind, output=codes or "float", context=context
            )
        written = len(rows)
    else:
        source = reading.open(features, keep=opt.parse_names(keep_columns) or ())
        fitted = check_features(fitted, source, model)
        written, files = embed_file(fitted, source, output, force, context, codes or "float"), []
    fields = {"output": output, "rows": written, "dim": size, "codes": codes}
    text = f"{output}: {counted(written, 'row')}, {counted(size, 'dimension')}"
    if codes is not None:
        text += f" in {counted(fitted.codec(codes).width, 'byte')} per row"
    if files:
        fields["files"] = len(files)
        text += f", {counted(len(files), 'file')}"
    console.result(fields, "" if output == "-" else text)
