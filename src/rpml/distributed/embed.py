"""Embedding of a dataset on the workers, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np

from rpml.distributed.cluster import Cluster
from rpml.distributed.source import PartitionedRows, open_rows
from rpml.estimator import RPML
from rpml.estimator.features import column_names
from rpml.io.features.source import Batch
from rpml.io.features.writing import Layout, open_writer
from rpml.runtime.context import Context
from rpml.runtime.digest import data_digest
from rpml.runtime.errors import InputError, WriteError

KINDS = ("parquet", "npy")
ATTEMPTS = 5  # rounds in which no worker could write


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
    rows = embedded(model, open_rows(X, cluster, by_size=True), cluster)
    columns = column_names(model, output)
    rows = replace(rows, output=output)
    target = Path(folder).absolute()
    work = _fingerprint(model, rows, output)
    _check_folder(target, work)
    target.mkdir(parents=True, exist_ok=True)
    names = [str(target / f"part-{i:05d}-{work}.{kind}") for i in range(len(rows.parts))]
    missing = [i for i, name in enumerate(names) if not Path(name).exists()]
    fruitless = 0
    while missing:
        left = replace(rows, parts=[rows.parts[i] for i in missing])
        chosen = [names[i] for i in missing]
        tasks = left.each(cluster, _write, chosen, [columns] * len(missing))
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
    if rows.n_features != model.n_features_in_:
        raise InputError(
            f"the model was fitted on {model.n_features_in_} features, {rows.name} has "
            f"{rows.n_features}"
        )
    plain = copy(model.to_local() if hasattr(model, "to_local") else model).map_only()
    if hasattr(plain, "feature_names_in_"):  # compared between the shards; batches have none
        del plain.feature_names_in_
    return replace(rows, model=plain, n_features=len(plain.components_), dtype=np.dtype(np.float32))


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


def _fingerprint(model: RPML, rows: PartitionedRows, output: str) -> str:
    """Return ten digits that change with the model, the output, the files and the partitions."""
    pieces = [] if rows.options is None else rows.parts
    layout = repr((pieces, rows.edges.tolist(), output))
    arrays = [model.components_, model.preprocessing_.matrix]
    if output == "pq" and model.codebooks_ is not None:
        arrays.append(model.codebooks_)
    return data_digest(*arrays, np.frombuffer(layout.encode(), np.uint8))[:10]


def _write(batches: Iterator[Batch], name: str, columns: list[str]) -> WriteError | None:
    """Write the embedding of a partition, which replaces what a lost worker may have written."""
    first = next(batches)
    layout = Layout("embedding", columns, None if first.ids is None else "id")
    try:
        with open_writer(name, layout, overwrite=True) as writer:
            writer.write(first.values, first.ids)
            for batch in batches:
                writer.write(batch.values, batch.ids)
    except WriteError as error:
        return error
    return None
