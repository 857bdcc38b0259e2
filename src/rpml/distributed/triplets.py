"""Triplets of a partitioned dataset.

They are drawn by the core's sampler from the labels, which the client has, so that they are those
of a fit on one machine. Beyond `POOL` rows only a pool of whole clusters takes part: a few hundred
thousand triplets read no more rows than that anyway. The triplets are then dealt to the workers by
their anchors, and each worker fetches the positives and negatives that lie elsewhere, so clusters
that span shards are learned like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.context import Context
from rpml.groups import Groups
from rpml.pipeline import Config
from rpml.triplets import sample_triplets

Labels = NDArray[np.intp]
POOL = 8_000_000  # rows; at least, as many for every triplet asked for


def draw_triplets(
    labels: Labels, groups: Groups, config: Config, context: Context
) -> NDArray[np.intp]:
    """T of Algorithm 1, as `rpml.pipeline.draw_triplets` draws it."""
    if config.sampler != "uniform":
        raise ValueError(
            f"sampler={config.sampler!r} is not available on Dask: use sampler='uniform'."
        )
    rng = context.rng("triplets")
    limit = max(POOL, 4 * config.max_triplets)

    def draw(labels: Labels, most: int) -> NDArray[np.intp]:
        rows = pool(labels, limit, rng)
        known = labels if rows is None else labels[rows]
        together = groups if rows is None else groups[rows]
        total = most if len(labels) * config.triplets_per_anchor > most else None
        drawn = sample_triplets(
            known, rng, per_anchor=config.triplets_per_anchor, total=total, groups=together
        )
        return drawn if rows is None else rows[drawn]

    if groups.max() < 0:
        return draw(labels, config.max_triplets)
    half = config.max_triplets // 2
    return np.vstack([draw(labels, half), draw(groups, half)])


def pool(labels: Labels, limit: int, rng: np.random.Generator) -> NDArray[np.intp] | None:
    """Rows of randomly chosen whole clusters, about `limit` in all; None: every row."""
    if len(labels) <= limit:
        return None
    sizes = np.bincount(labels[labels >= 0])
    order = rng.permutation(len(sizes))
    kept = np.zeros(len(sizes) + 1, bool)  # the last entry stands for label -1
    kept[order[: max(2, int(np.searchsorted(np.cumsum(sizes[order]), limit)))]] = True
    return np.flatnonzero(kept[labels])


def deal_clusters(labels: Labels, parts: int, rng: np.random.Generator) -> list[NDArray[Any]]:
    """Rows of whole clusters, about equally many a part, for batches drawn within a part."""
    sizes = np.bincount(labels[labels >= 0])
    order = rng.permutation(len(sizes))
    part = np.empty(len(sizes) + 1, np.intp)
    part[order] = (np.cumsum(sizes[order]) - 1) * parts // max(1, int(sizes.sum()))
    part[-1] = parts  # rows without a cluster take part nowhere
    of_row = part[labels]
    return [np.flatnonzero(of_row == i) for i in range(parts)]
