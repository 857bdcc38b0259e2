"""An index as faiss' IndexPQ, with its codes and the map of the model in front."""

from pathlib import Path
from typing import Any

import numpy as np

from rpml.io.container import container_kind
from rpml.io.export import Affine, embedding_steps
from rpml.io.export.to_faiss import with_steps
from rpml.method.codes import Int8Codec, rotation
from rpml.runtime.errors import ModelFormatError
from rpml.runtime.extras import require
from rpml.runtime.files import atomic_output
from rpml.search.index import Index


def faiss_index(index: Index) -> Any:
    """Return a faiss index that takes raw queries and compares codes by L2.

    Integer ids are kept; rows with other ids are numbered in their order. A finer code that
    rescores is left out.
    """
    faiss = require("faiss", "export", "faiss export")
    codec, codes, ids = index.codec, index.codes, index.ids
    size, axes = codec.width * codec.centroids.shape[2], codec.centroids.shape[2]
    inner = faiss.IndexPQ(size, codec.width, 8, faiss.METRIC_L2)
    assert inner.pq.dsub == axes
    faiss.copy_array_to_vector(codec.centroids.ravel(), inner.pq.centroids)
    inner.is_trained = True
    turn = np.eye(size) if isinstance(codec, Int8Codec) else rotation(codec.size)
    turn = np.pad(turn, ((0, 0), (0, size - turn.shape[1])))
    whole = with_steps(faiss, [*embedding_steps(index.model), Affine(None, turn)], inner)
    numbered = ids.dtype == object and all(isinstance(i, int) for i in ids)
    named = faiss.IndexIDMap(whole) if numbered else whole  # which must be empty
    inner.add_sa_codes(np.ascontiguousarray(codec.indices(codes)))
    whole.ntotal = named.ntotal = inner.ntotal
    if numbered:
        faiss.copy_array_to_vector(ids.astype(np.int64), named.id_map)
    return named


def write_faiss(index: Index, path: str, overwrite: bool = False) -> Path:
    """Write the index as a file of faiss."""
    faiss = require("faiss", "export", "faiss export")
    content = faiss.serialize_index(faiss_index(index)).tobytes()
    with atomic_output(path, overwrite) as temporary:
        temporary.write_bytes(content)
    return Path(path)


def is_index(path: str) -> bool:
    """Whether a file was written by `Index.save`."""
    try:
        return container_kind(path) == "index"
    except (ModelFormatError, OSError):
        return False
