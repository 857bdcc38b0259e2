"""Features in .csv and .tsv, with or without a header and ids."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np

from rpml.io.features.source import (
    Batch,
    FeatureSource,
    ReadOptions,
    as_ids,
    choose_column,
    find_ids,
    is_id_name,
    select_columns,
)
from rpml.runtime.errors import InputError, counted, explained

Row = list[str]
_FORMULA = ("=", "+", "-", "@", "'", "\t", "\r")  # the first characters that mark a formula

csv.field_size_limit(2**27)  # a vector in one quoted field exceeds the default


def is_number(text: str) -> bool:
    """Whether a field parses as a float."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def spreadsheet_safe(text: str) -> str:
    """Mark a text that a spreadsheet would take for a formula by a leading apostrophe.

    `without_mark` removes it; a text that begins with an apostrophe gets one, too. Numbers such as
    -5 stay as they are.
    """
    return f"'{text}" if text.startswith(_FORMULA) and not is_number(text) else text


def without_mark(text: str) -> str:
    """Undo `spreadsheet_safe`."""
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def text_lines(path: Path) -> list[str]:
    with explained(f"cannot read {path}"):
        return path.read_text(encoding="utf-8-sig").splitlines()


@contextmanager
def csv_rows(path: Path, blank: bool = False) -> Iterator[Iterator[tuple[int, Row]]]:
    """Yield (line number, fields) of every line; invalid text raises InputError.

    A .tsv file is separated by tabs, any other by commas. Blank lines are skipped, or count as one
    empty field with `blank`.
    """

    def rows() -> Iterator[tuple[int, Row]]:
        try:
            for row in reader:
                if row or blank:
                    yield reader.line_num, row or [""]
        except UnicodeDecodeError as error:
            byte = f"0x{error.object[error.start]:02x}"
            raise InputError(
                f"{path} is not UTF-8 text, it holds the byte {byte}: save it as UTF-8"
            ) from error
        except csv.Error as error:
            raise InputError(f"{path}: line {reader.line_num}: {error}") from error

    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        yield rows()


def has_header(first: Row) -> bool:
    """Whether the first line is a header.

    A header has text beyond the first field (which may be an id), or the integers 0, 1, 2, ... that
    pandas writes.
    """
    rest = first[1:]
    if not all(map(is_number, rest or first)) or is_id_name(first[0]):
        return True
    counted = [str(i) for i in range(len(first))]
    return len(first) > 1 and (first == counted or (rest == counted[:-1] and not first[0]))


class CsvSource(FeatureSource):
    """A text file, parsed in batches of lines."""

    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.name = str(path)
        self._path = path
        with csv_rows(path) as rows:
            lines = [row for _, row in islice(rows, 2)]
        if not lines:
            raise InputError(f"{path} is empty")
        if len(lines[0]) == 1 and re.search("[;,\t]", lines[0][0]):
            raise InputError(f"{path}: separate the fields by commas in a .csv, by tabs in a .tsv")
        self._header = has_header(lines[0])
        if self._header and len(lines) == 1:
            raise InputError(f"{path} has a header and no rows")
        self._width = len(lines[0])
        self._names = lines[0] if self._header else [str(i) for i in range(self._width)]
        names, first = self._names, lines[-1] if self._header else lines[0]
        self._id = self._id_position(names, first, options)
        self.has_ids = self._id is not None
        if self._id is not None:
            self.id_name = names[self._id] if self._header and names[self._id] else "id"
        self.kept_names, self._features_at = select_columns(names, self._id, options, self.name)
        self.n_features = len(self._features_at)
        if self._header:
            self.feature_names = tuple(names[i] for i in self._features_at)

    def _id_position(self, names: Row, first: Row, options: ReadOptions) -> int | None:
        if options.id_column is not None or self._header:
            at = find_ids(names, options.id_column, self.name)
            if at is not None:
                return at
        text_first = not is_number(first[0]) and first[0].strip()
        return 0 if text_first and self._width > 1 and options.columns is None else None

    def raw_batches(self, rows: int) -> Iterator[Batch]:
        rows = min(rows, 8192)  # Python strings take ten times the memory of the numbers
        with csv_rows(self._path) as lines:
            if self._header:
                next(lines, None)
            start = 0
            while block := list(islice(lines, rows)):
                yield self._batch(start, block)
                start += len(block)

    def column(self, name: str) -> Row:
        return [*map(without_mark, read_column(self._path, name))]

    def _batch(self, start: int, block: list[tuple[int, Row]]) -> Batch:
        _check_widths(self.name, block, self._width)
        at = self._features_at
        try:
            values = np.array([[float(row[i]) for i in at] for _, row in block])
        except ValueError:
            self._name_text(block)
            raise
        ids = None if self._id is None else as_ids([row[self._id] for _, row in block])
        columns = {name: self._names.index(name) for name in self.kept_names}
        retained = {name: [row[i] for _, row in block] for name, i in columns.items()}
        return Batch(start, values, ids, [line for line, _ in block], retained)

    def _name_text(self, block: list[tuple[int, Row]]) -> None:
        for line, row in block:
            for i in self._features_at:
                if not is_number(row[i]):
                    shown = row[i] if len(row[i]) <= 40 else row[i][:37] + "..."
                    wrong = f"{shown!r}, not a number" if row[i].strip() else "empty"
                    raise InputError(
                        f"{self.name}: line {line}, column {self._names[i]!r} is {wrong}: remove "
                        "or fill such rows, or choose --columns of the features or --id-column"
                    )


def read_column(
    path: Path, wanted: str | None, usual: Sequence[str] = (), blank: bool = False
) -> Row:
    """Read one column of a text file: the one named, one with a usual name, or the only one.

    A file with a single column has a header if its first line is a usual name. With `blank`, blank
    lines are empty fields.
    """
    with csv_rows(path, blank) as lines:
        rows = list(lines)
    first = next((row for _, row in rows if row != [""]), None)
    if first is None:
        raise InputError(f"{path} is empty")
    if len(first) > 1:
        rows = [(line, row) for line, row in rows if row != [""]]
    header = wanted is not None or is_id_name(first[0]) or any(n.lower() in usual for n in first)
    at = choose_column(first, wanted, usual, str(path))
    body = rows[1:] if header else rows
    _check_widths(path, body, len(first))
    return [row[at] for _, row in body]


def _check_widths(path: object, rows: Iterable[tuple[int, Row]], width: int) -> None:
    for line, row in rows:
        if len(row) != width:
            columns = counted(len(row), "column")
            raise InputError(f"{path}: line {line} has {columns}, the first line has {width}")
