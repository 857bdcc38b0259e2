"""Supervision of rows: classes, pairs that belong together or apart, relative comparisons.

Constraints may contradict each other. They are added in order, classes first and the rest by
decreasing weight; those that contradict earlier ones are reported by index, or dropped on request.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from rpml.runtime.rows import Labels
from rpml.runtime.wording import counted

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Supervision:
    """Consistent supervision of n rows."""

    labels: Labels
    """(n,) equal numbers mean the same class; -1 means unknown."""
    n_classes: int
    """Labels below it are classes, which differ; the others are linked rows."""
    apart: Rows
    """(m, 2) rows of different classes."""
    comparisons: Rows
    """(k, 3) rows a, b, c: a is closer to b than to c."""

    @property
    def has_constraints(self) -> bool:
        """Whether there is more than classes."""
        linked = self.labels.max(initial=-1) >= self.n_classes
        return bool(linked or len(self.apart) or len(self.comparisons))

    def is_classed(
        self, rows: NDArray[np.integer] | int | slice = slice(None)
    ) -> NDArray[np.bool_]:
        """Whether the class of the rows is given."""
        labels = self.labels[rows]
        return np.asarray((labels >= 0) & (labels < self.n_classes))

    def mentioned(self) -> NDArray[np.intp]:
        """Return the rows that have a label or a constraint, sorted."""
        linked = np.concatenate([self.apart.ravel(), self.comparisons.ravel()])
        return np.union1d(np.flatnonzero(self.labels >= 0), linked)

    def subset(self, rows: NDArray[np.intp]) -> Supervision:
        """Return the supervision of a sorted subset of rows that includes all mentioned ones."""
        places = (np.searchsorted(rows, links) for links in (self.apart, self.comparisons))
        return Supervision(self.labels[rows], self.n_classes, *places)

    def pinned(self, triplets: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which triplets (anchor, positive, negative) are certain."""
        a, p, n = (self.labels[role] for role in triplets.T)
        classed = self.is_classed(triplets).all(axis=1)
        return np.asarray(classed & (a == p) & (a != n))


@dataclass(frozen=True)
class _Links:
    """The user's constraints of one kind."""

    kind: str
    rows: Rows
    weights: NDArray[np.float64]


def gather(
    labels: Labels | None,
    n: int,
    must_link: ArrayLike | None = None,
    cannot_link: ArrayLike | None = None,
    comparisons: ArrayLike | None = None,
    conflicts: str = "raise",
) -> Supervision | None:
    """Combine the supervision of n rows; None if there is none.

    `labels` are classes from 0, -1 if unknown; the other arguments are those of `rpml.RPML.fit`.
    """
    if conflicts not in ("raise", "weight"):
        raise ValueError(f"conflicts={conflicts!r}: use 'raise' or 'weight'")
    labels = np.full(n, -1, np.intp) if labels is None else labels
    pairs = [_links("must_link", must_link, n, 2), _links("cannot_link", cannot_link, n, 2)]
    order = _links("comparisons", comparisons, n, 3)
    if not any(len(one.rows) for one in (*pairs, order)):
        n_classes = int(labels.max(initial=-1)) + 1
        return Supervision(labels, n_classes, pairs[1].rows, order.rows) if n_classes else None
    book = _Book(labels)
    refused = [_refusal(book, *one) for one in _by_weight(pairs, conflicts)]
    merged, apart = book.result()
    supervision = Supervision(merged, int(labels.max(initial=-1)) + 1, apart, order.rows)
    retained, wrong = _consistent(supervision, order)
    report = [line for line in (*refused, *wrong) if line]
    more = f" ({len(report) - 1} more)" if len(report) > 1 else ""
    if report and conflicts == "raise":
        raise ValueError(
            f"The constraints contradict each other: {report[0]}{more}. Remove one of them, or "
            "set conflicts='weight' to leave out the lighter ones."
        )
    if report:
        warnings.warn(
            f"{counted(len(report), 'constraint')} left out: {report[0]}{more}.", stacklevel=3
        )
    return Supervision(merged, supervision.n_classes, apart, order.rows[retained])


