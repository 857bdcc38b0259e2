"""A model and files of vectors: compatibility checks, and embedding in batches."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from rpml.estimator.rpml import RPML
from rpml.io.features import Batch, Features, FeatureSource, Layout, write_batches
from rpml.runtime.context import Context, Progress
from rpml.runtime.errors import InputError
from rpml.runtime.wording import counted


def check_features(model: RPML, source: Any, path: str | PathLike[str]) -> RPML:
    """Raise InputError if the vectors have another size or other names than the training data.

    `source` is an open file of vectors, or rows on a cluster, `path` the model's file, for the
    message. Returns the model for arrays, which have no feature names to check again.
    """
    if source.n_features != model.n_features_in_:
        raise InputError(
            f"{path} was fitted on {counted(model.n_features_in_, 'feature')}, "
            f"{source.name} has {source.n_features}"
            + (": choose them with --columns" if source.feature_names else "")
        )
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return model
    for i, (fitted, name) in enumerate(zip(names, source.feature_names or names, strict=True)):
        if fitted != name:
            raise InputError(
                f"feature {i} of {source.name} is {name!r}, {path} was fitted on {fitted!r} there: "
                "name the columns in that order with --columns"
            )
    unnamed = copy(model)
    del unnamed.feature_names_in_
    return unnamed


def embed_batches(model: RPML, source: FeatureSource, output: str = "float") -> Iterator[Batch]:
    """Yield the embedding of an open file in batches; ids are copied."""
    for batch in source.batches():
        yield replace(batch, values=model.transform(batch.values, output=output))


def load_embedded(model: RPML, source: FeatureSource) -> Features:
    """Return the embedding of an open file, in memory."""
    batches = list(embed_batches(model, source))
    ids = [batch.ids for batch in batches if batch.ids is not None]
    values = np.concatenate([batch.values for batch in batches])
    return Features(values, np.concatenate(ids) if ids else None, source.id_name, None, source.name)


def column_names(model: RPML, output: str) -> list[str]:
    """Return the names of the columns of an output: components, or bytes of packed codes."""
    if output in ("float", "int8"):
        return [str(name) for name in model.get_feature_names_out()]
    return [f"byte{i}" for i in range(model.codec(output).width)]


def embed_file(
    model: RPML,
    source: FeatureSource,
    path: str,
    overwrite: bool = False,
    context: Context | None = None,
    output: str = "float",
) -> int:
    """Write the embedding of an open file in bounded memory.

    Parameters
    ----------
    model : RPML
        Fitted on the features of `source` (see `check_features`).
    source : FeatureSource
        What `rpml.io.features.open_features` returns.
    path : str
        The suffix sets the format; NAME/ writes a folder of shards, - to standard output.
    overwrite : bool, default=False
        Replace an existing output.
    context : Context, default=None
        Receives progress.
    output : {"float", "int8", "int4", "int2", "binary", "pq"}, default="float"
        As in `RPML.transform`.

    Returns
    -------
    int
        The number of rows.
    """
    report, rows = (context or Context()).report, 0
    names = column_names(model, output)
    id_name = source.id_name if source.has_ids else None
    layout = Layout("embedding", names, id_name, kept=source.kept_names)

    def embedded() -> Iterator[Batch]:
        nonlocal rows
        for batch in embed_batches(model, source, output):
            yield batch
            rows = batch.start + len(batch.values)
            report(Progress("embed", rows, source.n_rows or 0))

    write_batches(path, layout, embedded(), overwrite)
    return rows
