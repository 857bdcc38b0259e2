"""How rows are compared in a search, identically on every worker."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.method.graph import exact
from rpml.runtime.rows import Array

Extent = tuple[Array, Array, Array, int]
"""Minimum, maximum and sum of every column, and the number of rows."""


@dataclass(frozen=True)
class Frame:
    """Metric, center and unit of length of a `SearchCorpus`, from all rows."""

    metric: str
    center: NDArray[np.float64]
    unit: float = 1.0

    def prepare(self, block: Array) -> Array:
        """Return rows ready for products."""
        return exact.prepare(block, self.metric, np.float32, self.center, self.unit)

    def rows(self, block: Array) -> exact.SearchCorpus:
        """Return a block of rows as a corpus for the search."""
        if self.metric == "cosine":
            half = np.full(len(block), 0.5)
        else:
            doubles = exact.prepare(block, self.metric, np.float64, self.center, self.unit)
            half = 0.5 * np.einsum("ij,ij->i", doubles, doubles)
        return exact.SearchCorpus(block, self.metric, self.center, self.unit, half)


def find_frame(cluster: Cluster, parts: Sequence[Task], metric: str) -> Frame:
    """Compute the frame; Euclidean distances need the range and the mean of every column."""
    if metric == "cosine":
        return Frame(metric, np.zeros(1))
    if metric != "euclidean":
        raise ValueError(f"metric={metric!r}: use 'cosine' or 'euclidean'")
    ranges = [cluster.submit(_range, part) for part in parts]
    low, high, total, count = cluster.value(cluster.total(ranges, _widest))
    return Frame(metric, *exact.center_and_unit(low, high, total / count))


def _range(part: Array) -> Extent:
    total = part.sum(axis=0, dtype=np.float64)
    return part.min(axis=0).astype(float), part.max(axis=0).astype(float), total, len(part)


def _widest(parts: list[Extent]) -> Extent:
    low, high, total, count = zip(*parts, strict=True)
    return np.min(low, axis=0), np.max(high, axis=0), np.sum(total, axis=0), sum(count)