def _links(kind: str, user_links: ArrayLike | None, n: int, width: int) -> _Links:
    """Validate row indices and weights."""
    values = np.asarray([] if user_links is None else user_links)
    if values.size == 0:
        values = np.empty((0, width))
    if (
        values.ndim != 2
        or values.shape[1] not in (width, width + 1)
        or values.dtype.kind not in "iuf"
    ):
        raise ValueError(
            f"{kind} must be an array of {width} row indices (and perhaps a weight) per line, got "
            f"{values.dtype} of shape {values.shape}."
        )
    rows = row_indices(kind, values[:, :width], n)
    weights = values[:, width] if values.shape[1] > width else np.ones(len(values))
    if not (np.isfinite(weights) & (weights > 0)).all():
        i = int(np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))[0])
        raise ValueError(f"The weight of {kind}[{i}] must be a positive number, got {weights[i]}.")
    return _Links(kind, rows, weights.astype(np.float64))


def row_indices(kind: str, values: NDArray[np.number], n: int) -> Rows:
    """Return row indices; ValueError if one is not among the n rows."""
    bad = (values < 0) | (values >= n) | (values != np.floor(values))
    if bad.any():
        i = int(np.flatnonzero(bad.any(axis=1))[0])
        raise ValueError(
            f"{kind}[{i}] = {values[i].tolist()} is outside the {counted(n, 'row')} of X."
        )
    return values.astype(np.intp)


