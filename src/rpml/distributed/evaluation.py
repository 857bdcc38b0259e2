"""Recall@K of rows on a cluster, by two passes over rows that stay on their workers.

The first finds the best score of a query among rows of its own class, the second counts the rows of
other classes that score no less. Each returns a few numbers per query and partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.source import PartitionedRows, open_rows
from rpml.evaluation.metrics._checks import check_metric, checked_ks
from rpml.evaluation.metrics.retrieval import (
    CORPUS_ROWS,
    QUERY_ROWS,
    Ball,
    best_in_own_class,
    count_other_classes,
    score_error,
    standardize,
    warn_of_trivial,
)
from rpml.io.features.labels import labeled_mask
from rpml.io.features.source import Batch
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, slices, sorted_sample
from rpml.runtime.wording import counted

MAX_QUERIES = 50_000


@dataclass(frozen=True)
class Queries:
    """Rows that are searched for."""

    values: Array
    codes: NDArray[np.int32]
    rows: NDArray[np.intp]
    ball: Ball | None
    """Of Euclidean distances."""
    dtype: type[np.floating] = np.float32


class Part(NamedTuple):
    """The labeled rows of a partition, sorted by class."""

    codes: NDArray[np.int32]
    rows: NDArray[np.intp]
    """Their numbers among all rows."""
    values: Array

    def ranges(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return where the rows of each class begin and end."""
        ends = [np.searchsorted(self.codes, codes, side) for side in ("left", "right")]
        return np.stack(ends, axis=1).astype(np.int64)

    def places(self, wanted: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return where the wanted rows, given in ascending order, are; -1 if not here."""
        out = np.full(len(wanted), -1, np.intp)
        here = np.isin(self.rows, wanted)
        out[np.searchsorted(wanted, self.rows[here])] = np.flatnonzero(here)
        return out


def evaluate(
    X: object,
    labels: ArrayLike,
    cluster: Cluster,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8),
    metric: str = "cosine",
    context: Context | None = None,
) -> dict[int, float]:
    """Compute Recall@K: how often one of the K nearest other rows has the row's label.

    Equal to `rpml.evaluation.metrics.recall_at_k` up to 50,000 labeled rows; of more, a random
    sample of 50,000 is searched for among all of them.

    Parameters
    ----------
    X : Dask array, Dask DataFrame, path of shards, or PartitionedRows
        For instance the result of `embedded`.
    labels : array-like of shape (n_samples,)
        One label per row; rows with None, -1 or empty text are ignored.
    cluster : Cluster
    ks : tuple of int, default=(1, 2, 4, 8)
    metric : {"cosine", "euclidean"}, default="cosine"
    context : Context, default=None
        Receives progress.
    """
    check_metric(metric)
    rows, y, wanted = open_rows(X, cluster), np.asarray(labels), checked_ks(ks)
    if len(y) != rows.count:
        raise ValueError(f"got {counted(len(y), 'label')} for {counted(rows.count, 'row')}")
    labeled = labeled_mask(y)
    if not labeled.any():
        raise InputError("no row has a label: every label is empty or -1")
    codes = np.full(len(y), -1, np.int32)
    codes[labeled] = np.unique(y[labeled], return_inverse=True)[1]
    warn_of_trivial(y[labeled], int(labeled.sum()), wanted)
    ranks = _ranks(cluster, rows, codes, metric, max(wanted), context or Context())
    return {k: float(np.mean(ranks < min(k, labeled.sum()))) for k in wanted}


def _ranks(
    cluster: Cluster,
    rows: PartitionedRows,
    codes: NDArray[np.int32],
    metric: str,
    exact_to: int,
    context: Context,
) -> NDArray[np.int64]:
    """Count the rows of other classes that rank before the first right one, for each query."""
    labeled = np.flatnonzero(codes >= 0)
    chosen = labeled[sorted_sample(len(labeled), MAX_QUERIES, context.rng("recall"))]
    inside = np.split(codes, rows.edges[1:-1])
    parts = rows.each(cluster, _by_class, inside, rows.edges[:-1].tolist())
    cluster.wait(parts, context, "read")
    found = cluster.values(cluster.each(_pick, parts, [chosen] * len(parts)))
    values = np.empty((len(chosen), rows.n_features), found[0][1].dtype)
    for places, picked in found:
        values[places] = picked
    ball = None
    if metric == "euclidean":
        center = values.mean(axis=0, dtype=np.float64)
        reach = cluster.values(cluster.each(_reach, parts, [center] * len(parts)))
        ball = center, max(reach) or 1.0
    queries = Queries(values, codes[chosen], chosen, ball)
    best, counts = _search(cluster, parts, queries, context)
    # if single precision cannot tell which of two rows is nearer, double precision decides
    unsure = np.flatnonzero((counts[:, 0] != counts[:, 1]) & (counts[:, 1] < exact_to))
    if len(unsure):
        again = Queries(values[unsure], queries.codes[unsure], chosen[unsure], ball, np.float64)
        counts[unsure] = _search(cluster, parts, again, context)[1]
    return np.where(np.isneginf(best), len(labeled), counts[:, 0])


def _search(
    cluster: Cluster, parts: list[Task], queries: Queries, context: Context
) -> tuple[Array, NDArray[np.int64]]:
    """Return the best right score of each query, and how many wrong ones are no less."""
    held = cluster.hold(queries)
    best = cluster.total(cluster.each(_best, parts, [held] * len(parts)), _largest)
    counts = cluster.each(_count, parts, [held] * len(parts), [best] * len(parts))
    cluster.wait(counts, context, "recall")
    total: NDArray[np.int64] = cluster.value(cluster.total(counts, _sum))
    return cluster.value(best), total


def _by_class(batches: Iterator[Batch], codes: NDArray[np.int32], start: int) -> Part:
    """Load the labeled rows of a partition, sorted by class."""
    inside = np.flatnonzero(codes >= 0)
    blocks, seen = [], 0
    for batch in batches:
        stop = seen + len(batch.values)
        blocks.append(batch.values[inside[(inside >= seen) & (inside < stop)] - seen])
        seen = stop
    order = np.argsort(codes[inside], kind="stable")
    rows = inside[order]
    return Part(codes[rows], rows + start, np.concatenate(blocks)[order])


def _pick(part: Part, wanted: NDArray[np.intp]) -> tuple[NDArray[np.intp], Array]:
    """Return the wanted rows of a partition, and their places among all wanted ones."""
    at = part.places(wanted)
    here = np.flatnonzero(at >= 0)
    return here, part.values[at[here]]


def _reach(part: Part, center: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.max(np.square(part.values - center).sum(axis=1), initial=0.0)))


def _best(part: Part, queries: Queries) -> Array:
    best = np.full(len(queries.rows), -np.inf, queries.dtype)
    own, me = part.ranges(queries.codes), part.places(queries.rows)
    for q, columns, scores in _tiles(part, queries):
        best_in_own_class(scores, columns, own[q], me[q], best[q])
    return best


def _count(part: Part, queries: Queries, best: Array) -> NDArray[np.int64]:
    """Count wrong rows at or above the best score less, and plus, its rounding error."""
    counts = np.zeros((len(queries.rows), 2), np.int64)
    error = score_error(queries.dtype, part.values.shape[1] + (queries.ball is not None))
    limits = np.stack([best - error, best + error], axis=1).astype(queries.dtype)
    own = part.ranges(queries.codes)
    for q, columns, scores in _tiles(part, queries):
        count_other_classes(scores, columns, own[q], limits[q], counts[q])
    return counts


def _tiles(part: Part, queries: Queries) -> Iterator[tuple[slice, tuple[int, int], Array]]:
    """Yield (some of the queries, some of the rows, their scores)."""
    corpus = standardize(part.values, queries.ball).astype(queries.dtype)
    wanted = standardize(queries.values, queries.ball).astype(queries.dtype)
    if queries.ball is not None:
        wanted[:, -1] = 1
    for q in slices(len(wanted), QUERY_ROWS):
        for rows in slices(len(corpus), CORPUS_ROWS):
            yield q, (rows.start, rows.stop), wanted[q] @ corpus[rows].T


def _largest(parts: list[Array]) -> Array:
    return np.asarray(np.max(parts, axis=0))


def _sum(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.asarray(np.sum(parts, axis=0))
