"""Cells of comparisons, kept in files so that an interrupted run continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from rpml.evaluation.comparison import Cell, Split, measure
from rpml.evaluation.registry import Method
from rpml.runtime.wording import one_line

Key = tuple[str, str, int, int]


def run_cells(
    split: Split,
    methods: Sequence[Method],
    dims: Sequence[int],
    seeds: Sequence[int],
    cache: Path,
    source: str = "",
) -> Iterator[Cell]:
    """Yield every cell, from the cache or measured and added to it.

    `source`, the version of the code, is stored in new cells.
    """
    data = split_digest(split)
    measured = read_cells(cache)
    for seed in seeds:  # outermost, so that an interrupted run has a complete table
        for dim in dims:
            for method in methods:
                key = (data, settings_of(method, dim, seed), dim, seed)
                if key not in measured:
                    cell = measure(split, method, dim, seed)
                    cell |= {"data": data, "settings": key[1], "source": source}
                    measured[key] = cell
                    _append(cache, cell)
                yield measured[key]


def settings_of(method: Method, dim: int, seed: int) -> str:
    """Return the method and all arguments of its estimator, which identify a stored cell."""
    return f"{method.name}: {one_line(repr(method.build(dim, seed)))}"


def split_digest(split: Split) -> str:
    """Return a digest of the rows and classes of a split."""
    digest = hashlib.sha256()
    for part in (split.X_train, split.y_train, split.X_test, split.y_test):
        digest.update(b"none" if part is None else np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def read_cells(path: str | Path) -> dict[Key, Cell]:
    """Read the cells of a file by key; an incomplete last line is ignored."""
    cells: dict[Key, Cell] = {}
    if not Path(path).exists():
        return cells
    for line in Path(path).read_text(encoding="utf8").splitlines():
        try:
            cell = json.loads(line)
        except ValueError:
            continue
        cells[cell["data"], cell["settings"], cell["asked"], cell["seed"]] = cell
    return cells


def _append(path: str | Path, cell: Cell) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    # one write per line, since two processes may append to the file
    with open(path, "a", encoding="utf8", buffering=2**20) as file:
        # an incomplete line of a killed process must not swallow this one
        torn = file.tell() > 0 and not Path(path).read_bytes().endswith(b"\n")
        file.write(("\n" if torn else "") + json.dumps(cell) + "\n")
