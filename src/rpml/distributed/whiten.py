"""Distributed moments, and the whitening computed from them."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from distributed import get_worker

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.source import PartitionedRows
from rpml.distributed.take import take
from rpml.method.settings import FitInputs
from rpml.method.whitening.choice import (
    Sample,
    Whitening,
    WhiteningSettings,
    scatter_rows,
    size_within,
    whiten_by_exponent,
    whiten_by_scatter,
)
from rpml.method.whitening.linear_map import (
    Spectrum,
    identity,
    lost_in_rounding,
    row_sum,
    second_moments,
    spectrum_of,
)
from rpml.runtime.context import Context
from rpml.runtime.rows import Array, float_dtype
from rpml.runtime.threads import using_threads


def mean_and_covariance(
    cluster: Cluster, parts: Sequence[Task], count: int, unit: bool, context: Context
) -> tuple[Array, Array]:
    """Compute moments of all (unit) rows; only d and d x d numbers reach the client."""
    sums = cluster.each(row_sum, parts, unit)
    cluster.wait(sums, context, "whiten")
    mean = cluster.value(cluster.total(sums)) / count
    moments = cluster.each(second_moments, parts, cluster.hold(mean), unit)
    return mean, cluster.value(cluster.total(moments)) / count


def row_spectrum(cluster: Cluster, rows: PartitionedRows, unit: bool, context: Context) -> Spectrum:
    """Compute the principal axes of all (unit) rows."""
    mean, covariance = mean_and_covariance(cluster, rows.parts, rows.count, unit, context)
    precision = float_dtype(rows)
    spectrum = spectrum_of(mean, covariance, precision)
    if not lost_in_rounding(spectrum, precision):
        return spectrum
    precise = cluster.each(second_moments, rows.parts, mean, unit, np.float64)
    return spectrum_of(mean, cluster.value(cluster.total(precise)) / rows.count, precision)


def choose_whitening(
    cluster: Cluster,
    rows: PartitionedRows,
    inputs: FitInputs,
    settings: WhiteningSettings,
    context: Context,
) -> Whitening:
    """Choose the whitening from moments of all rows and a sample of them."""
    unit = settings.normalize_input
    if settings.whiten is None:
        return Whitening(identity(rows.n_features, unit), None)
    spectrum = row_spectrum(cluster, rows, unit, context)
    size = size_within(spectrum, rows.shape, settings)
    if not isinstance(settings.whiten, str):
        return Whitening(whiten_by_exponent(spectrum, size, settings), None)
    rng, classes = context.rng("whiten"), inputs.classes
    sampled = scatter_rows(inputs.groups, classes, rng)
    X = take(cluster, rows.parts, rows.edges, sampled)
    sampled_classes = None if classes is None else classes[sampled]
    sample = Sample(
        np.empty((0, 0)), np.arange(len(sampled)), inputs.groups[sampled], sampled_classes
    )
    # the generator continues after drawing the sample, as in the local fit
    task = cluster.submit(_by_scatter, X, sample, spectrum, unit, size, rng)
    whitening: Whitening = cluster.value(task)
    return whitening


def _by_scatter(
    X: Array, sample: Sample, spectrum: Spectrum, unit: bool, size: int, rng: np.random.Generator
) -> Whitening:
    """Choose on one worker with all of its threads, since no other task is running."""
    rng = copy.deepcopy(rng)  # a repeated task draws the same
    with using_threads(get_worker().state.nthreads):
        return whiten_by_scatter(replace(sample, X=X), spectrum, unit, size, rng)
