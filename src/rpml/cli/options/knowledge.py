"""What a user knows of the rows: a nuisance, and queries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpml.cli.options import parse_names
from rpml.cli.options.reading import LabeledReadingOptions
from rpml.runtime.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rpml.io.features import Features, ReadOptions
    from rpml.runtime.context import Json
    from rpml.runtime.rows import Array

    Load = Callable[[str, ReadOptions, bool], AbstractContextManager[Features]]
    """Opens the vectors of a path, with or without their ids."""


def nuisance_columns(nuisance: str | None) -> tuple[str, ...]:
    """Return the names that are no files: columns of the file of the vectors."""
    return tuple(name for name in parse_names(nuisance) or [] if not os.path.exists(name))


def nuisance_files(nuisance: str | None) -> list[str | None]:
    return [name for name in parse_names(nuisance) or [] if os.path.exists(name)]


def read_knowledge(
    nuisance: str | None, queries: str | None, data: Features, reading: LabeledReadingOptions
) -> Json:
    """Return the arguments nuisance and queries of `RPML.fit`."""
    inputs: Json = {}
    if nuisance is not None:
        inputs["nuisance"] = read_nuisance(nuisance, data, reading)
    if queries is not None:
        inputs["queries"] = read_queries(queries, data, str(data.name), reading)
    return inputs


def read_queries(queries: str, data: Features, name: str, reading: LabeledReadingOptions) -> Array:
    """Read vectors of queries; they have as many columns as the rows of the file `name`."""
    from rpml.estimator.knowledge import check_order

    if queries.lower().endswith(".npy"):  # the rows may be a table, from which columns are chosen
        reading = replace(reading, columns=None)
    found = reading.open(queries).load()
    own, others = found.values.shape[1], data.values.shape[1]
    if own != others:
        raise InputError(
            f"{queries} has {own} columns, {name} has {others}: queries are vectors of the same "
            "model"
        )
    check_order(data, found)
    return found.values


def read_compared(
    features: str,
    labels: str | None,
    nuisance: str | None,
    queries: str | None,
    reading: LabeledReadingOptions,
    load: Load,
) -> tuple[Features, NDArray[Any] | None, Json, int]:
    """Read the rows that a command compares; with labels only those that have one.

    Of rows on a cluster, a sample. Returns vectors with ids, labels, the arguments nuisance and
    queries of `RPML.fit`, and the number of rows that were read.
    """
    import numpy as np

    from rpml.io.features.labels import labeled_mask
    from rpml.io.features.source import as_ids

    path = reading.labels_path(features, labels)
    excluded = (*reading.excluded(features, labels), *nuisance_columns(nuisance))
    by_id = path not in (None, features) or bool(nuisance_files(nuisance))
    with load(features, reading.options(excluded), by_id) as data:
        known, n_read = read_knowledge(nuisance, queries, data, reading), len(data.values)
        y = None if path is None else reading.read_labels(path, data)
        rows = np.arange(n_read) if y is None else np.flatnonzero(labeled_mask(y))
        if hasattr(data.values, "cluster"):
            rows = rows[sampled_rows(len(rows))]
        elif y is None:
            return data, None, known, n_read
        values = data.values[rows]
    if "nuisance" in known:
        known["nuisance"] = known["nuisance"][rows]
    ids, id_name = (as_ids(rows), "row") if data.ids is None else (data.ids[rows], data.id_name)
    chosen = replace(data, values=values, ids=ids, id_name=id_name)
    return chosen, None if y is None else y[rows], known, n_read


def sampled_rows(n: int) -> NDArray[Any]:
    """Return the rows of a cluster that codes and sizes are chosen by."""
    from rpml.method.codes import CODEBOOK_ROWS
    from rpml.runtime.context import Context
    from rpml.runtime.rows import sorted_sample

    return sorted_sample(n, CODEBOOK_ROWS, Context().rng("read"))


def read_nuisance(nuisance: str, data: Features, reading: LabeledReadingOptions) -> NDArray[Any]:
    """Read one or several columns of a nuisance, matched by id or by order."""
    import numpy as np

    from rpml.estimator.knowledge import as_nuisance

    columns = [*read_nuisance_columns(nuisance, data, reading).values()]
    given = columns[0] if len(columns) == 1 else np.array(columns, object).T
    try:
        as_nuisance(given, len(data.values))
    except ValueError as error:
        raise InputError(f"--nuisance {nuisance}: {str(error).rstrip('.')}") from None
    return given


def read_nuisance_columns(
    nuisance: str, data: Features, reading: LabeledReadingOptions
) -> dict[str, NDArray[Any]]:
    """Read the columns of a nuisance by name: that of the column, or of the file."""
    columns: dict[str, NDArray[Any]] = {}
    for name in parse_names(nuisance) or []:
        inside = not os.path.exists(name)
        if inside and str(data.name).lower().endswith(".npy"):
            raise InputError(
                f"--nuisance {name}: there is no such file, and {data.name} has no columns"
            )
        if matrix := {} if inside else _matrix_columns(Path(name), data):
            columns |= matrix
            continue
        path, column = (str(data.name), name) if inside else (name, None)
        try:
            values = reading.read_values(path, data, column)
        except InputError as error:
            raise InputError(f"--nuisance {name}: {error}") from None
        columns[name if inside else Path(name).stem] = _as_numbers(values)
    return columns


def _matrix_columns(path: Path, data: Features) -> dict[str, NDArray[Any]]:
    """Return the columns of a .npy file of two dimensions; none of any other file."""
    from rpml.io.features.numpy_files import load_npy, read_ids, sidecar

    n_rows, table = len(data.values), sidecar(path)
    if path.suffix.lower() != ".npy" or (values := load_npy(path)).ndim != 2:
        return {}
    if len(values) != n_rows or values.dtype.kind not in "fiu":
        raise InputError(
            f"--nuisance {path}: {values.dtype} of the shape {values.shape} are not numbers for "
            f"each of {n_rows} rows"
        )
    own = list(map(str, range(n_rows) if data.ids is None else data.ids))
    if table.is_file() and list(map(str, read_ids(table, None, path))) != own:
        raise InputError(f"--nuisance {path}: its rows have other ids, or another order of them")
    return {f"{path.stem} {i}": column for i, column in enumerate(values.T)}


def _as_numbers(values: list[Any]) -> NDArray[Any]:
    """Return integers and text as labels, which are categories, and other numbers as floats.

    As text, numbers are floats if some have a fraction and none begins with a zero, as codes do.
    """
    import numpy as np

    from rpml.estimator.knowledge import MAX_CATEGORIES
    from rpml.io.features.labels import as_label_array

    labels, present = as_label_array(values), {v for v in values if v is not None}
    if labels.dtype.kind in "iu":
        number = len(present) > MAX_CATEGORIES and any(isinstance(v, float) for v in present)
    else:
        number = not any(isinstance(v, str) and re.match(r"-?0\d", v) for v in present)
    try:
        return np.array([np.nan if v is None else float(v) for v in values]) if number else labels
    except ValueError:
        return labels
