"""Rows of several partitions gathered on one worker: samples, and the rows of triplets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.runtime.rows import Array

Partitions = tuple[Sequence[Task], NDArray[np.int64]]
"""(partitions, first row of each and the number of all)."""
Wanted = tuple[list[NDArray[np.integer]], NDArray[np.intp]]
"""(positions in each partition, the order that sorted the rows)."""


def take(
    cluster: Cluster,
    parts: Sequence[Task],
    edges: NDArray[np.int64],
    rows: NDArray[np.integer] | Task,
) -> Task:
    """Gather the given rows, in the given order, as one array on a worker."""
    return deal(cluster, parts, edges, [rows])[0]


def deal(
    cluster: Cluster,
    parts: Sequence[Task],
    edges: NDArray[np.int64],
    wanted: Sequence[NDArray[np.integer] | Task],
) -> list[Task]:
    """Gather several lists of rows, each given here or on a worker, as one array per list.

    Every partition is read once for all receivers, so that it can leave the memory again; each
    receiver gets only its own rows.
    """
    lists = [cluster.submit(_cut, rows, edges) for rows in wanted]
    pieces = [cluster.submit(_pick, part, i, lists) for i, part in enumerate(parts)]
    return [
        cluster.submit(_join, [cluster.item(piece, receiver) for piece in pieces], mine)
        for receiver, mine in enumerate(lists)
    ]


def _cut(rows: NDArray[np.integer], edges: NDArray[np.int64]) -> Wanted:
    order = np.argsort(rows, kind="stable")
    cuts = np.searchsorted(rows[order], edges)
    chosen = [rows[order[a:b]] - start for a, b, start in zip(cuts, cuts[1:], edges, strict=False)]
    return chosen, order


def _pick(part: Array, i: int, lists: list[Wanted]) -> list[Array]:
    return [part[chosen[i]] for chosen, _ in lists]


def _join(pieces: list[Array], wanted: Wanted) -> Array:
    """Restore the requested order."""
    order = wanted[1]
    out = np.empty((len(order), *pieces[0].shape[1:]), pieces[0].dtype)
    at = 0
    for piece in pieces:
        out[order[at : at + len(piece)]] = piece
        at += len(piece)
    return out
