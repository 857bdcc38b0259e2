"""Neighbors in the checkpoint, one file per partition, written and read by the workers.

A fit spends most of its time on them. All workers must be able to access the folder, as on one
machine or with a shared disk; otherwise the search is repeated on resume.
"""

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster
from rpml.distributed.knn import Graph
from rpml.distributed.source import Piece, cut
from rpml.io.container import read_container, write_container
from rpml.method.graph.neighbors import Neighbors
from rpml.runtime.context import Context
from rpml.runtime.errors import ModelFormatError
from rpml.runtime.schema import COUNT, ArraySpec, Number, Schema

logger = logging.getLogger(__name__)
_NAME, _KIND, _VERSION = "graph", "neighbors", 1
_FIGURES = {"n_neighbors": COUNT, "recall": Number(0, 1), "metric": str, "method": str}
_SCHEMA = Schema({"edges": ArraySpec("i", ("edges",), 0)}, _FIGURES)


def save_graph(cluster: Cluster, graph: Graph, context: Context, key: str) -> None:
    """Write the neighbors of every partition, then the entry that completes them."""
    if context.store is None:
        return
    paths = _paths(context, len(graph.parts))
    tasks = [
        cluster.submit(_write, path, part) for path, part in zip(paths, graph.parts, strict=True)
    ]
    cluster.wait(tasks, context, "keep")
    if not all(Path(path).is_file() for path in paths):
        logger.warning("the workers do not see %s: neighbors are not kept", Path(paths[0]).parent)
        return
    figures = {"n_neighbors": graph.n_neighbors, "recall": graph.recall}
    names = {"metric": graph.metric, "method": graph.method}
    context.save(_NAME, {"edges": graph.edges}, {**figures, **names}, key)


def load_graph(
    cluster: Cluster, edges: NDArray[np.int64], context: Context, key: str
) -> Graph | None:
    """Load saved neighbors, whatever partitions wrote them; None if there are none."""
    saved = context.load(_NAME, _SCHEMA, key)
    if saved is None:
        return None
    sizes = np.diff(saved[0]["edges"])
    figures = {name: saved[1][name] for name in _FIGURES}
    paths, n = _paths(context, len(sizes)), int(edges[-1])
    whole = (sizes > 0).all() and sizes.sum() == n
    if not whole or not all(Path(path).is_file() for path in paths):
        return None
    intact = [cluster.submit(_intact, p, s, n) for p, s in zip(paths, sizes.tolist(), strict=True)]
    if not all(cluster.value(task) for task in intact):
        logger.warning("%s has a damaged part: neighbors are searched again", Path(paths[0]).parent)
        return None
    parts = [cluster.submit(_read, pieces) for pieces in cut(paths, sizes.tolist(), edges)]
    return Graph(parts, edges, **figures)


def _paths(context: Context, count: int) -> list[str]:
    assert context.store is not None
    return [str(context.store.path(f"{_NAME}-{i:05d}").absolute()) for i in range(count)]


def _write(path: str, lists: Neighbors) -> None:
    if Path(path).parent.is_dir():
        arrays = {"indices": lists.indices, "distances": lists.distances}
        write_container(path, arrays, {"metric": lists.metric}, _KIND, _VERSION)


def _intact(path: str, size: int, n: int) -> bool:
    try:
        arrays, fields = read_container(path, _KIND, _VERSION)
        Schema(Neighbors.schema(size, n).arrays, {"metric": str}).check(arrays, fields["metadata"])
    except ModelFormatError:
        return False
    return True


def _read(pieces: list[Piece]) -> Neighbors:
    containers = [(piece, *read_container(piece.path, _KIND, _VERSION)) for piece in pieces]
    indices, distances = (
        np.concatenate([arrays[name][piece.start : piece.stop] for piece, arrays, _ in containers])
        for name in ("indices", "distances")
    )
    return Neighbors(indices, distances, containers[0][2]["metadata"]["metric"], method="dask")
