"""rpml export: a model for other programs."""

from typing import Annotated

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console

EXAMPLES = """\b
Examples:
  rpml export model.rpml --to onnx -o model.onnx
  rpml export model.rpml --to faiss -o model.index
  rpml export model.rpml --to sentence-transformers -o modules
  rpml export model.rpml --to numpy -o model.npz --dim 32
"""


@command
def run(
    model: opt.ModelPath,
    to: Annotated[str, opt.text("FORMAT", "onnx, faiss, sentence-transformers or numpy.")],
    output: Annotated[str, opt.output("OUT", "File or folder to write.")],
    dim: opt.Dim = None,
    force: opt.Force = False,
    *,
    console: Console,
) -> None:
    """Export a model to ONNX, faiss, sentence-transformers or NumPy."""
    from rpml.io.export import check_export, export_model

    check_export(to, output, force, [model])
    fitted = opt.load_model(model, dim)
    written = export_model(fitted, to, output, overwrite=force)
    size = len(fitted.components_)
    fields = {"output": str(written), "to": to, "features": fitted.n_features_in_, "dim": size}
    text = f"{written}: {to}, {fitted.n_features_in_} features to {size} dimensions"
    console.result(fields, text)
