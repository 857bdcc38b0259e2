"""Comparison of RPML with its alternatives: same rows, split and dimension, several seeds.

A cell of a comparison is one method with a dimension and a seed, scored on held-out rows. Per query
it has in `ranks` the number of rows of other classes before the first right one, from which every
Recall@K and every bootstrap follow, and in `overlap` which share of the 10 nearest rows remains.
The table has means over seeds, bootstrap intervals and differences to PCA.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.estimator import RPML
from rpml.estimator.knowledge import check_order, fit_knowledge, known_subset, nuisance_values
from rpml.evaluation.metrics import bounded_scores, first_hit_rank, kmeans_labels
from rpml.evaluation.metrics.label_free import NEAREST, hubness_interval, neighbor_overlap, spectrum
from rpml.evaluation.metrics.retrieval import KS, checked_embedding, recall_across
from rpml.evaluation.registry import KNOWN, PCA_FAMILY, REFERENCE, Method, chosen_methods
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.context import Json
from rpml.runtime.errors import counted, one_line, require, text_table
from rpml.runtime.files import atomic_output
from rpml.runtime.intervals import Interval, bounded, interval, paired
from rpml.runtime.rows import AnyArray, Array, Indices, Integers, Mask

if TYPE_CHECKING:
    import pandas

logger = logging.getLogger(__name__)
COMPARED_METHODS = ("raw", "random", *PCA_FAMILY, "rpml", "lda", "nca")
DEFAULT_SEEDS = (0, 1, 2)
DEFAULT_DIM = 128
SCORES = (*(f"recall@{k}" for k in KS), *("nmi", "f", "precision", "recall", "recall@1 across"))
FIGURES = ("neighbors_kept", "effective_rank", "hubness", "seconds")
_BOUNDS = tuple(
    f"{name}_{end}" for name in ("nmi", "effective_rank", "hubness") for end in ("low", "high")
)
_PERCENT = (*SCORES, "neighbors_kept", "gain")
_SHORT = {"recall@1": "R@1", "gain": "vs PCA", "recall@8": "R@8", "nmi": "NMI"}
_SHORT_LABEL_FREE = {"effective_rank": "effective rank", "hubness": "hubness"}
Cell = Json
Row = Json


def compare(
    X: ArrayLike,
    y: ArrayLike | None = None,
    n_components: int | Sequence[int] | None = None,
    *,
    train: ArrayLike | None = None,
    methods: Sequence[str | Method] | None = None,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    nuisance: ArrayLike | None = None,
    queries: ArrayLike | None = None,
) -> Comparison:
    """Compare RPML with its alternatives at equal dimension, on held-out rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Vectors.
    y : array-like of shape (n_samples,), default=None
        Classes, used for scores; only the methods marked as upper bounds learn from them.
        Without classes only label-free figures are measured.
    n_components : int or sequence of int, default=None
        Dimensions to compare at; None means 128, or half the features if there are fewer.
    train : bool array of shape (n_samples,), default=None
        Training rows. None selects the first half of the classes in sorted order and tests on the
        others (no class is in both, as in the paper); without y, a random half of the rows.
    methods : sequence of str or Method, default=None
        Names of `rpml.evaluation.registry`, or methods of your own; None: the baselines, RPML and
        the upper bounds.
    seeds : sequence of int, default=(0, 1, 2)
        Random methods are fitted once per seed; the clusters of all methods are scored once per
        seed, since k-means is random.
    nuisance, queries : array-like, default=None
        As in `RPML.fit`: RPML is then also fitted with them. With y and a nuisance, "recall@1
        across" is the Recall@1 among rows of other values.

    Returns
    -------
    Comparison
        `.frame()` returns a tidy DataFrame; `.markdown()`, `.write(path)` and `print` format it.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import rpml
    >>> X, y = load_digits(return_X_y=True)
    >>> result = rpml.compare(X, y, 16, methods=("raw", "pca", "rpml"), seeds=(0,))
    >>> [row["method"] for row in result.rows]
    ['raw', 'pca', 'rpml']
    """
    check_order(X, queries)
    X = checked_embedding(X, "X")
    if len(X) < 4:
        raise ValueError(f"A comparison needs at least 4 rows, X has {len(X)}.")
    known = fit_knowledge(X, nuisance, queries)
    split = make_split(X, y, train, known)
    chosen = _chosen(methods, labeled=y is not None)
    if known and KNOWN not in (method.name for method in chosen):
        chosen += chosen_methods([KNOWN])
    sizes: Any = [n_components] if np.ndim(n_components) == 0 else n_components  # type: ignore[arg-type]
    dims = [checked_size(size, X.shape[1]) for size in sizes]
    if not dims or not len(seeds):
        raise ValueError("A comparison needs at least one number of components and one seed.")
    cells = []
    for dim, method in itertools.product(dims, chosen):
        for cell in measure(split, method, dim, seeds):
            cells.append(cell)
            shown = method.name, cell.get("dim", dim), cell["seed"]
            logger.info("%s, %d dimensions, seed %d", *shown)
    return Comparison(cells, [(method, dim) for dim in sorted(set(dims)) for method in chosen])


def _chosen(names: Sequence[str | Method] | None, labeled: bool) -> list[Method]:
    methods = chosen_methods(names or COMPARED_METHODS)
    if labeled:
        return methods
    needy = [method.name for method in methods if method.uses_labels]
    if names is not None and needy:
        raise ValueError(f"methods={needy}: they learn from labels (y), which are not given.")
    return [method for method in methods if not method.uses_labels]


def checked_size(n_components: int | None, d: int) -> int:
    """Return the number of dimensions, by default 128, or half of d features if they are fewer."""
    if n_components is None:
        return max(1, min(DEFAULT_DIM, d // 2))
    if not isinstance(n_components, Integral) or not 1 <= n_components <= d:
        raise ValueError(
            f"n_components={n_components!r} must be an integer between 1 and the "
            f"{counted(d, 'feature')} of X."
        )
    return int(n_components)


@dataclass(frozen=True)
class Split:
    """Training rows and test rows, with labels or None."""

    X_train: Array
    y_train: Array | None
    X_test: Array
    y_test: Array | None
    known: Json | None = None
    """The arguments nuisance and queries of `RPML.fit`, of the training rows."""
    values_test: Indices | None = None
    """(n_test,) value of the nuisance, -1 where unknown."""

    @cached_property
    def near(self) -> Integers:
        """The nearest test rows of each test row by the raw vectors."""
        return nearest_test_rows(self.X_test)


def make_split(
    X: Array, y: ArrayLike | None, train: ArrayLike | None = None, known: Json | None = None
) -> Split:
    """Split the rows into a training and a test part that share no class.

    `known` are the arguments nuisance and queries of `RPML.fit`, of all rows.
    """
    labels = None if y is None else np.asarray(y)
    if labels is not None and labels.shape != (len(X),):
        raise ValueError(f"y must hold one class for each of the {counted(len(X), 'row')} of X.")
    chosen = _default_split(len(X), labels) if train is None else np.asarray(train)
    if chosen.dtype != bool or chosen.shape != (len(X),):
        raise ValueError(
            f"train must hold True or False for each of the {counted(len(X), 'row')} of X."
        )
    if not chosen.any() or chosen.all():
        raise ValueError("train must leave rows on both sides of the split.")
    given = known or {}
    values = nuisance_values(given, len(X))
    more = known_subset(given, chosen), None if values is None else values[~chosen]
    if labels is None:
        return Split(X[chosen], None, X[~chosen], None, *more)
    if len(np.unique(labels[~chosen])) == np.sum(~chosen):
        raise ValueError("No class of y has two test rows, so that no neighbor can be right.")
    return Split(X[chosen], labels[chosen], X[~chosen], labels[~chosen], *more)


def _default_split(n: int, labels: AnyArray | None) -> Mask:
    if labels is None:
        return np.isin(np.arange(n), np.random.default_rng(0).permutation(n)[: n // 2])
    classes = np.unique(labels)
    if len(classes) < 4:
        raise ValueError(
            f"y has {counted(len(classes), 'class', 'classes')}, and two are needed on either "
            "side of the split: compare without labels, or give `train` in Python."
        )
    return np.isin(labels, classes[: len(classes) // 2])


def measure(split: Split, method: Method, dim: int, seeds: Sequence[int]) -> Iterator[Cell]:
    """Yield the cell of each seed; only methods that are random are fitted again for another."""
    cell, Z = _fitted(split, method, dim, seeds[0])
    for number, seed in enumerate(seeds):
        if number and method.is_random:
            cell, Z = _fitted(split, method, dim, seed)
        scores: Cell = {}
        if Z is not None and split.y_test is not None:
            scores = bounded_scores(kmeans_labels(Z, split.y_test, seed), split.y_test)
        yield {**cell, "seed": seed, **scores}


def _fitted(split: Split, method: Method, dim: int, seed: int) -> tuple[Cell, Array | None]:
    """Fit, embed and score; if the method raises ValueError, `error` has the reason."""
    cell: Cell = {"method": method.name, "asked": dim, "uses_labels": method.uses_labels}
    try:
        fitted, seconds, caught = method.fit(split.X_train, split.y_train, dim, seed, split.known)
        Z = np.asarray(fitted.transform(split.X_test), np.float32)
    except ValueError as error:
        logger.warning("%s is not compared: %s", method.title, one_line(error))
        return {**cell, "error": one_line(error)}, None
    cell |= {"seconds": seconds, "warnings": caught, "dim": Z.shape[1]}
    if isinstance(fitted, RPML) and (choice := fitted.whitening_) is not None:
        cell |= {} if choice.gain is None else bounded("rank_gain", choice.gain)
    cell |= _without_labels(split, Z)
    if split.y_test is not None:
        ranks = first_hit_rank(Z, split.y_test)
        cell |= {"ranks": ranks, **{f"recall@{k}": float(np.mean(ranks < k)) for k in KS}}
        if split.values_test is not None:
            cell["recall@1 across"] = recall_across(Z, split.y_test, split.values_test)
    return cell, Z


def nearest_test_rows(Z: Array) -> Integers:
    return nearest_neighbors(Z, min(NEAREST, len(Z) - 1), metric="cosine").indices


def _without_labels(split: Split, Z: Array) -> Cell:
    found = nearest_test_rows(Z)
    k = found.shape[1]
    overlap = neighbor_overlap(split.near, found, k)
    return {
        "neighbors_kept": float(overlap.mean()),
        "overlap": overlap,
        **bounded("effective_rank", spectrum(Z)[1]),
        **bounded("hubness", hubness_interval(found, k, np.random.default_rng(0))),
    }


@dataclass(frozen=True)
class Comparison:
    """The measured cells and their table."""

    cells: list[Cell]
    order: list[tuple[Method, int]]
    """(method, dimension) of each row of the table."""

    @cached_property
    def rows(self) -> list[Row]:
        """One dict per method and dimension: means over seeds, shares in [0, 1]."""
        return [self._row(method, dim) for method, dim in self.order]

    def hits(self, method: str, dim: int, k: int = 1) -> NDArray[np.float64] | None:
        """Return the share of seeds in which each query is right; None without labels."""
        ranks = [c["ranks"] for c in self._cells(method, dim) if "ranks" in c]
        return np.mean([r < k for r in ranks], axis=0) if ranks else None

    def difference(self, method: str, other: str, dim: int) -> Interval | None:
        """Return the R@1 gain of one method over another on the same queries."""
        one, two = self.hits(method, dim), self.hits(other, dim)
        if one is None or two is None:
            return None
        return paired(one, two, np.random.default_rng(0))

    def frame(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame."""
        return require("pandas", "compare", "Comparison.frame").DataFrame(self.rows)

    def markdown(self) -> str:
        """Return a Markdown table in percent; rows that use labels are in italics."""
        return markdown_text(self.lines())

    def lines(self) -> list[list[str]]:
        """Return header and rows as text; titles of methods that use labels are in italics."""
        columns = {c: c for c in (*SCORES, *FIGURES) if any(c in row for row in self.rows)}
        columns |= {"gain": "R@1 gain over PCA"} if "recall@1" in columns else {}
        header, *lines = self._lines(columns)
        for row, line in zip(self.rows, lines, strict=True):
            line[0] = f"*{line[0]}*" if row["uses_labels"] else line[0]
        return [header, *lines]

    def short_lines(self) -> list[list[str]]:
        """Return the columns that fit into a terminal, intervals as half of their width."""
        labeled = any("recall@1" in row for row in self.rows)
        columns = {**(_SHORT if labeled else _SHORT_LABEL_FREE), "neighbors_kept": "kept"}
        if any("recall@1 across" in row for row in self.rows):
            columns["recall@1 across"] = "R@1 across"
        return self._lines({**columns, "seconds": "seconds"}, short=True)

    def _lines(self, columns: dict[str, str], short: bool = False) -> list[list[str]]:
        return [["method", "dim", *columns.values()]] + [
            [row["title"], str(row.get("dim", "–")), *(figure_text(row, c, short) for c in columns)]
            for row in self.rows
        ]

    def write(self, path: str | Path) -> None:
        """Write the rows as .csv, .json or .md, by the suffix."""
        write_rows(path, self.rows, self.lines())

    def __str__(self) -> str:
        return text_table(self.short_lines())

    def _cells(self, method: str, dim: int) -> list[Cell]:
        return [c for c in self.cells if c["method"] == method and c["asked"] == dim]

    def _row(self, method: Method, dim: int) -> Row:
        cells = self._cells(method.name, dim)
        row: Row = {
            "method": method.name,
            "title": method.title,
            "uses_labels": method.uses_labels,
            "asked": dim,
            "seeds": len(cells),
        }
        measured = [c for c in cells if "error" not in c]
        row |= next(({"error": c["error"]} for c in cells if "error" in c), {})
        if not measured:
            return row
        row["dim"] = measured[0]["dim"]
        for name in (*SCORES, *FIGURES, *_BOUNDS):
            if all(name in cell for cell in measured):
                row[name] = float(np.mean([c[name] for c in measured]))
        if all("overlap" in c for c in measured):
            overlap = np.mean([c["overlap"] for c in measured], axis=0)
            row |= mean_figure("neighbors_kept", overlap)
        for k in KS:
            if (hits := self.hits(method.name, dim, k)) is not None:
                row |= mean_figure(f"recall@{k}", hits)
        gain = None
        if method.name != REFERENCE:
            gain = self.difference(method.name, REFERENCE, dim)
        return row if gain is None else row | bounded("gain", gain)


