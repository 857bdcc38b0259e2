"""Groups and given classes of partitioned rows, used as in the local fit.

The group, cluster or class of each row is one number, which the client has; rows are brought
together on a worker only where vectors are compared.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.take import Partitions, deal
from rpml.method.clustering.pseudo_labels import class_of_nearest, rows_by_label
from rpml.method.supervision.constraints import Supervision
from rpml.method.whitening.groups import group_means
from rpml.runtime.rows import Array, Labels


def mean_instances(
    cluster: Cluster, rows: Partitions, of_row: Labels
) -> tuple[list[Task], NDArray[np.int64]]:
    """Return the mean row of each instance, in new partitions."""
    count = len(rows[0])
    edges = (int(of_row.max()) + 1) * np.arange(count + 1, dtype=np.int64) // count
    order = np.argsort(of_row, kind="stable")
    cuts = np.searchsorted(of_row[order], edges)
    wanted = [order[a:b] for a, b in pairwise(cuts.tolist())]
    values = deal(cluster, *rows, wanted)
    means = [
        cluster.submit(group_means, X, of_row[mine] - start)
        for X, mine, start in zip(values, wanted, edges, strict=False)
    ]
    return means, edges


def apply_classes(
    cluster: Cluster, rows: Partitions, basins: Labels, supervision: Supervision
) -> Labels:
    """Distributed `apply_supervision` for classes: each cluster gets the class of its labeled rows.

    Rows of clusters with several classes are gathered on workers and get the class of the nearest
    labeled row.
    """
    out = np.where(basins >= 0, basins + supervision.n_classes, -1)
    seeds = np.flatnonzero(supervision.is_classed() & (basins >= 0))
    low = np.full(int(basins.max(initial=-1)) + 1, supervision.n_classes)
    high = np.full(len(low), -1)
    np.minimum.at(low, basins[seeds], supervision.labels[seeds])
    np.maximum.at(high, basins[seeds], supervision.labels[seeds])
    pure, mixed = (np.append(which, False) for which in ((low == high), (low < high) & (high >= 0)))
    out = np.where(pure[basins], np.append(low, -1)[basins], out)
    cut = rows_by_label(np.where(mixed[basins], basins, -1))
    if cut:
        count = min(len(rows[0]), len(cut))
        bunches = [cut[len(cut) * i // count : len(cut) * (i + 1) // count] for i in range(count)]
        wanted = [np.concatenate(bunch) for bunch in bunches]
        tasks = [
            cluster.submit(_spread, X, basins[mine], supervision.labels[mine])
            for X, mine in zip(deal(cluster, *rows, wanted), wanted, strict=True)
        ]
        out[np.concatenate(wanted)] = np.concatenate(cluster.values(tasks))
    return np.where(supervision.is_classed(), supervision.labels, out)


def _spread(X: Array, basins: Labels, classes: Labels) -> Labels:
    """Return the class of each row of some complete clusters."""
    out = np.empty(len(X), np.intp)
    for mine in rows_by_label(basins):
        out[mine] = class_of_nearest(X[mine], classes[mine])
    return out
