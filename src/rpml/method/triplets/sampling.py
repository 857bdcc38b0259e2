"""Labels (and neighbours) -> triplets (anchor, positive, negative) of row indices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph.exact import slices
from rpml.method.graph.neighbors import Neighbors, pair_distances
from rpml.method.triplets import kernels as kernels

Triplets = NDArray[np.intp]
_MINING = {"all": kernels.ALL, "semi-hard": kernels.SEMI_HARD, "hard": kernels.HARD}
_CHUNK = 65536  # triplets whose neighbours are looked at together
_REDRAWS = 16  # rounds of drawing again a negative that shares the anchor's group


@dataclass(frozen=True)
class Members:
    """The labelled rows, one label after the other."""

    rows: NDArray[np.intp]  # rows with a label, sorted by it
    start: NDArray[np.intp]  # of each row of the data: where its label begins in `rows`
    count: NDArray[np.intp]  # of each row of the data: how many rows have its label
    place: NDArray[np.intp]  # of each row of the data: its own position in `rows`

    def anchors(self, span: slice = slice(None)) -> NDArray[np.intp]:
        """Rows (of a span) that have a positive and a negative."""
        count = self.count[span]
        return (span.start or 0) + np.flatnonzero((count >= 2) & (count < self.rows.size))


def sample_triplets(
    labels: Any,
    rng: np.random.Generator,
    *,
    per_anchor: int = 4,
    total: int | None = None,
    sampler: str = "uniform",
    neighbors: Neighbors | None = None,
    X: Any = None,
    margin: float = 0.5,
    groups: Any = None,
) -> Triplets:
    """Draw triplets (anchor, positive, negative) from pseudo-labels.

    Parameters
    ----------
    labels : (n,) int array
        -1 (any negative number): no cluster; such a row takes part in no triplet, not even as a
        negative, for nothing is known of it. A row alone in its label is no anchor and no
        positive, but may be a negative.
    rng : numpy Generator
    per_anchor : int
        Triplets an anchor. Ignored when `total` is given.
    total : int, optional
        Triplets in all: every anchor is used equally often, up to one.
    sampler : "uniform", "semi-hard" or "hard"
        How negatives are drawn, the positive being any other row of the label: uniformly from
        the rows of other labels; from the anchor's neighbours of another label that are farther
        than the positive by less than `margin`; or the anchor's nearest neighbours of another
        label, one after the other. An anchor with no such neighbour takes a uniform one.
    neighbors : Neighbors, for "semi-hard" and "hard"
    X : (n, d) array, for "semi-hard"
        The rows the neighbours were found in.
    margin : float
        Of "semi-hard", in units of the neighbours' distances.
    groups : (n,) int array, optional
        Rows of one group (>= 0) show the same thing: never negatives of each other.

    Returns
    -------
    (T, 3) array of row indices; (0, 3) when no label has two rows or there is only one label.
    """
    if sampler not in ("uniform", "semi-hard", "hard"):
        raise ValueError(f"sampler={sampler!r}: use 'uniform', 'semi-hard' or 'hard'")
    if sampler != "uniform" and neighbors is None:
        raise ValueError(f"sampler={sampler!r} needs neighbors=, the k-NN of the rows")
    if sampler == "semi-hard" and X is None:
        raise ValueError("sampler='semi-hard' needs X=, the rows the neighbours were found in")
    names = _check_labels(labels)
    groups = None if groups is None else np.asarray(groups)
    members = members_of(names)
    anchors = repeat_anchors(members.anchors(), rng, per_anchor, total)
    positives, negatives = uniform_partners(anchors, members, rng, groups)
    if neighbors is not None and sampler != "uniform":
        turn = np.arange(anchors.size) - np.searchsorted(anchors, anchors)
        luck = rng.random(anchors.size)
        for part in slices(anchors.size, _CHUNK):
            a = anchors[part]
            near = _near_negatives(a, names, neighbors, groups)
            if sampler == "semi-hard":
                near &= _within_margin(a, positives[part], neighbors, X, margin)
            count = near.sum(axis=1)
            nth = turn[part] % np.maximum(count, 1)
            if sampler == "semi-hard":
                nth = (luck[part] * count).astype(np.intp)
            picked = neighbors.indices[a, _nth_true(near, nth)]
            negatives[part] = np.where(count > 0, picked, negatives[part])
    return np.stack([anchors, positives, negatives], axis=1)[negatives >= 0]


def parted_triplets(
    labels: NDArray[np.intp], apart: NDArray[np.intp], per_anchor: int, rng: np.random.Generator
) -> Triplets:
    """Triplets of rows known to be apart: one is the anchor, the other the negative, in turn."""
    anchors, negatives = np.vstack([apart, apart[:, ::-1]]).repeat(per_anchor, axis=0).T
    members = members_of(labels)
    able = members.count[anchors] > 1
    anchors, negatives = anchors[able], negatives[able]
    return np.stack([anchors, _positives(anchors, members, rng), negatives], axis=1)


def _check_labels(labels: Any) -> NDArray[np.intp]:
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be a one-dimensional integer array, got {labels.dtype} {labels.shape}"
        )
    return np.asarray(labels, dtype=np.intp)


def members_of(labels: NDArray[np.intp]) -> Members:
    """Which rows share a label."""
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
    able: NDArray[np.intp], rng: np.random.Generator, per_anchor: int, total: int | None
) -> NDArray[np.intp]:
    """Each anchor as often as it is to be used."""
    if total is None:
        if per_anchor < 1:
            raise ValueError(f"per_anchor={per_anchor}: must be at least 1")
        return np.repeat(able, per_anchor)
    if total < 0:
        raise ValueError(f"total={total}: must not be negative")
    if not able.size:
        return able
    rounds, rest = divmod(total, able.size)
    extra = np.sort(rng.choice(able, rest, replace=False))
    return np.sort(np.concatenate([np.repeat(able, rounds), extra]), kind="stable")


def uniform_partners(
    anchors: NDArray[np.intp],
    members: Members,
    rng: np.random.Generator,
    groups: NDArray[Any] | None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """A positive and a negative for each anchor; -1 where there is no negative."""
    positives = _positives(anchors, members, rng)
    return positives, _uniform_negatives(anchors, members, rng, groups)


def _positives(
    anchors: NDArray[np.intp], members: Members, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Any other row of the anchor's label."""
    start, own = members.start[anchors], members.place[anchors]
    drawn = start + rng.integers(0, members.count[anchors] - 1) if anchors.size else start
    return np.asarray(members.rows[drawn + (drawn >= own)])


