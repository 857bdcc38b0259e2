"""Exemplars of the clusters, found on the workers."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster
from rpml.distributed.take import Partitions
from rpml.method.clustering.exemplars import Exemplars, middle_rows, piece_sums, pieces_of
from rpml.runtime.rows import Array, Labels

Best = tuple[Array, NDArray[np.intp]]


def find_exemplars(
    cluster: Cluster,
    rows: Partitions,
    L: Array,
    basins: Labels,
    labels: Labels,
) -> Exemplars:
    """Find the direction of each cluster by a sum, then the row most similar to it."""
    parts, edges = rows
    piece, sizes = pieces_of(basins, labels)
    held = cluster.hold(L)
    own = [cluster.hold(piece[a:b]) for a, b in pairwise(edges.tolist())]
    sums = cluster.total(
        [
            cluster.submit(_sums, *partition, held, len(sizes))
            for partition in zip(parts, own, strict=True)
        ]
    )
    middles = [
        cluster.submit(_middles, *partition, held, sums, int(start))
        for *partition, start in zip(parts, own, edges[:-1], strict=True)
    ]
    chosen = cluster.value(cluster.total(middles, _best))[1]
    return Exemplars(chosen, labels[chosen], sizes)


def _sums(part: Array, piece: Labels, L: Array, count: int) -> Array:
    return piece_sums(part @ L.astype(part.dtype), piece, count)


def _middles(part: Array, piece: Labels, L: Array, sums: Array, start: int) -> Best:
    similarity, rows = middle_rows(part @ L.astype(part.dtype), piece, sums)
    return similarity, np.where(rows < 0, -1, rows + start)


def _best(parts: list[Best]) -> Best:
    """Return the most similar row of each piece; the first one on ties."""
    similarity, rows = (np.stack(column) for column in zip(*parts, strict=True))
    first = similarity.argmax(axis=0), np.arange(similarity.shape[1])
    return similarity[first], rows[first]
