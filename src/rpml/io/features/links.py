"""Constraints between rows from a text file: row ids and an optional weight per line."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.io.features.reading import check_readable
from rpml.io.features.source import Ids
from rpml.io.features.text_files import Row, csv_rows, is_number
from rpml.runtime.errors import InputError
from rpml.runtime.wording import counted


@dataclass(frozen=True)
class Links:
    """Constraints read from a file, and their line numbers."""

    path: Path
    values: NDArray[np.float64]
    """(m, width + 1): row indices and the weight."""
    lines: list[int]
    """(m,) line numbers in the file."""


def read_links(
    path: str | Path, width: int, n_rows: int, ids: Ids | None = None, weighted: bool = True
) -> Links:
    """Read pairs (`width` 2) or triplets (3) of rows from a .csv or .tsv file.

    Each line holds `width` rows and, if `weighted`, an optional weight; the first line may be a
    header. Rows are given by the features' `ids`, or by number from 0 without them.
    """
    path = Path(path)
    check_readable(path)
    with csv_rows(path) as rows:
        body = list(rows)
    row_of = {str(i): i for i in range(n_rows)}
    if ids is not None:
        row_of = {str(name): i for i, name in enumerate(ids)}
    named = body and any(field.strip() in row_of or is_number(field) for field in body[0][1])
    if len(body) > 1 and not named:
        body = body[1:]  # a header
    if not body:
        raise InputError(f"{path} holds no rows")
    what = "an id of the features" if ids is not None else f"a row number from 0 to {n_rows - 1}"
    values = []
    for line, fields in body:
        try:
            if not weighted and len(fields) != width:
                raise ValueError(f"{width} rows are expected, not {counted(len(fields), 'field')}")
            values.append(_parse(fields, width, row_of, what))
        except ValueError as error:
            raise InputError(f"{path}: line {line}: {error}") from None
    return Links(path, np.array(values), [line for line, _ in body])


def _parse(fields: Row, width: int, row_of: dict[str, int], what: str) -> list[float]:
    """Parse the row indices and the weight of a line; ValueError says what is wrong."""
    if len(fields) not in (width, width + 1):
        raise ValueError(
            f"{width} rows and perhaps a weight are expected, not {counted(len(fields), 'field')}"
        )
    for field in fields[:width]:
        if field.strip() not in row_of:
            raise ValueError(f"{field!r} is not {what}")
    weight = fields[width] if len(fields) > width else "1"
    if not is_number(weight) or not 0 < float(weight) < np.inf:
        raise ValueError(f"the weight {weight!r} is not a positive number")
    return [*(row_of[field.strip()] for field in fields[:width]), float(weight)]
