"""A fitted model on the workers: the embedding of a dataset, and its Recall@K.

Recall@K takes one pass over rows that stay on their workers: of each query a partition returns the
best score among rows of its own class, and the K best among rows of other classes.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.distributed.cluster import Cluster
from rpml.distributed.source import PartitionedRows, open_rows
from rpml.estimator import RPML
from rpml.estimator.features import check_features, column_names
from rpml.evaluation.metrics import retrieval
from rpml.io.features.labels import labeled_mask
from rpml.io.features.source import Batch, picked
from rpml.io.features.writing import Layout, write_batches
from rpml.runtime.compiled import compiled
from rpml.runtime.context import Context, data_digest
from rpml.runtime.errors import InputError, WriteError, counted
from rpml.runtime.files import locked
from rpml.runtime.rows import AnyArray, Array, Indices, slices, sorted_sample

KINDS = ("parquet", "npy")
ATTEMPTS = 5  # rounds in which no worker could write
MAX_QUERIES = 50_000
_QUERY_ROWS, _CORPUS_ROWS = 512, 8192  # one tile of scores: 32 MB


def embed(
    model: RPML,
    X: object,
    folder: str | Path,
    cluster: Cluster,
    *,
    kind: str = "parquet",
    output: str = "float",
    context: Context | None = None,
) -> list[str]:
    """Write the embedding of every partition to a file of its own; ids are copied.

    A folder with some of the parts is completed, on any cluster: each part is written atomically,
    and its name has a fingerprint of the model and the rows, so that only the same work is
    skipped. A folder with parts of other work raises an error.

    Parameters
    ----------
    model : RPML or DaskRPML
        A fitted model.
    X : str, Path, Dask array, Dask DataFrame or PartitionedRows
        The rows to embed, as in `rpml.distributed.open_rows`.
    folder : str or Path
        Created if missing; every worker must be able to write to it.
    cluster : Cluster
    kind : "parquet" or "npy", default="parquet"
    output : {"float", "int8", "int4", "int2", "binary", "pq"}, default="float"
        As in `RPML.transform`.
    context : Context, default=None
        Receives progress.

    Returns
    -------
    list of str
        The files, in the order of the rows.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: use 'parquet' or 'npy'")
    if "://" in str(folder):
        raise InputError(f"{folder} is a URL: the workers write to a folder that they all see")
    rows = replace(embedded(model, open_rows(X, cluster, by_size=True), cluster), output=output)
    columns = column_names(model, output)
    target = Path(folder).absolute()
    work = _fingerprint(model, rows, output)
    _check_folder(target, work)
    target.mkdir(parents=True, exist_ok=True)
    names = [str(target / f"part-{i:05d}-{work}.{kind}") for i in range(len(rows.parts))]
    for name in names:
        with suppress(InputError), locked(name):  # which removes what a killed worker left
            pass
    missing, fruitless = [i for i, name in enumerate(names) if not Path(name).exists()], 0
    while missing:
        left = replace(rows, parts=[rows.parts[i] for i in missing])
        chosen = [names[i] for i in missing]
        tasks = left.each(_write, chosen, [columns] * len(missing))
        cluster.wait(tasks, context or Context(), "embed")
        failed = {
            i: error for i, error in zip(missing, cluster.values(tasks), strict=True) if error
        }
        fruitless = fruitless + 1 if len(failed) == len(missing) else 0
        if fruitless == ATTEMPTS:
            raise next(iter(failed.values()))
        missing = list(failed)  # the disk of one worker may be full, and those of others not
    return names


def embedded(model: RPML, X: object, cluster: Cluster) -> PartitionedRows:
    """Embed the rows of X where they are read, by the workers.

    Parameters
    ----------
    model : RPML or DaskRPML
        A fitted model.
    X : Dask array, Dask DataFrame, path of shards, or PartitionedRows
    cluster : Cluster
    """
    rows = open_rows(X, cluster)
    plain = model.to_local() if hasattr(model, "to_local") else model
    plain = check_features(plain, rows, "the model").map_only()
    return replace(rows, model=plain, n_features=len(plain.components_), dtype=np.dtype(np.float32))


def _check_folder(target: Path, work: str) -> None:
    others = [
        path for path in target.glob("[!.]*") if not path.stem.endswith((work, f"{work}.ids"))
    ]
    if others:
        raise InputError(
            f"{target} holds {min(others).name}, which is not of this model and these rows: choose "
            "another folder, or remove it"
        )


