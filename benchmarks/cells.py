"""Cells of comparisons, kept in files so that an interrupted run continues.

A cell is a line of JSON. `hits` has a hexadecimal digit per query: the number of rows of other
classes before the first right one, where 15 means 15 or more, from which every Recall@K up to 8
follows. The digits of `kept` say how many of the 10 nearest rows remain.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.comparison import Cell, Split, measure
from rpml.evaluation.metrics.label_free import NEAREST
from rpml.evaluation.registry import Method
from rpml.runtime.errors import one_line
from rpml.runtime.rows import Array

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
                    cell = next(measure(split, method, dim, [seed]))
                    if "ranks" in cell and split.y_test is not None:
                        cell |= by_frequency(cell["ranks"] == 0, split.y_test)
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
        cells[cell["data"], cell["settings"], cell["asked"], cell["seed"]] = unpacked(cell)
    return cells


def unpacked(cell: Cell) -> Cell:
    """Return a cell of a file with its arrays."""
    if "hits" in cell:
        cell["ranks"] = np.array([int(digit, 16) for digit in cell.pop("hits")])
    if "kept" in cell:
        counts = np.array([int(digit, 16) for digit in cell.pop("kept")])
        cell["overlap"] = counts / min(NEAREST, len(counts) - 1)
    return cell


def packed(cell: Cell) -> Cell:
    """Return a cell with its arrays as texts."""
    plain = {name: value for name, value in cell.items() if name not in ("ranks", "overlap")}
    if "ranks" in cell:
        plain["hits"] = "".join(f"{rank:x}" for rank in np.minimum(cell["ranks"], 15))
    if "overlap" in cell:
        counts = np.rint(cell["overlap"] * min(NEAREST, len(cell["overlap"]) - 1)).astype(int)
        plain["kept"] = "".join(f"{count:x}" for count in counts)
    return plain


def by_frequency(hits: NDArray[np.bool_], y: Array) -> dict[str, float]:
    """Average R@1 over the classes of the rarest and of the most frequent third.

    Empty if all classes have the same size.
    """
    codes = np.unique(y, return_inverse=True)[1]
    sizes = np.bincount(codes)
    if sizes.min() == sizes.max():
        return {}
    by_class = np.bincount(codes, weights=hits) / sizes
    low, high = np.quantile(sizes, [1 / 3, 2 / 3])
    return {
        "recall@1 rare": float(by_class[sizes <= low].mean()),
        "recall@1 frequent": float(by_class[sizes >= high].mean()),
    }


def _append(path: str | Path, cell: Cell) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    # one write per line, since two processes may append to the file
    with open(path, "a", encoding="utf8", buffering=2**20) as file:
        # an incomplete line of a killed process must not swallow this one
        torn = file.tell() > 0 and not Path(path).read_bytes().endswith(b"\n")
        file.write(("\n" if torn else "") + json.dumps(packed(cell)) + "\n")
