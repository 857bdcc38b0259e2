"""sRPML on many workers: each trains on its own clusters, and an epoch ends at the mean.

This is the mean that `average=True` takes over the iterates of an epoch, so a single worker equals
the local solver. Since batches are drawn within a worker, whole clusters are assigned to workers,
also those that span shards.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.take import Partitions
from rpml.method.solver.stochastic import BatchSettings, EpochState, IterateMean, run_epoch
from rpml.runtime.rows import Array, Labels

Dealt = tuple[Array, Labels, NDArray[np.bool_]]
"""(rows, labels, which of them have a label)."""


def deal_rows(
    cluster: Cluster,
    rows: Partitions,
    labels: Labels,
    labeled: NDArray[np.bool_],
    rng: np.random.Generator,
) -> list[Task]:
    """Distribute whole clusters, one `Dealt` per thread; every partition splits its own rows."""
    part_of = deal_clusters(labels, sum(cluster.workers().values()), rng)
    count = int(part_of.max()) + 1
    dealt = [
        cluster.submit(_divide, part, labels[a:b], labeled[a:b], part_of, count)
        for part, (a, b) in zip(rows[0], pairwise(rows[1].tolist()), strict=True)
    ]
    return [
        cluster.submit(_gather, [cluster.item(task, i) for task in dealt]) for i in range(count)
    ]


def deal_clusters(labels: Labels, parts: int, rng: np.random.Generator) -> Labels:
    """Return the part of each cluster; the last entry, for rows without a cluster, is -1.

    Parts have about equally many rows and none is empty, so there may be fewer than asked for.
    """
    sizes = np.bincount(labels[labels >= 0])
    order = rng.permutation(len(sizes))
    part = np.empty(len(sizes), np.intp)
    part[order] = (np.cumsum(sizes[order]) - 1) * parts // max(1, int(sizes.sum()))
    used = np.unique(part[sizes > 0])
    return np.append(np.searchsorted(used, part), -1)


def _divide(
    part: Array, labels: Labels, labeled: NDArray[np.bool_], part_of: Labels, count: int
) -> list[Dealt]:
    whose = part_of[labels]
    places = [np.flatnonzero(whose == i) for i in range(count)]
    return [(part[mine], labels[mine], labeled[mine]) for mine in places]


def _gather(pieces: list[Dealt]) -> Dealt:
    rows, labels, labeled = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return rows, labels, labeled


def distributed_epoch(
    cluster: Cluster,
    parts: Sequence[Task],
    state: EpochState,
    settings: BatchSettings,
    rng: np.random.Generator,
) -> None:
    """Run one epoch of every part from the same point; set the state to their mean."""
    start = cluster.hold((state.L, state.theta))
    streams = rng.spawn(len(parts)) if len(parts) > 1 else [rng]  # one part equals a local fit
    tasks = [
        cluster.submit(_epoch, part, start, settings, stream)
        for part, stream in zip(parts, streams, strict=True)
    ]
    mean = IterateMean(state)
    figures = np.zeros(3)
    triplets = 0.0
    for task in tasks:
        L, theta, (loss, norm, weight, count) = cluster.value(task)
        if count:
            mean.add(EpochState(L, theta))
            figures += count * np.array([loss, norm, weight])
            triplets += count
    if mean.count:
        state.L, state.theta = mean.point() if len(tasks) > 1 else (L, theta)
    for name, total in zip(("loss", "gradient_norm", "mean_weight"), figures, strict=True):
        state.history[name].append(float(total / max(1.0, triplets)))
    state.history["n_triplets"].append(triplets)


def _epoch(
    part: Dealt,
    start: tuple[Array, Array | None],
    settings: BatchSettings,
    rng: np.random.Generator,
) -> tuple[Array, Array | None, list[float]]:
    X, labels, labeled = part
    state = EpochState(*start)
    settings = replace(settings, labeled=labeled if labeled.any() else None)
    run_epoch(X, labels, state, settings, copy.deepcopy(rng))  # a repeated task draws the same
    names = ("loss", "gradient_norm", "mean_weight", "n_triplets")
    return state.L, state.theta, [state.history[name][-1] for name in names]