def _fingerprint(model: RPML, rows: PartitionedRows, output: str) -> str:
    """Return ten digits that change with the model, the output, the files and the partitions."""
    pieces = [] if rows.options is None else rows.parts
    layout = repr((pieces, rows.edges.tolist(), output))
    arrays = [model.components_, model.preprocessing_.matrix]
    if output == "pq" and (learned := model.product_codec_) is not None:
        arrays += [learned.centroids, learned.rotation]
    return data_digest(*arrays, np.frombuffer(layout.encode(), np.uint8))[:10]


def _write(batches: Iterator[Batch], name: str, columns: list[str]) -> WriteError | None:
    """Write the embedding of a partition, which replaces what a lost worker may have written."""
    first = next(batches)
    layout = Layout("embedding", columns, None if first.ids is None else "id")
    try:
        write_batches(name, layout, chain([first], batches), overwrite=True)
    except WriteError as error:
        return error
    return None


class LabeledRows(NamedTuple):
    """Labeled rows, with their classes and their numbers among all rows."""

    values: Array
    codes: NDArray[np.int32]
    rows: Indices


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
    retrieval.check_metric(metric)
    rows, y, wanted = open_rows(X, cluster), np.asarray(labels), retrieval.checked_ks(ks)
    if len(y) != len(rows):
        raise ValueError(f"got {counted(len(y), 'label')} for {counted(len(rows), 'row')}")
    labeled = labeled_mask(y)
    if not labeled.any():
        raise InputError("no row has a label: every label is empty or -1")
    codes = np.full(len(y), -1, np.int32)
    codes[labeled] = np.unique(y[labeled], return_inverse=True)[1]
    retrieval.warn_of_trivial(y[labeled], int(labeled.sum()), wanted)
    k = min(max(wanted), int(labeled.sum()))
    best, others = _search(rows, codes, metric, k, context or Context())
    # ties within the rounding error count against the rows, as in `recall_at_k`
    limit = best - retrieval.score_error(np.float64, rows.n_features + (metric == "euclidean"))
    return {k: float(np.mean(others[:, min(k, len(others[0])) - 1] < limit)) for k in wanted}


def _search(
    rows: PartitionedRows, codes: NDArray[np.int32], metric: str, k: int, context: Context
) -> tuple[Array, Array]:
    """Return `_best` of each query among all rows."""
    cluster = rows.cluster
    labeled = np.flatnonzero(codes >= 0)
    chosen = labeled[sorted_sample(len(labeled), MAX_QUERIES, context.rng("recall"))]
    inside = np.split(codes, rows.edges[1:-1])
    parts = rows.each(_labeled, inside, rows.edges[:-1].tolist())
    cluster.wait(parts, context, "read")
    found = cluster.values(cluster.each(_pick, parts, wanted=chosen))
    queries = LabeledRows(np.concatenate(found), codes[chosen], chosen)
    ball = retrieval.ball_around(queries.values) if metric == "euclidean" else None
    held = cluster.hold(queries)
    scores = cluster.each(_best, parts, [held] * len(parts), ball=ball, k=k)
    cluster.wait(scores, context, "recall")
    best: tuple[Array, Array] = cluster.value(cluster.total(scores, _combined))
    return best


def _labeled(batches: Iterator[Batch], codes: NDArray[np.int32], start: int) -> LabeledRows:
    """Load the labeled rows of a partition, whose first row has the number `start`."""
    inside = np.flatnonzero(codes >= 0)
    return LabeledRows(picked(batches, inside), codes[inside], inside + start)


def _pick(part: LabeledRows, wanted: Indices) -> Array:
    return np.asarray(part.values[np.isin(part.rows, wanted)])


def _best(
    part: LabeledRows, queries: LabeledRows, ball: retrieval.Ball | None, k: int
) -> tuple[Array, Array]:
    """Return each query's best score in its own class, and the k best in other ones, descending."""
    n = len(queries.rows)
    best, others = np.full(n, -np.inf), np.full((n, k), -np.inf)
    corpus, wanted = (retrieval.standardize(rows.values, ball) for rows in (part, queries))
    if ball is not None:
        wanted[:, -1] = 1
    for q in slices(n, _QUERY_ROWS):
        for c in slices(len(corpus), _CORPUS_ROWS):
            own = queries.codes[q], part.codes[c], queries.rows[q], part.rows[c]
            _insert(wanted[q] @ corpus[c].T, own, best[q], others[q])
    return best, others


@compiled()
def _insert(
    scores: AnyArray, known: tuple[AnyArray, ...], best: AnyArray, others: AnyArray
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
