"""Rows that share a label, and positives and negatives drawn uniformly from them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_REDRAWS = 16  # attempts to redraw a negative from the anchor's group


@dataclass(frozen=True)
class Members:
    """The labeled rows, sorted by label."""

    rows: NDArray[np.intp]  # rows with a label, sorted by it
    start: NDArray[np.intp]  # of each data row: where its label begins in `rows`
    count: NDArray[np.intp]  # of each data row: how many rows have its label
    place: NDArray[np.intp]  # of each data row: its position in `rows`

    def anchors(self, span: slice = slice(None)) -> NDArray[np.intp]:
        """Return rows (of a span) that have a positive and a negative."""
        count = self.count[span]
        return (span.start or 0) + np.flatnonzero((count >= 2) & (count < self.rows.size))


def check_labels(labels: ArrayLike) -> NDArray[np.intp]:
    """Return one-dimensional integer labels; ValueError for anything else."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be a one-dimensional integer array, got {labels.dtype} {labels.shape}"
        )
    return np.asarray(labels, dtype=np.intp)


def members_of(labels: NDArray[np.intp]) -> Members:
    """Return which rows share a label."""
    order = np.argsort(labels, kind="stable")
    rows = order[np.searchsorted(labels[order], 0) :]
    _, first, inverse, count = np.unique(
        labels[rows], return_index=True, return_inverse=True, return_counts=True
    )
    out = Members(rows, *(np.zeros(labels.size, dtype=np.intp) for _ in range(3)))
    out.start[rows] = first[inverse]
    out.count[rows] = count[inverse]
    out.place[rows] = np.arange(rows.size)
    return out


def repeat_anchors(
    able: NDArray[np.intp], rng: np.random.Generator, per_anchor: int, limit: int | None
) -> NDArray[np.intp]:
    """Repeat each anchor as often as it is used: `per_anchor` times, or less if limited."""
    if per_anchor < 1:
        raise ValueError(f"per_anchor={per_anchor}: must be at least 1")
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit}: must not be negative")
    if limit is None or able.size * per_anchor <= limit:
        return np.repeat(able, per_anchor)
    rounds, rest = divmod(limit, able.size)
    extra = np.sort(rng.choice(able, rest, replace=False))
    return np.sort(np.concatenate([np.repeat(able, rounds), extra]), kind="stable")


def uniform_partners(
    anchors: NDArray[np.intp],
    members: Members,
    rng: np.random.Generator,
    groups: NDArray[np.integer] | None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Draw a positive and a negative for each anchor; -1 if there is no negative."""
    positives = draw_positives(anchors, members, rng)
    return positives, _uniform_negatives(anchors, members, rng, groups)


def draw_positives(
    anchors: NDArray[np.intp], members: Members, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draw another row of the anchor's label."""
    start, own = members.start[anchors], members.place[anchors]
    drawn = start + rng.integers(0, members.count[anchors] - 1) if anchors.size else start
    return np.asarray(members.rows[drawn + (drawn >= own)])


def _uniform_negatives(
    anchors: NDArray[np.intp],
    members: Members,
    rng: np.random.Generator,
    groups: NDArray[np.integer] | None,
) -> NDArray[np.intp]:
    """Draw a row of another label; -1 if only rows of the anchor's group were drawn."""

    def draw(anchors: NDArray[np.intp]) -> NDArray[np.intp]:
        start, count = members.start[anchors], members.count[anchors]
        drawn = rng.integers(0, members.rows.size - count) if anchors.size else start
        return np.asarray(members.rows[drawn + count * (drawn >= start)])

    negatives = draw(anchors)
    if groups is None:
        return negatives
    for _ in range(_REDRAWS):
        bad = np.flatnonzero(same_group(groups, anchors, negatives))
        if not bad.size:
            return negatives
        negatives[bad] = draw(anchors[bad])
    return np.where(same_group(groups, anchors, negatives), -1, negatives)


def same_group(
    groups: NDArray[np.integer], a: NDArray[np.intp], b: NDArray[np.integer]
) -> NDArray[np.bool_]:
    """Whether two rows are in one group; -1 is no group."""
    return np.asarray((groups[a] >= 0) & (groups[a] == groups[b]))