def mean_figure(name: str, values: AnyArray) -> dict[str, float]:
    """Return the mean of a value per query with its 95% interval, under the names of a table."""
    return bounded(name, interval(values, np.random.default_rng(0)))


def write_rows(
    path: str | Path, rows: Sequence[Row], lines: Sequence[list[str]], overwrite: bool = True
) -> None:
    """Write rows as a .csv or .json file, or lines as an .md file."""
    text = _content(rows, lines, Path(path).suffix)
    with atomic_output(path, overwrite) as temporary:
        temporary.write_text(text, encoding="utf8")


def _content(rows: Sequence[Row], lines: Sequence[list[str]], ending: str) -> str:
    if ending == ".md":
        return markdown_text(lines)
    if ending == ".json":
        return json.dumps(rows, indent=2) + "\n"
    if ending != ".csv":
        raise ValueError(f"{ending!r}: the name must end in .csv, .json or .md.")
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def markdown_text(lines: Sequence[list[str]]) -> str:
    """Format header and rows as a Markdown table with figures to the right."""
    header, *body = lines
    marks = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, marks, *body]) + "\n"


def figure_text(row: Row, column: str, short: bool = False) -> str:
    """Format a figure with its 95% interval, if it has one: both ends, or half of its width."""
    if column not in row:
        return "" if column == "gain" else "–"
    scale, sign = (100 if column in _PERCENT else 1), ("+" if column == "gain" else "")
    low, high = (scale * row.get(f"{column}_{end}", 0.0) for end in ("low", "high"))
    shown = f"{scale * row[column]:{sign}z.1f}"
    if low == high:
        return shown
    if short:
        return f"{shown} ±{(high - low) / 2:.1f}"
    return f"{shown} [{low:{sign}z.1f}, {high:{sign}z.1f}]"
