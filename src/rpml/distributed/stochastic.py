"""sRPML on many workers: each goes through its own clusters, an epoch ends at the mean of all.

The mean over workers is the one that `average=True` takes over the iterates of an epoch, so one
worker alone is `rpml.stochastic` itself. Whole clusters are dealt to the workers, those that span
shards too, since batches are drawn within a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.take import deal
from rpml.distributed.triplets import deal_clusters
from rpml.stochastic import BatchSettings, EpochState, IterateMean, run_epoch

Array = NDArray[np.floating]
Parts = tuple[list[Task], list[Task]]


def deal_rows(
    cluster: Cluster,
    rows: tuple[Sequence[Task], NDArray[np.int64]],
    labels: NDArray[np.intp],
    rng: np.random.Generator,
) -> Parts:
    """Rows and labels of whole clusters, one part a thread of the cluster."""
    parts = sum(cluster.workers().values())
    dealt = [rows for rows in deal_clusters(labels, parts, rng) if rows.size]
    values = deal(cluster, *rows, dealt)
    return values, [cluster.hold(labels[mine]) for mine in dealt]


def distributed_epoch(
    cluster: Cluster,
    parts: Parts,
    state: EpochState,
    settings: BatchSettings,
    rng: np.random.Generator,
) -> None:
    """One epoch of every part from the same point; changes the state to their mean."""
    start = cluster.hold((state.L, state.theta))
    count = len(parts[0])
    streams = rng.spawn(count) if count > 1 else [rng]  # one part draws as one machine does
    tasks = [
        cluster.submit(_epoch, X, labels, start, settings, stream)
        for X, labels, stream in zip(*parts, streams, strict=True)
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
    X: Array,
    labels: NDArray[Any],
    start: tuple[Array, Any],
    settings: BatchSettings,
    rng: np.random.Generator,
) -> tuple[Array, Any, list[float]]:
    state = EpochState(*start)
    run_epoch(X, labels, state, settings, rng)
    names = ("loss", "gradient_norm", "mean_weight", "n_triplets")
    return state.L, state.theta, [state.history[name][-1] for name in names]
