"""Labels, metadata and constraints between rows, from files that refer to rows of features."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.arrow_files import PACKED, ArrowFile, is_plain
from rpml.io.features.arrow_files import SUFFIXES as ARROW
from rpml.io.features.numpy_files import (
    ID_ARRAYS,
    NpzFile,
    check_dtype,
    load_npy,
    read_ids,
    sidecar,
)
from rpml.io.features.reading import check_readable, shard_paths
from rpml.io.features.source import Features, Ids, check_compression, find_ids
from rpml.io.features.text_files import csv_rows, is_number, read_column, without_mark
from rpml.io.manifest import check_written_together
from rpml.runtime.errors import InputError, counted
from rpml.runtime.rows import AnyArray, Mask

UNLABELED = ("", "-1")
_TEXT = (".csv", ".tsv", ".txt")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,16}")
_USUAL = ("label", "labels", "y", "class", "target", "category", "group", "groups", "cluster")


def read_values(
    path: str | Path,
    data: Features,
    column: str | None = None,
    id_column: str | None = None,
    partial: bool = False,
) -> list[object]:
    """Read one value per row from .npy, .npz, .csv, .tsv, .txt, .parquet, .feather or .jsonl.

    The shards of a folder are read in their order. A file with ids, by default in a column named
    like those of the features, is matched by these or, if the features have none, as row numbers
    from 0; a file without ids by order, and so is any file if `id_column` is empty text. `partial`
    allows missing values, which are None: an empty field or line, a null, NaN, or an id that is not
    in the file.
    """
    path, n_rows = Path(path), len(data.values)
    id_column = data.id_column if id_column is None else id_column
    check_readable(path)
    check_written_together(path)
    if path.suffix.lower() in PACKED:
        _check_size(path, n_rows, id_column)
    read, keys = _read(path, column, id_column)
    values = without_missing(read, path)
    while keys is None and len(values) > n_rows and values[-1] is None:  # trailing blank lines
        values.pop()
    if not partial and None in values:
        row = values.index(None)
        raise InputError(f"{path}: the label of row {row} (counted from 0) is missing")
    if keys is not None:
        names = _row_numbers(keys, n_rows, path) if data.ids is None else data.ids
        return _match(values, keys, names, path, partial)
    if len(values) == n_rows + 1 and path.suffix.lower() in _TEXT:
        if values[0] not in (None, *values[1:]) and not is_number(str(values[0])):
            return values[1:]  # the first line is a header: neither label nor number
        raise InputError(
            f"{path} has one value more than the features have rows: if its first line, "
            f"{values[0]!r}, is a header, call it label"
        )
    if len(values) != n_rows:
        raise _wrong_count(path, len(values), n_rows)
    return values


def without_missing(column: Sequence[object], name: object) -> list[object]:
    """Return one value per row as `read_values` does; `name` is for messages."""
    values = [None if _is_missing(v) else v for v in column]
    if any(isinstance(v, float) and math.isinf(v) for v in values):
        raise InputError(f"{name} has an infinite label: labels are text or finite numbers")
    return values


def read_metadata(path: str | Path, ids: Sequence[object]) -> dict[str, list[str]]:
    """Read all columns of a table with an id column, as text in the order of `ids`.

    Missing values and ids become empty text. Columns of lists or bytes, such as vectors, are left
    out.
    """
    path = Path(path)
    check_readable(path)
    if path.suffix.lower() not in (".csv", ".tsv", *ARROW):
        raise InputError(f"{path}: metadata are read from .csv, .tsv, {', '.join(ARROW)}")
    names = _column_names(path)
    if path.suffix.lower() in ARROW:
        schema = ArrowFile(path).schema
        names = [name for name in names if is_plain(schema.field(name).type)]
    key = next(iter(_usual_ids(path, names)), None)
    if key is None or len(names) == 1:
        raise InputError(f"{path} needs a column of ids (called id) and others, it has {names}")
    columns = {}
    for name in [name for name in names if name != key]:
        values, keys = _read(path, name, key)
        matched = _match(values, keys or [], np.array(ids, object), path, partial=True)
        columns[name] = ["" if v is None or _is_missing(v) else str(v) for v in matched]
    return columns


def _column_names(path: Path) -> list[str]:
    if path.suffix.lower() in ARROW:
        return ArrowFile(path).names
    with csv_rows(path) as rows:
        return next((row for _, row in rows), [])


def _usual_ids(path: Path, names: Sequence[str]) -> list[str]:
    """Return the column that holds the ids if none is named, if there is one."""
    index = ArrowFile(path).index if path.suffix.lower() in ARROW else ()
    at = find_ids(names, None, str(path), index)
    return [] if at is None else [names[at]]


def labeled_mask(y: AnyArray) -> Mask:
    """Return which rows have a label: not None, -1 or empty text."""
    return np.array([label is not None and str(label).strip() not in UNLABELED for label in y])


def _wrong_count(path: Path, found: int, n_rows: int) -> InputError:
    return InputError(
        f"{path} has {counted(found, 'value')}, the features have {counted(n_rows, 'row')}: "
        "give one (it may be empty) for every row in order, or ids on both sides"
    )


def _check_size(path: Path, n_rows: int, id_column: str | None) -> None:
    """Raise InputError, before decompression, for a table with far too many repeated values."""
    file = ArrowFile(path)
    if id_column in file.names or _usual_ids(path, file.names):
        check_compression(str(path), 16 * file.n_rows, path.stat().st_size)
    elif file.n_rows > 2 * max(1, n_rows):  # some trailing rows may be empty
        raise _wrong_count(path, file.n_rows, n_rows)


def _read(
    path: Path, column: str | None, id_column: str | None
) -> tuple[Sequence[object], Sequence[object] | None]:
    if path.is_dir():
        shards = [_read(shard, column, id_column) for shard in shard_paths(path)]
        parts = [list(chain(*(part or () for part in side))) for side in zip(*shards, strict=True)]
        return parts[0], parts[1] or None
    suffix = path.suffix.lower()
    if suffix == ".npy":
        table = sidecar(path)
        named = id_column != "" and table.is_file()
        keys = read_ids(table, None, path).tolist() if named else None
        return _vector(load_npy(path), str(path)), keys
    if suffix == ".npz":
        archive = NpzFile(path)
        name = archive.choose(column, (*_USUAL, "Y"), "labels", "--label-column")
        key = _id_column(archive.names, id_column, ID_ARRAYS)
        keys = None if key is None else _vector(archive.read(key), f"{path}[{key!r}]")
        return _vector(archive.read(name), f"{path}[{name!r}]"), keys
    if suffix in (*ARROW, *_TEXT):
        return _read_columns(path, column, id_column)
    kind = f"the suffix {suffix!r}" if suffix else "no suffix"
    raise InputError(
        f"{path} has {kind}: labels are read from .npy, .npz, .csv, .tsv, .txt, {', '.join(ARROW)}"
    )


def _id_column(names: list[str], wanted: str | None, usual: Sequence[str]) -> str | None:
    """Return the column or array of ids: the one wanted, or else a usual one; none for ""."""
    return None if wanted == "" else next((n for n in (wanted, *usual) if n in names), None)


def _vector(array: AnyArray, name: str) -> list[object]:
    check_dtype(array.dtype, name, text=True)
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}, and labels must have one dimension")
    return array.tolist()  # type: ignore[no-any-return]


def _read_columns(
    path: Path, column: str | None, id_column: str | None
) -> tuple[Sequence[object], Sequence[object] | None]:
    names = _column_names(path)
    key = _id_column(names, id_column, _usual_ids(path, names))
    rest = [n for n in names if n != key]
    if key is not None and column is None and len(rest) == 1:
        column = rest[0]
    if path.suffix.lower() in ARROW:
        file = ArrowFile(path)
        return file.column(column, _USUAL), None if key is None else file.column(key)
    texts = read_column(path, column, _USUAL, blank=True)
    keys = None if key is None else list(map(without_mark, read_column(path, key)))
    return list(map(without_mark, texts)), keys


def _row_numbers(keys: Sequence[object], n_rows: int, path: Path) -> Ids:
    """Return the row numbers as ids; InputError if the ids of the file are others."""
    numbers = np.arange(n_rows).astype(object)
    known = set(map(str, numbers))
    other = next((key for key in keys if str(key) not in known), None)
    if other is not None:
        raise InputError(
            f"{path} has the id {str(other)!r} and the features have no ids: use row numbers from "
            f"0 to {n_rows - 1}, give the features ids, or remove the ids to match by order"
        )
    return numbers


def _match(
    values: Sequence[object], keys: Sequence[object], ids: Ids, path: Path, partial: bool
) -> list[object]:
    """Match labels by id, compared as text: one file may hold 7 and the other '7'."""
    names = [str(k) for k in keys]
    if not names:
        raise InputError(f"{path} has a header and no labels")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InputError(f"{path} has two labels for the id {twice!r}")
    if len(names) != len(values):
        raise InputError(f"{path} has {counted(len(values), 'label')}, {counted(len(names), 'id')}")
    by_id = dict(zip(names, values, strict=True))
    missing = next((i for i in ids if str(i) not in by_id), None)
    if missing is not None and not partial:
        raise InputError(f"{path} has no label for the id {missing!r}")
    if not any(str(i) in by_id for i in ids):
        raise InputError(
            f"no id in {path} is an id of the features: the first ones are {names[0]!r} and "
            f"{str(ids[0])!r}"
        )
    return [by_id.get(str(i)) for i in ids]


def as_label_array(values: Sequence[Any]) -> AnyArray:
    """Return integers if every label is one (text files hold '3'), else text.

    Missing labels are -1 among integers, else None.
    """
    if all(v is None or _is_whole(v) for v in values):
        return np.array([-1 if v is None else int(v) for v in values], dtype=np.int64)
    if None not in values:
        return np.array([str(v) for v in values])
    return np.array([None if v is None else str(v) for v in values], dtype=object)


def _is_missing(value: object) -> bool:
    return (isinstance(value, str) and not value.strip()) or bool(value != value)


def _is_whole(value: object) -> bool:
    if isinstance(value, str):  # '01' and '1' are different labels
        return _WHOLE.fullmatch(value) is not None
    return isinstance(value, int | float) and value == int(value) and abs(value) < 2**63


def read_links(
    path: str | Path, width: int, n_rows: int, ids: Ids | None = None, weighted: bool = True
) -> tuple[NDArray[np.float64], list[int]]:
    """Read pairs (`width` 2) or triplets (3) of rows from a .csv or .tsv file.

    Each line holds `width` rows and, if `weighted`, an optional weight; the first line may be a
    header. Rows are given by the features' `ids`, or by number from 0 without them. Returns
    (m, width + 1) row indices and weights, and the line numbers.
    """
    path = Path(path)
    check_readable(path)
    with csv_rows(path) as lines:
        body = list(lines)
    row_of = {str(name): i for i, name in enumerate(range(n_rows) if ids is None else ids)}
    named = body and any(field.strip() in row_of or is_number(field) for field in body[0][1])
    if len(body) > 1 and not named:
        body = body[1:]  # a header
    if not body:
        raise InputError(f"{path} holds no rows")
    what = "an id of the features" if ids is not None else f"a row number from 0 to {n_rows - 1}"
    values = []
    for line, fields in body:
        *rows, weight = fields if weighted and len(fields) > width else [*fields, "1"]
        unknown = [field for field in rows if field.strip() not in row_of]
        if len(rows) != width:
            expected = f"{width} rows and perhaps a weight" if weighted else f"{width} rows"
            wrong = f"{expected} are expected, not {counted(len(fields), 'field')}"
        elif unknown:
            wrong = f"{unknown[0]!r} is not {what}"
        elif not is_number(weight) or not 0 < float(weight) < np.inf:
            wrong = f"the weight {weight!r} is not a positive number"
        else:
            values.append([*(row_of[field.strip()] for field in rows), float(weight)])
            continue
        raise InputError(f"{path}: line {line}: {wrong}")
    return np.array(values), [line for line, _ in body]
