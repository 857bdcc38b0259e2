"""rpml figures: the paper's pictures of an image set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpml.cli import options as opt
from rpml.cli.command import command
from rpml.cli.console import Console
from rpml.cli.models import check_features, load_model
from rpml.runtime.errors import InputError

EXAMPLES = """\b
Examples:
  rpml figures features.npy --images photos/ -o figures
  rpml figures features.npy --images photos/ --model model.rpml --labels labels.csv -o figures
\b
quad-grid.png: up to 2,500 images on a square grid, similar ones together. With --labels also
retrieval-successes.png and retrieval-failures.png: a query and its four nearest a row, a green
frame for the query's class, a red one for another; queries with at least three (at most one) of
four right, one a class, spread evenly over the classes.
"""


@command
def run(
    features: opt.Features,
    images: Annotated[
        str, typer.Option(metavar="DIR", help="Folder that the ids of the features start from.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="Where the pictures go.")
    ],
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Embed the features with it first.")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="Y", help="Labels, for the retrieval rows.")
    ] = None,
    queries: Annotated[int, typer.Option(min=1, help="Rows of a retrieval picture.")] = 8,
    most: Annotated[int, typer.Option(min=1, help="Images on the grid.")] = 2500,
    seed: opt.Seed = 0,
    force: opt.Force = False,
    label_column: opt.LabelColumn = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
    json_output: opt.Json = False,
) -> None:
    """Draw retrieval rows and the quad-grid of images and their features."""
    import numpy as np

    from rpml.io.features import open_features, read_labels
    from rpml.pages.report.image_figures import draw_quad_grid, draw_retrievals, pictures_of
    from rpml.runtime.atomic import check_output

    source = open_features(features, opt.read_options(None, id_column, array))
    fitted = load_model(model) if model else None
    if fitted is not None and model is not None:
        check_features(fitted, source, model)
    data = source.load()
    if data.ids is None:
        raise InputError(f"{features} has no ids, which name the images: use rpml features")
    paths = [Path(images, str(name).partition("#view")[0]) for name in data.ids]
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise InputError(f"{missing} is not there: --images is the folder the ids start from")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("quad-grid", *(("retrieval-successes", "retrieval-failures") if labels else ())):
        check_output(folder / f"{name}.png", force)
    Z = np.asarray(data.values if fitted is None else fitted.transform(data.values))
    written = [folder / "quad-grid.png"]
    if labels is not None:
        y = read_labels(labels, len(Z), data.ids, label_column, id_column)
        written += draw_retrievals(Z, y, pictures_of(paths), folder, queries)
    draw_quad_grid(Z, pictures_of(paths), written[0], np.random.default_rng(seed), most)
    names = [str(path) for path in written]
    Console(quiet, json_output).result({"figures": names}, "\n".join(names))
