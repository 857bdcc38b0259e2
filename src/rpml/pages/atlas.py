"""The map of an embedding as a table for embedding-atlas (extra 'parquet')."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

import numpy as np

from rpml.estimator import RPML
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.items import SIDES, Items, clusters_of, thumbnail
from rpml.pages.layout import linked_maps
from rpml.runtime.errors import InputError, require
from rpml.runtime.files import atomic_output, check_output
from rpml.runtime.rows import Array

N_NEIGHBORS = 15


def export_atlas(
    model: RPML,
    X: Array,
    items: Items,
    path: str | PathLike[str],
    random_state: int = 0,
    overwrite: bool = True,
) -> Path:
    """Write the rows as a .parquet table for embedding-atlas.

    Columns: id, x and y (the map of the embedding, as in the report and the explorer), text (the
    id if there is no text), label, cluster (-1 means noise), neighbors (15 rows and their cosine
    distances in the embedding) and, if the items have pictures, image.

    Parameters
    ----------
    model : RPML
        A fitted model.
    X : ndarray of shape (n_samples, n_features)
        Training rows, whose clusters are those of the fit, or others.
    items : Items
        Ids and optional labels, texts and pictures (`rpml.pages.items`).
    path : str or Path
        The .parquet file.
    random_state : int, default=0
        Seed of the map.
    overwrite : bool, default=True
        Replace the file if it exists; False raises an error instead.

    Returns
    -------
    Path
        The file written.
    """
    arrow = require("pyarrow", "parquet", "writing .parquet")
    parquet = require("pyarrow.parquet", "parquet", "writing .parquet")
    path = check_atlas(path, overwrite)
    Z, clusters = model.transform(X), clusters_of(model, X)
    points = linked_maps({"raw": X, "rpml": Z}, np.random.default_rng(random_state))["rpml"]
    near = nearest_neighbors(Z, min(N_NEIGHBORS, len(Z) - 1), metric="cosine")
    cosine_distances = near.distances**2 / 2  # from Euclidean distances of unit rows
    pairs = zip(near.indices.tolist(), cosine_distances.tolist(), strict=True)
    columns = {
        "id": items.ids,
        "x": points[:, 0],
        "y": points[:, 1],
        "text": [items.text(row) for row in range(len(items))],
        "cluster": model.predict(X) if clusters is None else clusters,
        "neighbors": [{"ids": ids, "distances": distances} for ids, distances in pairs],
    }
    if items.labels is not None:
        columns["label"] = items.labels
    if items.images is not None:
        columns["image"] = [image and _picture(image) for image in items.images]
    with atomic_output(path, overwrite) as temporary:
        parquet.write_table(arrow.table(columns), temporary)
    return path


def check_atlas(
    path: str | PathLike[str], overwrite: bool, inputs: Iterable[str | None] = ()
) -> Path:
    """Raise InputError if the name is not that of a .parquet file, or the file exists."""
    if Path(path).suffix.lower() != ".parquet":
        raise InputError(f"{path} is not the name of an atlas export: call it something.parquet")
    return check_output(Path(path), overwrite, inputs)


def _picture(path: Path) -> dict[str, object] | None:
    """Return a thumbnail as Hugging Face datasets store images; None if it cannot be read."""
    small = thumbnail(path, SIDES[0])
    return None if small is None else {"bytes": small, "path": path.name}