def _uniform_negatives(
    anchors: NDArray[np.intp],
    members: Members,
    rng: np.random.Generator,
    groups: NDArray[Any] | None,
) -> NDArray[np.intp]:
    """Any row of another label; -1 where only rows of the anchor's group were drawn."""

    def draw(anchors: NDArray[np.intp]) -> NDArray[np.intp]:
        start, count = members.start[anchors], members.count[anchors]
        drawn = rng.integers(0, members.rows.size - count) if anchors.size else start
        return np.asarray(members.rows[drawn + count * (drawn >= start)])

    negatives = draw(anchors)
    if groups is None:
        return negatives
    for _ in range(_REDRAWS):
        bad = np.flatnonzero(_same_group(groups, anchors, negatives))
        if not bad.size:
            return negatives
        negatives[bad] = draw(anchors[bad])
    return np.where(_same_group(groups, anchors, negatives), -1, negatives)


def _same_group(groups: NDArray[Any], a: NDArray[np.intp], b: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray((groups[a] >= 0) & (groups[a] == groups[b]))


def _near_negatives(
    anchors: NDArray[np.intp],
    labels: NDArray[np.intp],
    neighbors: Neighbors,
    groups: NDArray[Any] | None,
) -> NDArray[np.bool_]:
    """(T, k): which neighbours of the anchor may be its negative."""
    near = neighbors.indices[anchors]
    allowed = (labels[near] >= 0) & (labels[near] != labels[anchors, None])
    if groups is not None:
        allowed &= ~_same_group(groups, anchors[:, None], near)
    return np.asarray(allowed)


def _within_margin(
    anchors: NDArray[np.intp],
    positives: NDArray[np.intp],
    neighbors: Neighbors,
    X: Any,
    margin: float,
) -> NDArray[np.bool_]:
    to_positive = pair_distances(X, anchors, positives, metric=neighbors.metric)[:, None]
    to_negative = neighbors.distances[anchors]
    return np.asarray((to_negative > to_positive) & (to_negative < to_positive + margin))


def _nth_true(allowed: NDArray[np.bool_], nth: NDArray[np.intp]) -> NDArray[np.intp]:
    """Column of the nth True of each row (counted from 0)."""
    position = np.cumsum(allowed, axis=1, dtype=np.int32)
    return np.asarray(np.argmax(position > nth[:, None], axis=1))


def mine_batch_triplets(
    Z: Any,
    labels: Any,
    rng: np.random.Generator,
    *,
    margin: float = 0.5,
    mining: str = "semi-hard",
    limit: int | None = None,
) -> Triplets:
    """Triplets of one embedded mini-batch, as indices into it.

    Parameters
    ----------
    Z : (b, l) array
        The embedded rows; Euclidean distances are taken on them as they are.
    labels : (b,) int array
        -1: no cluster, takes no part.
    rng : numpy Generator
        Chooses which triplets are kept when there are more than `limit`.
    margin : float
    mining : "semi-hard", "hard" or "all"
        Of all (anchor, positive, negative) in the batch: those whose negative is farther than
        the positive by less than `margin`; the nearest negative of every (anchor, positive); or
        every one.
    limit : int, optional

    Returns
    -------
    (T, 3) array, T possibly 0.
    """
    if mining not in _MINING:
        raise ValueError(f"mining={mining!r}: use 'semi-hard', 'hard' or 'all'")
    Z = np.ascontiguousarray(Z, dtype=np.float32 if np.asarray(Z).itemsize <= 4 else np.float64)
    names = _check_labels(labels)
    if len(Z) != names.size:
        raise ValueError(f"Z has {len(Z)} rows but there are {names.size} labels")
    mode = _MINING[mining]
    distance = kernels.distances(Z)
    nothing = np.empty(0, dtype=np.intp)
    count = kernels.mine(distance, names, margin, mode, nothing, np.empty((0, 3), dtype=np.intp))
    kept = np.arange(count)
    if limit is not None and count > limit:
        kept = np.sort(rng.choice(count, limit, replace=False, shuffle=False))
    out = np.empty((kept.size, 3), dtype=np.intp)
    kernels.mine(distance, names, margin, mode, kept, out)
    return out


def batch_sampler(
    labels: Any, rng: np.random.Generator, batch_size: int = 120, per_class: int = 4
) -> Iterator[NDArray[np.intp]]:
    """One epoch of mini-batches, each with several rows of every label in it.

    Rows of a label are shuffled and cut into handfuls of `per_class` (a single row left over
    joins the handful before it), the handfuls are shuffled and dealt into batches of about
    `batch_size` rows. Every row whose label has two members appears exactly once.
    """
    labels = _check_labels(labels)
    if batch_size < 2 or per_class < 2:
        raise ValueError(
            f"batch_size={batch_size} and per_class={per_class}: both must be at least 2"
        )
    members = members_of(labels)
    rows = members.rows[members.count[members.rows] >= 2]
    rows = rows[np.lexsort((rng.random(rows.size), labels[rows]))]
    count = members.count[rows]
    place = np.arange(rows.size) - np.searchsorted(labels[rows], labels[rows])
    alone = (place == count - 1) & (place % per_class == 0)
    first = (place % per_class == 0) & ~alone
    handful = np.cumsum(first) - 1
    key = rng.permutation(int(first.sum()))[handful] if rows.size else handful
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    batch = (begins // batch_size)[key]
    yield from np.split(rows, np.flatnonzero(np.diff(batch)) + 1) if rows.size else ()
