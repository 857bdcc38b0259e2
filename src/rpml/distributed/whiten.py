"""Moments by reduction, and the whitening they give, as in `rpml.pipeline.prepare`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from rpml._threads import using_threads
from rpml.context import Context
from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.source import Rows
from rpml.distributed.take import take
from rpml.groups import Groups, sample_rows
from rpml.pipeline import Config, size_within, whiten_by_exponent, whiten_by_scatter
from rpml.preprocess import (
    Preprocessing,
    identity,
    row_sum,
    second_moments,
    spectrum_of,
)
from rpml.scatter import MAX_ROWS, ScatterChoice

Array = NDArray[np.floating]


def mean_and_covariance(
    cluster: Cluster, parts: Sequence[Task], count: int, unit: bool, context: Context
) -> tuple[Array, Array]:
    """Of all rows (scaled to unit norm): d and d x d numbers reach the client."""
    sums = [cluster.submit(row_sum, part, unit) for part in parts]
    cluster.wait(sums, context, "whiten")
    mean = cluster.value(cluster.total(sums)) / count
    held = cluster.hold(mean)
    moments = [cluster.submit(second_moments, part, held, unit) for part in parts]
    return mean, cluster.value(cluster.total(moments)) / count


def prepare(
    cluster: Cluster, rows: Rows, groups: Groups, config: Config, context: Context
) -> tuple[Preprocessing, ScatterChoice | None]:
    """Centre and whiten, decided from moments of all rows and a sample of them."""
    unit = config.normalize_input
    if config.whiten is None:
        return identity(rows.width, unit), None
    spectrum = spectrum_of(*mean_and_covariance(cluster, rows.parts, rows.count, unit, context))
    wanted = size_within(spectrum, rows.shape, config)
    if not isinstance(config.whiten, str):
        return whiten_by_exponent(spectrum, wanted, config), None
    rng = context.rng("whiten")
    sampled = sample_rows(groups, MAX_ROWS, rng)
    sample = take(cluster, rows.parts, rows.edges, sampled)
    # the generator goes on from where the sample was drawn, as it does in one process
    found: tuple[Preprocessing, ScatterChoice] = cluster.value(
        cluster.submit(_scatter, sample, groups[sampled], spectrum, unit, wanted, rng)
    )
    return found


def _scatter(*arguments: Any) -> tuple[Preprocessing, ScatterChoice]:
    """The only task of its moment: it takes all threads of its worker."""
    with using_threads(get_worker().state.nthreads):
        return whiten_by_scatter(*arguments)
