"""An index as faiss' IndexPQ or IndexIVFPQ, with its codes and the map of the model in front."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from rpml.io.container import container_kind
from rpml.io.export import Affine, embedding_steps
from rpml.io.export.to_faiss import with_steps
from rpml.runtime.errors import ModelFormatError, require
from rpml.runtime.files import atomic_output
from rpml.search.index import Index

PROBED_RECALL, PROBES = 0.95, 200  # of the 10 nearest codes, by so many stored rows as queries


def faiss_index(index: Index, cells: int = 0) -> Any:
    """Return a faiss index that takes raw queries and compares codes by L2.

    Integer ids are kept; rows with other ids are numbered in their order. A finer code that
    rescores is left out. With `cells` a query looks into as many of them as find 95% of what a
    scan of all codes finds.
    """
    faiss = require("faiss", "export", "faiss export")
    if not len(index):
        raise ValueError("The index is empty: add rows first.")
    codec, codes, ids = index.codec, index.codes, index.ids
    size, axes = codec.width * codec.centroids.shape[2], codec.centroids.shape[2]
    inner = faiss.IndexPQ(size, codec.width, 8, faiss.METRIC_L2)
    assert inner.pq.dsub == axes
    faiss.copy_array_to_vector(codec.centroids.ravel(), inner.pq.centroids)
    inner.is_trained = True
    inner.add_sa_codes(np.ascontiguousarray(codec.indices(codes)))
    if cells:
        inner = _with_cells(faiss, inner, cells)
    turn = np.eye(size) if codec.rotation is None else codec.rotation
    whole = with_steps(faiss, [*embedding_steps(index.model), Affine(None, turn)], inner)
    numbered = ids.dtype == object and all(isinstance(i, int) for i in ids)
    whole.ntotal = 0  # an IDMap takes none but an empty index
    named = faiss.IndexIDMap(whole) if numbered else whole
    whole.ntotal = named.ntotal = inner.ntotal
    if numbered:
        faiss.copy_array_to_vector(ids.astype(np.int64), named.id_map)
    return named


def _with_cells(faiss: ModuleType, flat: Any, cells: int) -> Any:
    """Return the codes of an IndexPQ in an IndexIVFPQ of the same codebooks."""
    if cells > flat.ntotal:
        raise ValueError(
            f"An index of {flat.ntotal:,} rows cannot have {cells:,} cells: ask for fewer."
        )
    rows = flat.reconstruct_n(0, flat.ntotal)
    coarse = faiss.Kmeans(flat.d, cells, seed=0, min_points_per_centroid=1)
    coarse.train(rows)
    inner = faiss.IndexIVFPQ(coarse.index, flat.d, cells, flat.pq.M, 8)
    coarse.index.this.disown()
    inner.own_fields = True
    inner.by_residual, inner.pq, inner.is_trained = False, flat.pq, True
    inner.add(rows)  # a decoded row has the code it came from
    queries = rows[:: max(1, len(rows) // PROBES)]
    nearest = flat.search(queries, 10)[0][:, -1:]
    inner.nprobe = 1
    while inner.nprobe < cells:
        if np.mean(inner.search(queries, 10)[0] <= nearest) >= PROBED_RECALL:
            break
        inner.nprobe = min(cells, 2 * inner.nprobe)
    return inner


def write_faiss(index: Index, path: str, overwrite: bool = False, cells: int = 0) -> Path:
    """Write the index as a file of faiss."""
    faiss = require("faiss", "export", "faiss export")
    content = faiss.serialize_index(faiss_index(index, cells)).tobytes()
    with atomic_output(path, overwrite) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def is_index(path: str) -> bool:
    """Whether a file was written by `Index.save`."""
    try:
        return container_kind(path) == "index"
    except (ModelFormatError, OSError):
        return False
