"""Rank gain: label-free evidence of how well a method ranks neighbors found by other axes.

The principal axes are split into two disjoint halves, and the rows into two parts. The *held-out
neighbors* of a row are its nearest rows by one half of the axes. Every method is fitted to the
other half of the axes on one part of the rows, and ranks them on the other part. Its *rank gain* is
how much log(1 + rank) decreases relative to PCA. Noise in one half of the axes is independent of
noise in the other, so a method gains by retaining what rows really share.
"""

import warnings
from collections.abc import Sequence

import numpy as np

from rpml.evaluation.registry import METHODS, REFERENCE
from rpml.method.graph.heaps import nearest_rows
from rpml.method.whitening.constants import JUDGED_NEIGHBORS
from rpml.method.whitening.neighborhoods import columns, mean_log_ranks, random_halves
from rpml.runtime.intervals import Interval, mean_interval
from rpml.runtime.rows import Array, unit_rows

QUERIES = 1000
MAX_AXES = 512


def rank_gains(
    W: Array, methods: Sequence[str], size: int, rng: np.random.Generator
) -> dict[str, Interval]:
    """Return the rank gain over PCA of each method: the mean decrease of log(1 + rank).

    `W` are the rows in principal coordinates, strongest axis first; `size` is the size of the
    embeddings. The 95% intervals are over the queries; PCA, the reference, is always included.
    """
    W = W[:, :MAX_AXES]
    order = rng.permutation(len(W))
    seen, unseen = W[order[: len(W) // 2]], W[order[len(W) // 2 :]]
    queries = np.arange(min(QUERIES, len(unseen)))
    half = random_halves(W.shape[1], rng)
    log_ranks = {name: np.zeros(len(queries)) for name in (REFERENCE, *methods)}
    for one, other in ((half, ~half), (~half, half)):
        units = unit_rows(columns(unseen, other))
        held_out = nearest_rows(units[queries], units, JUDGED_NEIGHBORS, own=queries)[1]
        shown, asked = columns(seen, one), columns(unseen, one)
        room = max(1, min(size, int(one.sum()) // 2, len(seen) - 1))
        for name in log_ranks:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about fits to a part of the rows
                fitted = METHODS[name].build(room, 0).fit(shown)
            Z = fitted.transform(asked)
            log_ranks[name] += mean_log_ranks(Z, queries, held_out) / 2
    return {name: mean_interval(log_ranks[REFERENCE] - value) for name, value in log_ranks.items()}
