"""Supervision of rows: classes, pairs that belong together or apart, relative comparisons.

Constraints may contradict each other. They are added in order, classes first and the rest by
decreasing weight; those that contradict earlier ones are reported by index, or dropped on request.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from rpml.runtime.errors import counted
from rpml.runtime.rows import Indices, Integers, Labels, Mask


@dataclass(frozen=True)
class Supervision:
    """Consistent supervision of n rows."""

    labels: Labels  # (n,) equal numbers mean the same class; -1 means unknown
    n_classes: int  # labels below it are classes, which differ; the others are linked rows
    apart: Indices  # (m, 2) rows of different classes
    comparisons: Indices  # (k, 3) rows a, b, c: a is closer to b than to c

    @property
    def has_constraints(self) -> bool:
        """Whether there is more than classes."""
        linked = self.labels.max(initial=-1) >= self.n_classes
        return bool(linked or len(self.apart) or len(self.comparisons))

    def is_classed(self, rows: Integers | int | slice = slice(None)) -> Mask:
        """Whether the class of the rows is given."""
        labels = self.labels[rows]
        return np.asarray((labels >= 0) & (labels < self.n_classes))

    def mentioned(self) -> Indices:
        """Return the rows that have a label or a constraint, sorted."""
        linked = np.concatenate([self.apart.ravel(), self.comparisons.ravel()])
        return np.union1d(np.flatnonzero(self.labels >= 0), linked)

    def subset(self, rows: Indices) -> Supervision:
        """Return the supervision of a sorted subset of rows that includes all mentioned ones."""
        places = (np.searchsorted(rows, links) for links in (self.apart, self.comparisons))
        return Supervision(self.labels[rows], self.n_classes, *places)

    def pinned(self, triplets: Integers) -> Mask:
        """Return which triplets (anchor, positive, negative) are certain."""
        a, p, n = (self.labels[role] for role in triplets.T)
        classed = self.is_classed(triplets).all(axis=1)
        return np.asarray(classed & (a == p) & (a != n))


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
    must, must_weights = _links("must_link", must_link, n, 2)
    cannot, cannot_weights = _links("cannot_link", cannot_link, n, 2)
    order, order_weights = _links("comparisons", comparisons, n, 3)
    n_classes = int(labels.max(initial=-1)) + 1
    if not (len(must) or len(cannot) or len(order)):
        return Supervision(labels, n_classes, cannot, order) if n_classes else None
    weights = np.concatenate([must_weights, cannot_weights])
    turn = np.arange(len(weights))
    if conflicts == "weight":
        turn = np.argsort(-weights, kind="stable")  # ties in the given order
    merged, apart, report = _combine(labels, must, cannot, turn.tolist())
    known = Supervision(merged, n_classes, apart, order)
    retained, wrong = _consistent(known, order_weights)
    report += wrong
    more = f" ({len(report) - 1} more)" if len(report) > 1 else ""
    if report and conflicts == "raise":
        raise ValueError(
            f"The constraints contradict each other: {report[0]}{more}. Remove one of them, or "
            "set conflicts='weight' to leave out the lighter ones."
        )
    if report:
        warnings.warn(
            f"{counted(len(report), 'constraint')} left out: {report[0]}{more}.", stacklevel=4
        )
    return replace(known, comparisons=order[retained])


def _links(
    kind: str, user_links: ArrayLike | None, n: int, width: int
) -> tuple[Indices, NDArray[np.float64]]:
    """Return the row indices and weights of the user's constraints of one kind."""
    values = np.asarray([] if user_links is None else user_links)
    if values.size == 0:
        values = np.empty((0, width))
    shaped = values.ndim == 2 and values.shape[1] in (width, width + 1)
    if not shaped or values.dtype.kind not in "iuf":
        raise ValueError(
            f"{kind} must be an array of {width} row indices (and perhaps a weight) per line, got "
            f"{values.dtype} of shape {values.shape}."
        )
    rows = row_indices(kind, values[:, :width], n)
    own = np.flatnonzero(rows[:, 0] == rows[:, 1])
    if kind != "cannot_link" and len(own):  # which contradicts itself
        raise ValueError(f"{kind}[{own[0]}] = {rows[own[0]].tolist()} names one row twice.")
    weights = np.append(values, np.ones((len(values), 1)), axis=1)[:, width]
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights > 0)))
    if len(bad):
        weight = weights[bad[0]]
        raise ValueError(f"The weight of {kind}[{bad[0]}] must be a positive number, got {weight}.")
    return rows, weights