def _by_weight(links: list[_Links], conflicts: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield (kind, index, row, row) in the given order, or by decreasing weight."""
    every = [(one, i) for one in links for i in range(len(one.rows))]
    if conflicts == "weight":
        every.sort(key=lambda item: -item[0].weights[item[1]])  # stable: ties in the given order
    for one, i in every:
        a, b = one.rows[i].tolist()
        yield one.kind, i, a, b


def _refusal(book: _Book, kind: str, i: int, a: int, b: int) -> str:
    """Add one pair; return a sentence if it contradicts earlier ones."""
    reason = book.join(a, b) if kind == "must_link" else book.part(a, b, i)
    return f"{kind}[{i}] ({a}, {b}) {reason}" if reason else ""


class _Book:
    """The pairs added so far, as sets of rows that belong together (union-find)."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.parent = np.arange(len(labels))
        self.conflicts: dict[int, dict[int, int]] = {}  # sets apart from each, by which pair
        self.pairs: list[tuple[int, int]] = []
        classed = np.flatnonzero(labels >= 0)
        classes, first, of_row = np.unique(labels[classed], return_index=True, return_inverse=True)
        self.parent[classed] = classed[first][of_row]
        self.named = dict(zip(classed[first].tolist(), classes.tolist(), strict=True))

    def find(self, row: int) -> int:
        while self.parent[row] != row:
            self.parent[row] = self.parent[self.parent[row]]
            row = int(self.parent[row])
        return row

    def join(self, a: int, b: int) -> str:
        """Put two rows together; return the reason if they cannot be."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return ""
        if a in self.named and b in self.named:
            return "joins rows of two classes"
        if b in self.conflicts.get(a, {}):
            return f"contradicts cannot_link[{self.conflicts[a][b]}]"
        if b in self.named:
            a, b = b, a
        self.parent[b] = a
        for other, pair in self.conflicts.pop(b, {}).items():
            self.conflicts.setdefault(a, {})[other] = pair
            del self.conflicts[other][b]
            self.conflicts[other][a] = pair
        return ""

    def part(self, a: int, b: int, index: int) -> str:
        """Keep two rows apart; return the reason if they are together already."""
        first, second = self.find(a), self.find(b)
        if first == second:
            of = " of one class" if first in self.named else " linked by must_link"
            return "parts rows" + of if a != b else "parts a row from itself"
        self.conflicts.setdefault(first, {})[second] = index
        self.conflicts.setdefault(second, {})[first] = index
        self.pairs.append((a, b))
        return ""

    def result(self) -> tuple[Labels, Rows]:
        """Return the label of every row (classes, then linked rows), and the pairs apart."""
        roots = np.array([self.find(i) for i in range(len(self.parent))], np.intp)
        out = np.full(len(roots), -1, np.intp)
        out[list(self.named)] = list(self.named.values())
        out = out[roots]
        linked = (np.bincount(roots, minlength=len(roots))[roots] > 1) & (out < 0)
        after = int(self.labels.max(initial=-1)) + 1
        out[linked] = after + np.unique(roots[linked], return_inverse=True)[1]
        return out, np.array(self.pairs, np.intp).reshape(-1, 2)


def _consistent(supervision: Supervision, order: _Links) -> tuple[NDArray[np.bool_], list[str]]:
    """Return which `comparisons` can all hold, and a sentence for each that cannot.

    "a closer to b than to c" contradicts a and c in one class without b. Otherwise each says that
    one distance is less than another: a cycle of these cannot hold, and its members of lowest
    weight are dropped until there is none.
    """
    a, b, c = order.rows.T
    same = (supervision.labels[a] == supervision.labels[c]) & (supervision.labels[a] >= 0)
    other = (supervision.labels[b] >= 0) & (supervision.labels[b] != supervision.labels[a])
    other &= np.maximum(supervision.labels[a], supervision.labels[b]) < supervision.n_classes
    wrong = same & other | (b == c) | (a == c)
    report = [f"comparisons[{i}] {order.rows[i].tolist()} contradicts the classes of its rows"
              for i in np.flatnonzero(wrong)]  # fmt: skip
    retained = ~wrong
    while (cyclic := _in_cycles(order.rows, retained)).any():
        lightest = np.flatnonzero(cyclic & (order.weights == order.weights[cyclic].min()))
        i = int(lightest[-1])
        others = [int(j) for j in np.flatnonzero(cyclic) if j != i][:3]
        what = f"comparisons[{i}] {order.rows[i].tolist()}"
        report.append(f"{what} closes a circle of distances with comparisons{others}")
        retained[i] = False
    return retained, report


def _in_cycles(rows: Rows, retained: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which triplets are on a cycle of "this distance is less than that one"."""
    if not retained.any():
        return retained
    near = np.sort(rows[:, [0, 1]], axis=1)
    far = np.sort(rows[:, [0, 2]], axis=1)
    _, node = np.unique(np.vstack([near, far]), axis=0, return_inverse=True)
    start, end = node.reshape(2, -1)
    size = int(node.max()) + 1
    graph = sparse.csr_matrix(
        (np.ones(int(retained.sum())), (start[retained], end[retained])), (size, size)
    )
    _, part = connected_components(graph, connection="strong")
    return np.asarray(retained & (part[start] == part[end]))


def as_labels(values: ArrayLike, n: int, name: str = "labels") -> Labels:
    """Convert labels of any kind to integers from 0, and missing ones to -1.

    Negative numbers, NaN, None, the NA of pandas and the text "-1" mean that there is no label.
    """
    values = np.asarray(values)
    if values.shape != (n,):
        raise ValueError(f"{name} must have one value per row ({n}), got shape {values.shape}.")
    if values.dtype.kind in "iu":
        missing = values < 0
    elif values.dtype.kind in "mM":
        missing = np.isnat(values)
    elif values.dtype.kind == "f":
        missing = ~np.isfinite(values) | (values < 0)
    else:
        missing = np.array([_is_missing(value) for value in values.tolist()], bool)
    labels = np.full(n, -1, np.intp)
    if not missing.all():
        present = values[~missing]
        present = present if values.dtype.kind in "iuf" else present.astype(str)
        labels[~missing] = np.unique(present, return_inverse=True)[1]
    return labels


def _is_missing(value: object) -> bool:
    if isinstance(value, str):
        return value == "-1"
    if isinstance(value, Real):
        return not 0 <= float(value) < math.inf
    return value is None or repr(value) in ("<NA>", "NaT")
