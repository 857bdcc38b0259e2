"""rpml explore: a local page to look around in an embedding."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpml.cli import options as opt
from rpml.cli import rows
from rpml.cli.command import command
from rpml.cli.console import Console

if TYPE_CHECKING:
    from rpml.estimator import RPML

EXAMPLES = """\b
Examples:
  rpml explore model.rpml vectors.npy
  rpml explore model.rpml photos.npz --images photos/ --labels labels.csv
  rpml explore model.rpml photos.npz --images photos/ --backbone googlenet.onnx
\b
The page answers on 127.0.0.1 only, unless --host says otherwise. Stop it with Ctrl-C.
"""


@command
def run(
    model: opt.ModelPath,
    features: opt.Features,
    images: rows.Images = None,
    labels: rows.Labels = None,
    ids: rows.Ids = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8765,
    host: Annotated[
        str, typer.Option(metavar="NAME", help="Where to listen; others than 127.0.0.1 are open.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name the page may be asked for under."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="X.onnx", help="Network of the features, to search with images."),
    ] = None,
    scales: Annotated[
        str, typer.Option(metavar="PIXELS,...", help="As in rpml features.")
    ] = "512,362,256",
    pool: Annotated[str, typer.Option(metavar="NAME", help="As in rpml features.")] = "rmac",
    whitening: Annotated[
        str | None, typer.Option(metavar="FILE", help="As in rpml features.")
    ] = None,
    tree: Annotated[
        bool | None,
        typer.Option(
            "--tree/--no-tree", help="Find the clusters' trees; up to 30,000 rows if not given."
        ),
    ] = None,
    seed: opt.Seed = 0,
    label_column: opt.LabelColumn = None,
    columns: opt.Columns = None,
    id_column: opt.IdColumn = None,
    array: opt.ArrayName = None,
    threads: opt.Threads = None,
    config: opt.Config = None,
    quiet: opt.Quiet = False,
) -> None:
    """Open a page that shows neighbours by the raw features and by the embedding, side by side."""
    opt.use_threads(threads)
    from rpml.runtime.extras import require

    require("starlette", "explore", "rpml explore")
    require("uvicorn", "explore", "rpml explore")
    from rpml.pages.explorer.app import Options, make_app
    from rpml.pages.explorer.catalog import make_catalog, start_work
    from rpml.pages.explorer.pictures import Pictures
    from rpml.pages.explorer.server import address, open_socket, serve, warning

    console = Console(quiet)
    listener = open_socket(host, port)
    reading = rows.Reading(labels, images, ids, label_column, id_column)
    options = opt.read_options(columns, id_column, array, reading.excluded(features))
    fitted, values, items = reading.load(model, features, options)
    describe = describer(fitted, (backbone, scales, pool, whitening)) if backbone else None
    console.note(f"preparing {len(items):,} items ...")
    catalog = make_catalog(fitted, values, items, Path(features).name)
    pictures = Pictures(items, Path(images)) if images else None
    app = make_app(catalog, Options(pictures, describe, [host, *(allow_host or [])]))
    start_work(catalog, values, seed, tree)
    loud = warning(host)
    if loud:
        print(f"rpml: warning: {loud}", file=sys.stderr)
    typer.echo(f"exploring on {address(listener)}  (Ctrl-C stops it)")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):  # which is how it is meant to end
        serve(app, listener)


def describer(model: RPML, network: tuple[str, str, str, str | None]) -> Any:
    """From image to vector by the given network, tried once so that a wrong one is refused now."""
    from rpml.cli.features import parse_scales
    from rpml.pages.explorer.uploads import image_describer, sample_image
    from rpml.runtime.errors import InputError
    from rpml.vision.backbone import Backbone
    from rpml.vision.extract import Recipe
    from rpml.vision.pooling import Pooling
    from rpml.vision.whitening import Whitening

    path, scales, pool, whitening = network
    recipe = Recipe(parse_scales(scales), Pooling(pool))
    learned = Whitening.load(whitening) if whitening else None
    describe = image_describer(Backbone(path), recipe, learned)
    size = len(describe(sample_image()))
    if size != model.n_features_in_:
        raise InputError(
            f"--backbone {path} gives vectors of {size} numbers, the model takes "
            f"{model.n_features_in_}: give --scales, --pool and --whitening as for rpml features"
        )
    return describe
