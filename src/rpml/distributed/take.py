"""Some rows of the partitions brought together on one worker: samples, and what triplets read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task


def take(
    cluster: Cluster, parts: Sequence[Task], edges: NDArray[np.int64], rows: NDArray[Any]
) -> Task:
    """The given rows, in the given order, as one array on a worker."""
    return deal(cluster, parts, edges, [rows])[0]


def deal(
    cluster: Cluster,
    parts: Sequence[Task],
    edges: NDArray[np.int64],
    wanted: Sequence[NDArray[Any]],
) -> list[Task]:
    """For each list of rows the array of these rows.

    Every partition is asked once for what all receivers want of it, so that it may leave the
    memory again; each receiver gets its own piece only.
    """
    orders = [np.argsort(rows, kind="stable") for rows in wanted]
    cuts = [np.searchsorted(rows[order], edges) for rows, order in zip(wanted, orders, strict=True)]
    pieces: list[list[Task]] = [[] for _ in wanted]
    for i, part in enumerate(parts):
        chosen = [
            rows[order[cut[i] : cut[i + 1]]] - edges[i]
            for rows, order, cut in zip(wanted, orders, cuts, strict=True)
        ]
        receivers = [r for r, rows in enumerate(chosen) if rows.size]
        if not receivers:
            continue
        given = cluster.submit(_pick, part, [chosen[r] for r in receivers])
        for place, receiver in enumerate(receivers):
            pieces[receiver].append(cluster.item(given, place))
    return [cluster.submit(_join, mine, order) for mine, order in zip(pieces, orders, strict=True)]


def _pick(part: Any, chosen: list[NDArray[Any]]) -> list[Any]:
    return [part[rows] for rows in chosen]


def _join(pieces: list[NDArray[Any]], order: NDArray[np.intp]) -> NDArray[Any]:
    """Undo the order in which the partitions gave the rows."""
    out = np.empty((len(order), *pieces[0].shape[1:]), pieces[0].dtype)
    at = 0
    for piece in pieces:
        out[order[at : at + len(piece)]] = piece
        at += len(piece)
    return out
