"""Recall@K of rows on a cluster, by one pass over rows that stay on their workers.

Of each query a partition returns the best score among rows of its own class, and the K best among
rows of other classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.distributed.cluster import Cluster
from rpml.distributed.source import PartitionedRows, open_rows
from rpml.evaluation.metrics.retrieval import (
    Ball,
    ball_around,
    check_metric,
    checked_ks,
    score_error,
    standardize,
    warn_of_trivial,
)
from rpml.io.features.labels import labeled_mask
from rpml.io.features.source import Batch
from rpml.runtime.compiled import compiled
from rpml.runtime.context import Context
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array, slices, sorted_sample
from rpml.runtime.wording import counted

MAX_QUERIES = 50_000
_QUERY_ROWS, _CORPUS_ROWS = 512, 8192  # one tile of scores: 32 MB


class LabeledRows(NamedTuple):
    """Labeled rows, with their classes and their numbers among all rows."""

    values: Array
    codes: NDArray[np.int32]
    rows: NDArray[np.intp]


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
    k = min(max(wanted), int(labeled.sum()))
    best, others = _search(cluster, rows, codes, metric, k, context or Context())
    # ties within the rounding error count against the rows, as in `recall_at_k`
    limit = best - score_error(np.float64, rows.n_features + (metric == "euclidean"))
    return {k: float(np.mean(others[:, min(k, len(others[0])) - 1] < limit)) for k in wanted}


def _search(
    cluster: Cluster,
    rows: PartitionedRows,
    codes: NDArray[np.int32],
    metric: str,
    k: int,
    context: Context,
) -> tuple[Array, Array]:
    """Return `_best` of each query among all rows."""
    labeled = np.flatnonzero(codes >= 0)
    chosen = labeled[sorted_sample(len(labeled), MAX_QUERIES, context.rng("recall"))]
    inside = np.split(codes, rows.edges[1:-1])
    parts = rows.each(cluster, _labeled, inside, rows.edges[:-1].tolist())
    cluster.wait(parts, context, "read")
    found = cluster.values(cluster.each(_pick, parts, [chosen] * len(parts)))
    queries = LabeledRows(np.concatenate(found), codes[chosen], chosen)
    ball = ball_around(queries.values) if metric == "euclidean" else None
    held = cluster.hold(queries)
    scores = cluster.each(_best, parts, *([item] * len(parts) for item in (held, ball, k)))
    cluster.wait(scores, context, "recall")
    best: tuple[Array, Array] = cluster.value(cluster.total(scores, _combined))
    return best


def _labeled(batches: Iterator[Batch], codes: NDArray[np.int32], start: int) -> LabeledRows:
    """Load the labeled rows of a partition, whose first row has the number `start`."""
    inside = np.flatnonzero(codes >= 0)
    blocks, seen = [], 0
    for batch in batches:
        low, high = np.searchsorted(inside, (seen, seen + len(batch.values)))
        blocks.append(batch.values[inside[low:high] - seen])
        seen += len(batch.values)
    return LabeledRows(np.concatenate(blocks), codes[inside], inside + start)


def _pick(part: LabeledRows, wanted: NDArray[np.intp]) -> Array:
    return np.asarray(part.values[np.isin(part.rows, wanted)])


def _best(
    part: LabeledRows, queries: LabeledRows, ball: Ball | None, k: int
) -> tuple[Array, Array]:
    """Return each query's best score in its own class, and the k best in other ones, descending."""
    n = len(queries.rows)
    best, others = np.full(n, -np.inf), np.full((n, k), -np.inf)
    corpus, wanted = standardize(part.values, ball), standardize(queries.values, ball)
    if ball is not None:
        wanted[:, -1] = 1
    for q in slices(n, _QUERY_ROWS):
        for c in slices(len(corpus), _CORPUS_ROWS):
            own = queries.codes[q], part.codes[c], queries.rows[q], part.rows[c]
            _insert(wanted[q] @ corpus[c].T, own, best[q], others[q])
    return best, others


@compiled()
def _insert(
    scores: NDArray[np.generic],
    known: tuple[NDArray[np.generic], ...],
    best: NDArray[np.generic],
    others: NDArray[np.generic],
) -> None:
    """Raise best[i], and insert into others[i], which descends, the scores of row i."""
    query_codes, codes, query_rows, rows = known
    for i in range(len(scores)):
        for j in range(len(codes)):
            score = scores[i, j]
            if codes[j] == query_codes[i]:
                if score > best[i] and rows[j] != query_rows[i]:
                    best[i] = score
            elif score > others[i, -1]:
                place = others.shape[1] - 1
                while place and score > others[i, place - 1]:
                    others[i, place] = others[i, place - 1]
                    place -= 1
                others[i, place] = score


def _combined(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    best, others = zip(*parts, strict=True)
    return np.max(best, axis=0), -np.sort(-np.hstack(others), axis=1)[:, : len(others[0][0])]
