"""rpml export: a model for other programs."""

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.options.reading import ItemOptions, LabeledReadingOptions, load_model
from rpml.runtime.errors import InputError, counted

EXAMPLES = """
  rpml export model.rpml --to onnx -o model.onnx
  rpml export model.rpml --to faiss -o model.faiss
  rpml export vectors.index --to faiss -o vectors.faiss    (IndexPQ with its codes)
  rpml export vectors.index --to faiss --cells 1000 -o vectors.faiss    (IndexIVFPQ)
  rpml export model.rpml --to sentence-transformers -o modules
  rpml export model.rpml --to numpy -o model.npz --dim 32
  rpml export model.rpml --to sql -o model.sql
  rpml export model.rpml --to js -o model.mjs
  rpml export model.rpml vectors.npy --to atlas --texts texts.txt -o map.parquet
"""


@command
def run(
    *,
    model: str = opt.MODEL,
    to: str = opt.text(
        "FORMAT", "onnx, faiss, sentence-transformers, numpy, sql, js or atlas.", default=...
    ),
    output: str = opt.output("OUT", "File or folder to write."),
    rows: ItemOptions,
    features: str | None = opt.argument("FEATURES", "Vectors of the map, for atlas.", default=None),
    dim: int | None = opt.DIM,
    cells: int | None = opt.number(
        "Write an index as IndexIVFPQ with this many cells, for millions of rows.", default=None
    ),
    seed: int = opt.SEED,
    force: bool = opt.FORCE,
    reading: LabeledReadingOptions,
    console: Console,
) -> None:
    """Export a model to ONNX, faiss, NumPy, SQL or JavaScript.

    Or to sentence-transformers modules; or the map of vectors to embedding-atlas.
    """
    from rpml.io.export import TARGETS, check_export, export_model
    from rpml.pages.atlas import check_atlas, export_atlas
    from rpml.search import Index
    from rpml.search.to_faiss import is_index, write_faiss

    if to not in (*TARGETS, "atlas"):
        raise InputError(f"--to takes {', '.join(TARGETS)} or atlas, got {to!r}")
    if to == "atlas":
        if features is None:
            raise InputError("--to atlas needs FEATURES after the model: the rows of the map")
        check_atlas(output, force, [model, features, *rows.inputs()])
        (fitted,), X, items = rows.load([model], features, reading, dim)
        written = export_atlas(fitted, X, items, output, seed, force)
    else:
        if features is not None or rows != ItemOptions():
            raise InputError(f"--to {to} takes the model alone: FEATURES are for --to atlas")
        check_export(to, output, force, [model])
        if cells is not None and not (to == "faiss" and is_index(model)):
            raise InputError("--cells is for an index that is exported to faiss")
        if to == "faiss" and is_index(model):
            if dim is not None:
                raise InputError("an index has the dimensions it was built with: leave out --dim")
            index = Index.load(model)
            fitted, written = index.model, write_faiss(index, output, force, cells or 0)
        else:
            fitted = load_model(model, dim)
            written = export_model(fitted, to, output, overwrite=force)
    size = len(fitted.components_)
    fields = {"output": str(written), "to": to, "features": fitted.n_features_in_, "dim": size}
    text = (
        f"{written}: {to}, {counted(fitted.n_features_in_, 'feature')} to "
        f"{counted(size, 'dimension')}"
    )
    console.result(fields, text)
