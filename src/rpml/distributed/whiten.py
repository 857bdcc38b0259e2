"""Moments by reduction, and the whitening they give, as in `rpml.method.pipeline.prepare`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.source import PartitionedRows
from rpml.distributed.take import take
from rpml.method.pipeline import (
    Sample,
    scatter_rows,
    size_within,
    whiten_by_exponent,
    whiten_by_scatter,
)
from rpml.method.settings import FitSettings
from rpml.method.supervision.constraints import Supervision
from rpml.method.whitening.groups import Groups
from rpml.method.whitening.linear_map import (
    Preprocessing,
    Spectrum,
    identity,
    row_sum,
    second_moments,
    spectrum_of,
)
from rpml.method.whitening.neighborhoods import ScatterChoice
from rpml.runtime.context import Context
from rpml.runtime.threads import using_threads

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
    cluster: Cluster,
    rows: PartitionedRows,
    groups: Groups,
    config: FitSettings,
    context: Context,
    known: Supervision | None = None,
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
    sampled = scatter_rows(groups, known, rng)
    X = take(cluster, rows.parts, rows.edges, sampled)
    notes = groups[sampled], None if known is None else known.labels[sampled]
    # the generator goes on from where the sample was drawn, as it does in one process
    task = cluster.submit(_scatter, X, notes, spectrum, unit, wanted, rng)
    found: tuple[Preprocessing, ScatterChoice] = cluster.value(task)
    return found


def _scatter(
    X: Array,
    notes: tuple[Groups, Any],
    spectrum: Spectrum,
    unit: bool,
    wanted: int,
    rng: np.random.Generator,
) -> tuple[Preprocessing, ScatterChoice]:
    """The only task of its moment: it takes all threads of its worker."""
    sample = Sample(X, np.arange(len(X)), *notes)
    rng = copy.deepcopy(rng)  # run again, it is to draw the same
    with using_threads(get_worker().state.nthreads):
        return whiten_by_scatter(sample, spectrum, unit, wanted, rng)
