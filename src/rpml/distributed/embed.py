"""Embedding and scoring of a dataset on the workers, partition by partition."""

from copy import copy
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.knn import KnnSettings, nearest_neighbors
from rpml.distributed.source import PartitionedRows, Piece, open_rows, read_piece
from rpml.estimator import RPML
from rpml.io.features.labels import labeled_mask
from rpml.io.features.source import ReadOptions
from rpml.io.features.writers import Layout
from rpml.io.features.writing import write_table
from rpml.method.graph.neighbors import Neighbors
from rpml.runtime.context import Context
from rpml.runtime.digest import data_digest
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Array
from rpml.runtime.wording import counted

KINDS = ("parquet", "npy")


def embed(
    model: RPML,
    X: object,
    folder: str | Path,
    cluster: Cluster,
    *,
    kind: str = "parquet",
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
    X : str, Path, Dask array or PartitionedRows
        The rows to embed, as in `rpml.distributed.open_rows`.
    folder : str or Path
        Created if missing; every worker must be able to write to it.
    cluster : Cluster
    kind : "parquet" or "npy", default="parquet"
    context : Context, default=None
        Receives progress.

    Returns
    -------
    list of str
        The files, in the order of the rows.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: use 'parquet' or 'npy'")
    rows = open_rows(X, cluster, by_size=True)
    if rows.n_features != model.n_features_in_:
        raise InputError(
            f"the model was fitted on {model.n_features_in_} features, {rows.name} has "
            f"{rows.n_features}"
        )
    target = Path(folder).absolute()
    work = _fingerprint(model, rows)
    _check_folder(target, work)
    target.mkdir(parents=True, exist_ok=True)
    held = cluster.hold(_local(model))
    names = [str(target / f"part-{i:05d}-{work}.{kind}") for i in range(len(rows.edges) - 1)]
    tasks = []
    for i, name in enumerate(names):
        if Path(name).exists():
            continue
        if rows.pieces:
            tasks.append(cluster.submit(_embed_pieces, held, rows.pieces[i], rows.options, name))
        else:
            tasks.append(cluster.submit(_embed_part, held, rows.parts[i], name))
    cluster.wait(tasks, context or Context(), "embed")
    return names


def _local(model: RPML) -> RPML:
    """Return a `DaskRPML` as the plain model that workers use."""
    return model.to_local() if hasattr(model, "to_local") else model


def _check_folder(target: Path, work: str) -> None:
    others = [
        path.name for path in target.glob("*") if not path.stem.endswith((work, f"{work}.ids"))
    ]
    others = [name for name in sorted(others) if not name.startswith(".")]
    if others:
        raise InputError(
            f"{target} holds {others[0]}, which is not of this model and these rows: choose "
            "another folder, or remove it"
        )


def _fingerprint(model: RPML, rows: PartitionedRows) -> str:
    """Return ten digits that change with the model, the files and the partitions."""
    layout = repr((rows.pieces, rows.edges.tolist()))
    text = np.frombuffer(layout.encode(), np.uint8)
    return data_digest(model.components_, model.preprocessing_.matrix, text)[:10]


def _layout(model: RPML, ids: object) -> Layout:
    names = [str(n) for n in model.get_feature_names_out()]
    return Layout("embedding", names, None if ids is None else "id")


def _embed_part(model: RPML, part: Array, name: str) -> int:
    write_table(name, _transform(part, model), _layout(model, None), None, overwrite=True)
    return len(part)


def _embed_pieces(model: RPML, pieces: list[Piece], options: ReadOptions, name: str) -> int:
    """Read, embed and write a partition in batches."""
    batches = [batch for piece in pieces for batch in read_piece(piece, options)]
    values = np.concatenate([_transform(batch, model) for batch, _ in batches])
    ids = None if batches[0][1] is None else np.concatenate([names for _, names in batches])
    write_table(name, values, _layout(model, ids), ids, overwrite=True)
    return len(values)


def _transform(values: Array, model: RPML) -> Array:
    """Embed without checking column names, which were compared between the shards."""
    if hasattr(model, "feature_names_in_"):
        model = copy(model)
        del model.feature_names_in_
    return np.asarray(model.transform(values))


def embedded(model: RPML, X: object, cluster: Cluster) -> PartitionedRows:
    """Embed the rows of X in place on the workers.

    Parameters
    ----------
    model : RPML or DaskRPML
        A fitted model.
    X : Dask array, path of shards, or PartitionedRows
    cluster : Cluster
    """
    rows = open_rows(X, cluster)
    plain = _local(model)

    def read() -> list[Task]:
        parts = cluster.each(_transform, rows.parts, cluster.hold(plain))
        rows.release()
        return parts

    return PartitionedRows(read, rows.edges, len(plain.components_), np.dtype(np.float32))


def evaluate(
    X: object,
    labels: object,
    cluster: Cluster,
    *,
    ks: tuple[int, ...] = (1, 2, 4, 8),
    metric: str = "cosine",
    context: Context | None = None,
) -> dict[int, float]:
    """Compute Recall@K: how often one of the K nearest other rows has the row's label.

    Equal to `rpml.evaluation.metrics.recall_at_k` for an exact search, which is used up to
    100,000 rows.

    Parameters
    ----------
    X : Dask array, path of shards, or PartitionedRows
        For instance the result of `embedded`.
    labels : array-like of shape (n_samples,)
        One label per row; rows with None, -1 or empty text are ignored.
    cluster : Cluster
    ks : tuple of int, default=(1, 2, 4, 8)
    metric : {"cosine", "euclidean"}, default="cosine"
    context : Context, default=None
        Receives progress.
    """
    rows, y = open_rows(X, cluster), np.asarray(labels)
    if len(y) != rows.count:
        raise ValueError(f"got {counted(len(y), 'label')} for {counted(rows.count, 'row')}")
    labeled = labeled_mask(y)
    if not labeled.any():
        raise InputError("no row has a label: every label is empty or -1")
    parts, edges = _only(labeled, rows, cluster)
    names = np.unique(y[labeled], return_inverse=True)[1].astype(np.int32)
    settings = KnnSettings(max(ks), metric)
    graph = nearest_neighbors(cluster, parts, edges, settings, context or Context())
    held = cluster.hold(names)
    tasks = [
        cluster.submit(_hits, part, held, int(start), ks)
        for part, start in zip(graph.parts, graph.edges, strict=False)
    ]
    hits = cluster.value(cluster.total(tasks))
    return {k: float(h) / len(names) for k, h in zip(ks, hits, strict=True)}


def _only(
    mask: NDArray[np.bool_], rows: PartitionedRows, cluster: Cluster
) -> tuple[list[Task], NDArray[np.int64]]:
    """Return partitions and edges of the rows in the mask."""
    if mask.all():
        return rows.parts, rows.edges
    inside = np.split(mask, rows.edges[1:-1])
    chosen = [
        (part, inside_part)
        for part, inside_part in zip(rows.parts, inside, strict=True)
        if inside_part.any()
    ]
    parts = [cluster.submit(np.compress, inside_part, part, 0) for part, inside_part in chosen]
    return parts, np.cumsum([0, *(inside_part.sum() for _, inside_part in chosen)])


def _hits(
    lists: Neighbors, labels: NDArray[np.int32], start: int, ks: tuple[int, ...]
) -> NDArray[np.int64]:
    own = labels[start : start + len(lists.indices)]
    same = labels[lists.indices] == own[:, None]
    return np.array([same[:, :k].any(axis=1).sum() for k in ks])
