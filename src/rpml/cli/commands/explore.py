"""rpml explore: a local page to explore an embedding."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rpml.cli import options as opt
from rpml.cli.command import Console, command
from rpml.cli.console import say
from rpml.cli.options.knowledge import nuisance_files
from rpml.cli.options.reading import ItemOptions, LabeledReadingOptions, short_names
from rpml.runtime.errors import InputError, counted, require

if TYPE_CHECKING:
    from rpml.estimator import RPML
    from rpml.pages.explorer.uploads import Describe

EXAMPLES = """
  rpml explore model.rpml vectors.npy
  rpml explore model.rpml photos.npz --images photos/ --labels labels.csv
  rpml explore model.rpml photos.npz --images photos/ --backbone googlenet.onnx
  rpml explore old.rpml new.rpml vectors.npy
  rpml explore model.rpml vectors.npy --metadata products.csv
  rpml explore model.rpml documents.npy --queries log.npy
  rpml explore model.rpml vectors.npy --save-labels labels.csv
\b
The page is served on 127.0.0.1 only, unless --host says otherwise. Stop it with Ctrl-C.
"""


@command
def run(
    *,
    models: list[str] = opt.MODELS,
    features: str = opt.FEATURES,
    rows: ItemOptions,
    queries: str | None = opt.QUERIES,
    port: int = typer.Option(8765, metavar="N", min=0, max=65535, help="0: any free port."),
    host: str = opt.text(
        "NAME", "Address to listen on; any but 127.0.0.1 is open to others.", default="127.0.0.1"
    ),
    allow_host: list[str] | None = opt.text("NAME", "Another host name to accept in requests."),
    backbone: str | None = opt.text("X.onnx", "Network of the features, to search by image."),
    whitening: str | None = opt.text("FILE", "Whitening written by rpml features."),
    save_labels: str | None = opt.text("FILE", "Label items in the page; a .csv for fit --labels."),
    metadata: str | None = opt.text("FILE", "Table to show and search, matched by its id column."),
    tree: bool | None = opt.flag("Cluster trees; default: up to 30,000 rows.", default=None),
    cache: bool = opt.flag("Keep the map in MODEL.explorer for the next start.", default=True),
    scale: bool = opt.flag("Add the share of random pairs that are less similar."),
    seed: int = opt.SEED,
    descriptor: opt.DescriptorOptions,
    reading: LabeledReadingOptions,
    console: Console,
) -> None:
    """Explore an embedding in the browser.

    The page shows the neighbors by raw features and by the embedding, side by side.
    """
    require("starlette", "explore", "rpml explore")
    require("uvicorn", "explore", "rpml explore")
    from rpml.io.features.labels import read_metadata
    from rpml.pages.explorer.app import address, make_app, make_server, open_socket, warning
    from rpml.pages.explorer.catalog import MIN_ROWS, make_catalog, start_work
    from rpml.pages.explorer.index import ExactIndex
    from rpml.pages.explorer.labeling import Labeling, LabelStore, check_labels_file
    from rpml.pages.items import picture_reader

    if backbone is None and (whitening or descriptor != opt.DescriptorOptions()):
        raise InputError("--whitening, --scales and --pool are of a network: give --backbone, too")
    if save_labels is not None:
        read = [*models, features, metadata, rows.ids, rows.texts, queries, backbone, whitening]
        check_labels_file(save_labels, [*read, *nuisance_files(rows.nuisance)])
    listener = open_socket(host, port)
    (fitted, *second), values, items = rows.load(models, features, reading, queries=queries)
    if metadata is not None:
        columns = items.metadata | read_metadata(metadata, items.ids)
        items = replace(items, metadata=columns)
    describe = describer(fitted, backbone, descriptor, whitening) if backbone else None
    console.note(f"preparing {counted(len(items), 'item')} ...")
    store = None if save_labels is None else LabelStore(items, save_labels)
    items = items if store is None else store.items
    catalog = make_catalog(fitted, values, items, Path(features).name)
    for model in second:
        catalog.titles["rpml"], title = short_names(models)
        catalog.add_model("second", title, model, ExactIndex(model.transform(values)))
    labeling = None if store is None else Labeling(catalog, values, store)
    pictures = picture_reader(items, Path(rows.images)) if rows.images else None
    hosts = [host, *(allow_host or [])]
    app = make_app(catalog, pictures, describe, hosts, labeling, scale)
    cached = Path(f"{models[0]}.explorer") if cache and len(items) >= MIN_ROWS else None
    if cached is not None:
        console.note(
            f"once drawn, the map is kept in {cached} for the next start (--no-cache: it is not)"
        )
    start_work(catalog, values, seed, tree, cached)
    if loud := warning(host):
        say(f"rpml: warning: {loud}", err=True)
    url = address(listener)
    console.result({"address": url}, f"exploring on {url}  (Ctrl-C stops it)")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):  # the normal way to stop it
        make_server(app).run(sockets=[listener])


def describer(
    model: RPML, path: str, descriptor: opt.DescriptorOptions, whitening: str | None
) -> Describe:
    """Return a function from image to vector, checked on a sample image."""
    from rpml.pages.explorer.uploads import image_describer, sample_image
    from rpml.vision.backbone import Backbone
    from rpml.vision.pooling import load_whitening

    learned = load_whitening(whitening) if whitening else None
    describe = image_describer(Backbone(path), descriptor.recipe(), learned)
    size = len(describe(sample_image())[0])
    if size != model.n_features_in_:
        raise InputError(
            f"--backbone {path} gives vectors of {counted(size, 'dimension')}, the model takes "
            f"{model.n_features_in_}: give --scales, --pool and --whitening as for rpml features"
        )
    return describe