def row_indices(kind: str, values: NDArray[np.number], n: int) -> Indices:
    """Return row indices; ValueError if one is not among the n rows."""
    bad = (values < 0) | (values >= n) | (values != np.floor(values))
    if bad.any():
        i = int(np.flatnonzero(bad.any(axis=1))[0])
        raise ValueError(
            f"{kind}[{i}] = {values[i].tolist()} is outside the {counted(n, 'row')} of X."
        )
    return values.astype(np.intp)


def _combine(
    labels: Labels, must: Indices, cannot: Indices, turn: list[int]
) -> tuple[Labels, Indices, list[str]]:
    """Add the pairs of both kinds one by one, by their turn.

    Returns the label of every row (classes, then sets of linked rows), the pairs that are apart,
    and a sentence for each pair that contradicts earlier ones.
    """
    n_classes = int(labels.max(initial=-1)) + 1
    rows, places = np.unique(np.vstack([must, cannot]), return_inverse=True)
    own = labels[rows]
    part = np.where(own >= 0, own, n_classes + np.arange(len(rows)))  # the set of each row
    apart = np.zeros(len(places), bool)
    report = []
    for t in turn:
        one, two = part[places[t]]
        linked, index = t < len(must), t if t < len(must) else t - len(must)
        reason = ""
        if linked and one != two:
            pairs = part[places]
            clash = apart & ((pairs == (one, two)) | (pairs == (two, one))).all(axis=1)
            if max(one, two) < n_classes:
                reason = "joins rows of two classes"
            elif clash.any():
                reason = f"contradicts cannot_link[{np.flatnonzero(clash)[-1] - len(must)}]"
            else:  # a class keeps its number
                one, two = (two, one) if two < n_classes else (one, two)
                part[part == two] = one
        elif not linked and one == two:
            what = "rows of one class" if one < n_classes else "rows linked by must_link"
            reason = f"parts {what if places[t, 0] != places[t, 1] else 'a row from itself'}"
        apart[t] = not linked and not reason
        if reason:
            kind, (a, b) = "must_link" if linked else "cannot_link", rows[places[t]].tolist()
            report.append(f"{kind}[{index}] ({a}, {b}) {reason}")
    out = labels.copy()
    sets, member, size = np.unique(part, return_inverse=True, return_counts=True)
    free = (sets >= n_classes) & (size > 1)
    number = np.where(sets < n_classes, sets, np.where(free, n_classes + np.cumsum(free) - 1, -1))
    out[rows] = number[member]
    order = [t for t in turn if apart[t]]
    return out, rows[places[order]], report


def _consistent(known: Supervision, weights: NDArray[np.float64]) -> tuple[Mask, list[str]]:
    """Return which comparisons can all hold, and a sentence for each that cannot.

    "a closer to b than to c" contradicts a and c in one class without b. Otherwise each says that
    one distance is less than another: a cycle of these cannot hold, and its members of lowest
    weight are dropped until there is none.
    """
    order = known.comparisons
    a, b, c = order.T
    of_a, of_b, of_c = known.labels[order].T
    same = (of_a == of_c) & (of_a >= 0)
    other = (of_b >= 0) & (of_b != of_a) & (np.maximum(of_a, of_b) < known.n_classes)
    wrong = same & other | (b == c) | (a == c)
    report = [f"comparisons[{i}] {order[i].tolist()} contradicts the classes of its rows"
              for i in np.flatnonzero(wrong)]  # fmt: skip
    retained = ~wrong
    while (cyclic := _in_cycles(order, retained)).any():
        i = int(np.flatnonzero(cyclic & (weights == weights[cyclic].min()))[-1])
        others = [int(j) for j in np.flatnonzero(cyclic) if j != i][:3]
        what = f"comparisons[{i}] {order[i].tolist()}"
        report.append(f"{what} closes a circle of distances with comparisons{others}")
        retained[i] = False
    return retained, report


def _in_cycles(rows: Indices, retained: Mask) -> Mask:
    """Return which triplets are on a cycle of "this distance is less than that one"."""
    if not retained.any():
        return retained
    near = np.sort(rows[:, [0, 1]], axis=1)
    far = np.sort(rows[:, [0, 2]], axis=1)
    _, node = np.unique(np.vstack([near, far]), axis=0, return_inverse=True)
    start, end = np.split(node.ravel(), 2)
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
