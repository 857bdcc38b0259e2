"""What a fit needs of rows on a cluster, in one pass: their moments and a sample of them.

Every partition is read once, in batches. The moments of a batch are taken about its own mean and in
its own unit of length, so that neither mean nor scale of all rows has to be known before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.source import PartitionedRows
from rpml.io.features.source import Batch
from rpml.method.whitening.linear_map import (
    Spectrum,
    lost_in_rounding,
    row_sum,
    second_moments,
    spectrum_of,
)
from rpml.runtime.context import Context
from rpml.runtime.digest import data_digest
from rpml.runtime.rows import Array, common_scale, divided, float_dtype, unit_rows
from rpml.runtime.schema import COUNT, ArraySpec, Number, Schema

Float = type[np.floating]
_STAGE = "rows"
_SCHEMA = Schema(
    {
        "values": ArraySpec("f", ("rows", "features")),
        "mean": ArraySpec("f", ("features",)),
        "products": ArraySpec("f", ("features", "features")),
    },
    {"n_rows": COUNT, "unit": Number(0, np.inf)},
)


class Moments(NamedTuple):
    """Mean of `n_rows` rows and products of their differences to it, in powers of a `unit`."""

    n_rows: int
    unit: float
    """A power of two, by which the rows were divided."""
    mean: Array
    products: Array
    """(d, d): sum over the rows of (x - mean)(x - mean)'."""

    def in_unit(self, unit: float) -> Moments:
        """Return the moments of the same rows, divided by another unit."""
        by = self.unit / unit
        return Moments(self.n_rows, unit, self.mean * by, self.products * (by * by))

    @property
    def scale(self) -> float:
        """The power of two nearest to the typical norm of a row, as by `common_scale`."""
        energy = float(np.trace(self.products) / self.n_rows + self.mean @ self.mean)
        if energy == 0:
            return 1.0
        return float(2.0 ** min(1023, round(math.log2(self.unit) + math.log2(energy) / 2)))

    def spectrum(self, unit: float, dtype: Float) -> Spectrum:
        """Return the principal axes of the rows of a precision, divided by the unit."""
        same = self.in_unit(unit)
        return spectrum_of(same.mean, same.products / same.n_rows, dtype)


def combined(parts: Sequence[Moments]) -> Moments:
    """Return the moments of all rows from those of their parts, in the largest unit."""
    unit = max(part.unit for part in parts)
    parts = [part.in_unit(unit) for part in parts]
    count = sum(part.n_rows for part in parts)
    mean = np.sum([part.n_rows / max(1, count) * part.mean for part in parts], axis=0)
    products = np.zeros_like(parts[0].products)
    for part in parts:
        away = part.mean - mean
        products += part.products + part.n_rows * np.outer(away, away)
    return Moments(count, unit, mean, products)


@dataclass(frozen=True, repr=False)
class SampledRows:
    """Rows of which some have been read: X[rows] are those, as for an array of all rows."""

    values: Array
    rows: NDArray[np.intp]
    """Which rows they are, ascending."""
    shape: tuple[int, int]

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return self.values.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.intp]) -> Array:
        return np.asarray(self.values[np.searchsorted(self.rows, rows)])

    def __repr__(self) -> str:
        """Return a digest, by which a checkpoint knows the rows."""
        return f"SampledRows({data_digest(self.values, self.rows, self.shape)})"


def read_all(cluster: Cluster, rows: PartitionedRows, context: Context) -> Array:
    """Return all rows."""
    tasks = rows.each(cluster, _values)
    cluster.wait(tasks, context, "read")
    values = np.concatenate([part for part in cluster.values(tasks) if len(part)])
    return values.astype(float_dtype(rows), copy=False)


def _values(batches: Iterator[Batch]) -> Array:
    blocks = [batch.values for batch in batches]
    return np.concatenate(blocks) if blocks else np.empty((0, 0))


def gather_rows(
    cluster: Cluster,
    rows: PartitionedRows,
    wanted: NDArray[np.intp],
    unit_norm: bool,
    context: Context,
) -> tuple[Array, Moments]:
    """Return the wanted rows, given in ascending order, and the moments of all (unit) rows.

    The pass over the rows is a stage of the checkpoint.
    """
    key = context.key(rows.digest(), wanted, unit_norm)
    if saved := context.load(_STAGE, _SCHEMA, key):
        arrays, figures = saved
        moments = figures["n_rows"], figures["unit"], arrays["mean"], arrays["products"]
        return arrays["values"], Moments(*moments)
    precision = float_dtype(rows)

    def measure(chosen: NDArray[np.intp], dtype: Float) -> tuple[list[Task], Task]:
        work = partial(_measured, rows.n_features, precision, unit_norm, dtype)
        tasks = rows.each(cluster, work, _positions(rows, chosen))
        return tasks, cluster.total([cluster.item(task, 0) for task in tasks], combined)

    tasks, total = measure(wanted, precision)
    cluster.wait(tasks, context, "read")
    values = np.concatenate(cluster.values([cluster.item(task, 1) for task in tasks]))
    result: Moments = cluster.value(total)
    if lost_in_rounding(result.spectrum(result.unit, precision), precision):
        result = cluster.value(measure(wanted[:0], np.float64)[1])
    arrays = {"values": values, "mean": result.mean, "products": result.products}
    context.save(_STAGE, arrays, {"n_rows": result.n_rows, "unit": result.unit}, key)
    return values, result


def _positions(rows: PartitionedRows, wanted: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return the wanted rows of each partition, by their position there."""
    cuts = np.searchsorted(wanted, rows.edges).tolist()
    starts = rows.edges[:-1].tolist()
    return [wanted[a:b] - start for (a, b), start in zip(pairwise(cuts), starts, strict=True)]


def _measured(
    width: int,
    precision: Float,
    unit_norm: bool,
    dtype: Float,
    batches: Iterator[Batch],
    wanted: NDArray[np.intp],
) -> tuple[Moments, Array]:
    """Return the moments of a partition, from products in `dtype`, and the wanted rows of it."""
    total = Moments(0, 1.0 if unit_norm else 2.0**-1000, np.zeros(width), np.zeros((width, width)))
    picked, seen = [np.empty((0, width), precision)], 0
    for batch in batches:
        rows = np.asarray(batch.values, precision)
        a, b = np.searchsorted(wanted, (seen, seen + len(rows)))
        picked.append(rows[wanted[a:b] - seen])
        seen += len(rows)
        unit = 1.0 if unit_norm else common_scale(rows)
        rows = unit_rows(rows) if unit_norm else divided(rows, unit)
        mean = row_sum(rows, False) / len(rows)
        products = second_moments(rows, mean, False, dtype)
        total = combined([total, Moments(len(rows), unit, mean, products)])
    return total, np.concatenate(picked)
