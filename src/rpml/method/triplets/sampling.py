"""Triplets (anchor, positive, negative) of row indices, drawn from labels.

The positive is any other row of the anchor's label. A sampler selects the negative among rows of
other labels: any of them, the anchor's nearest, or one not much farther than the positive. The
stochastic solver mines the triplets of mini-batches instead.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from rpml.method.graph.neighbors import Neighbors, pair_distances
from rpml.runtime.compiled import compiled
from rpml.runtime.rows import Array, Indices, Integers, Mask, slices

Triplets = Indices
_REDRAWS = 16  # attempts to redraw a negative from the anchor's group
_CHUNK = 65536  # triplets whose near negatives are listed together
MARGIN = 0.5  # by which a semi-hard negative is farther than the positive, at most


@dataclass(frozen=True)
class Members:
    """The labeled rows, sorted by label."""

    rows: Indices  # rows with a label, sorted by it
    start: Indices  # of each data row: where its label begins in `rows`
    count: Indices  # of each data row: how many rows have its label
    place: Indices  # of each data row: its position in `rows`

    def draw_positives(self, anchors: Indices, rng: np.random.Generator) -> Indices:
        """Draw another row of each anchor's label."""
        start, own = self.start[anchors], self.place[anchors]
        drawn = start + rng.integers(0, self.count[anchors] - 1) if anchors.size else start
        return np.asarray(self.rows[drawn + (drawn >= own)])

    def draw_negatives(self, anchors: Indices, rng: np.random.Generator) -> Indices:
        """Draw a row of another label for each anchor."""
        start, count = self.start[anchors], self.count[anchors]
        drawn = rng.integers(0, self.rows.size - count) if anchors.size else start
        return np.asarray(self.rows[drawn + count * (drawn >= start)])


def members_of(labels: Integers) -> Members:
    """Return which rows share a label; negative labels mean none."""
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


@dataclass(frozen=True)
class Draw:
    """Anchors with uniformly drawn partners, and the labels and groups of all rows."""

    anchors: Indices
    positives: Indices
    negatives: Indices  # -1 where there is none
    labels: Integers
    groups: Integers | None


Sampler = Callable[[Draw, np.random.Generator], Indices]
"""Returns the negative of each anchor; without candidates the uniformly drawn one."""


def uniform(draw: Draw, rng: np.random.Generator) -> Indices:
    """Any row of another label."""
    return draw.negatives


def hard(draw: Draw, rng: np.random.Generator, *, neighbors: Neighbors, X: Array) -> Indices:
    """The anchor's nearest neighbors of another label, in order."""
    turn = np.arange(draw.anchors.size) - np.searchsorted(draw.anchors, draw.anchors)
    out = draw.negatives.copy()
    for part, allowed in _near_negatives(draw, neighbors):
        nth = turn[part] % np.maximum(allowed.sum(axis=1), 1)
        out[part] = _pick(draw, part, neighbors, allowed, nth)
    return out


def semi_hard(
    draw: Draw, rng: np.random.Generator, *, neighbors: Neighbors, X: Array, margin: float = MARGIN
) -> Indices:
    """A neighbor of another label that is farther than the positive by less than the margin."""
    luck = rng.random(draw.anchors.size)
    out = draw.negatives.copy()
    for part, other in _near_negatives(draw, neighbors):
        anchors, metric = draw.anchors[part], neighbors.metric
        near = pair_distances(X, anchors, draw.positives[part], metric=metric)[:, None]
        far = neighbors.distances[anchors]
        allowed = other & (far > near) & (far < near + margin)
        nth = (luck[part] * allowed.sum(axis=1)).astype(np.intp)
        out[part] = _pick(draw, part, neighbors, allowed, nth)
    return out


# called with the k-NN of the rows, and the rows; only "uniform" needs neither
SAMPLERS: dict[str, Callable[..., Indices]] = {
    "uniform": uniform,
    "semi-hard": semi_hard,
    "hard": hard,
}


def _near_negatives(draw: Draw, neighbors: Neighbors) -> Iterator[tuple[slice, Mask]]:
    """Yield parts of the anchors, and which of their neighbors may be their negatives, (T, k)."""
    for part in slices(draw.anchors.size, _CHUNK):
        anchors = draw.anchors[part]
        near = neighbors.indices[anchors]
        allowed = (draw.labels[near] >= 0) & (draw.labels[near] != draw.labels[anchors, None])
        if draw.groups is not None:
            allowed &= ~_same_group(draw.groups, anchors[:, None], near)
        yield part, np.asarray(allowed)


def _pick(draw: Draw, part: slice, neighbors: Neighbors, allowed: Mask, nth: Indices) -> Indices:
    """Return the nth allowed neighbor of each anchor (from 0), or its uniform negative."""
    position = np.cumsum(allowed, axis=1, dtype=np.int32)
    column = np.argmax(position > nth[:, None], axis=1)
    picked = neighbors.indices[draw.anchors[part], column]
    return np.where(allowed.any(axis=1), picked, draw.negatives[part])


def _same_group(groups: Integers, a: Indices, b: Integers) -> Mask:
    """Whether two rows are in one group; -1 is no group."""
    return np.asarray((groups[a] >= 0) & (groups[a] == groups[b]))


def sample_triplets(
    labels: Integers,
    rng: np.random.Generator,
    *,
    per_anchor: int = 4,
    limit: int | None = None,
    sampler: Sampler = uniform,
    groups: Integers | None = None,
) -> Triplets:
    """Draw (n_triplets, 3) row indices.

    Rows with a negative label are in no triplet, not even as negatives. A row alone in its label is
    not an anchor or positive, but may be a negative. Each anchor has `per_anchor` triplets; if
    they are more than `limit`, all anchors are used equally often, up to one. Rows of one group
    (>= 0) are never negatives of each other.
    """
    members = members_of(labels)
    able = np.flatnonzero((members.count >= 2) & (members.count < members.rows.size))
    anchors = _repeat(able, rng, per_anchor, limit)
    positives = members.draw_positives(anchors, rng)
    negatives = members.draw_negatives(anchors, rng)
    if groups is not None:
        for _ in range(_REDRAWS):
            bad = np.flatnonzero(_same_group(groups, anchors, negatives))
            if not bad.size:
                break
            negatives[bad] = members.draw_negatives(anchors[bad], rng)
        negatives = np.where(_same_group(groups, anchors, negatives), -1, negatives)
    negatives = sampler(Draw(anchors, positives, negatives, labels, groups), rng)
    return np.stack([anchors, positives, negatives], axis=1)[negatives >= 0]


def _repeat(able: Indices, rng: np.random.Generator, per_anchor: int, limit: int | None) -> Indices:
    """Repeat each anchor as often as it is used: `per_anchor` times, or less if limited."""
    if limit is None or able.size * per_anchor <= limit:
        return np.repeat(able, per_anchor)
    rounds, rest = divmod(limit, able.size)
    extra = np.sort(rng.choice(able, rest, replace=False))
    return np.sort(np.concatenate([np.repeat(able, rounds), extra]), kind="stable")


def parted_triplets(
    labels: Indices, apart: Indices, per_anchor: int, rng: np.random.Generator
) -> Triplets:
    """Return triplets of rows known to be apart, each in turn as anchor and as negative."""
    anchors, negatives = np.vstack([apart, apart[:, ::-1]]).repeat(per_anchor, axis=0).T
    members = members_of(labels)
    able = members.count[anchors] > 1
    anchors, negatives = anchors[able], negatives[able]
    return np.stack([anchors, members.draw_positives(anchors, rng), negatives], axis=1)


def mine_batch_triplets(
    Z: Array,
    labels: Integers,
    rng: np.random.Generator,
    *,
    margin: float = MARGIN,
    mining: str = "semi-hard",
    limit: int | None = None,
) -> Triplets:
    """Mine the triplets of one embedded mini-batch; return (T, 3) indices into it.

    `mining` is "semi-hard" (the negative is farther than the positive by less than `margin`),
    "hard" (the nearest negative of every anchor and positive) or "all". Distances are Euclidean,
    and rows with the label -1 are ignored. Of more than `limit` triplets, so many are drawn.
    """
    if mining == "all":
        return _all_triplets(labels, rng, limit)
    nothing = np.empty((0, 3), dtype=np.intp)
    if len(Z) == 0:
        return nothing
    distance = euclidean_distances(Z)
    count = _mine(distance, labels, margin, mining == "hard", nothing[:, 0], nothing)
    drawn = _drawn(count, rng, limit)
    out = np.empty((drawn.size, 3), dtype=np.intp)
    _mine(distance, labels, margin, mining == "hard", drawn, out)
    return out


def _drawn(count: int, rng: np.random.Generator, limit: int | None) -> Indices:
    """Return the numbers of the selected triplets, ascending."""
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(rng.choice(count, limit, replace=False, shuffle=False))


def _all_triplets(labels: Integers, rng: np.random.Generator, limit: int | None) -> Triplets:
    """Select triplets by their number among all; only the selected ones are formed."""
    members = members_of(labels)
    rows = members.rows
    begin, same = members.start[rows], members.count[rows]
    positives, negatives = same - 1, rows.size - same
    last = np.cumsum(positives * negatives)
    number = _drawn(int(last[-1]) if last.size else 0, rng, limit)
    anchor = np.searchsorted(last, number, side="right")
    within = number - (last - positives * negatives)[anchor]
    positive, negative = np.divmod(within, np.maximum(negatives[anchor], 1))
    positive = begin[anchor] + positive
    positive += positive >= anchor  # skip the anchor itself
    negative += np.where(negative >= begin[anchor], same[anchor], 0)  # and its label
    return np.stack([rows[anchor], rows[positive], rows[negative]], axis=1)


@compiled()
def _mine(distance, labels, margin, hard, drawn, out):  # type: ignore[no-untyped-def]
    """Count the triplets of a batch; with `out` also write those whose number is in `drawn`.

    `drawn` is ascending and as long as `out`; an empty `out` only counts.
    """
    b = labels.shape[0]
    count, written = 0, 0
    for a in range(b):
        if labels[a] < 0:
            continue
        first, last = 0, b
        if hard:
            first = -1
            for n in range(b):
                other = labels[n] >= 0 and labels[n] != labels[a]
                if other and (first < 0 or distance[a, n] < distance[a, first]):
                    first = n
            last = first + 1
            if first < 0:
                continue
        for p in range(b):
            if p == a or labels[p] != labels[a]:
                continue
            near = distance[a, p]
            for n in range(first, last):
                if labels[n] < 0 or labels[n] == labels[a]:
                    continue
                if not hard and not near < distance[a, n] < near + margin:
                    continue
                if written < drawn.shape[0] and drawn[written] == count:
                    out[written, 0], out[written, 1], out[written, 2] = a, p, n
                    written += 1
                count += 1
    return count


def batch_sampler(
    labels: Integers, rng: np.random.Generator, batch_size: int = 120, per_class: int = 4
) -> Iterator[Indices]:
    """Yield one epoch of mini-batches, each with several rows of every label in it.

    The rows of a label are shuffled and split into groups of `per_class` (a single remaining row
    joins the previous group); the groups are shuffled and distributed to batches of about
    `batch_size` rows. Every row whose label has two members appears exactly once.
    """
    members = members_of(labels)
    rows = members.rows[members.count[members.rows] >= 2]
    rows = rows[np.lexsort((rng.random(rows.size), labels[rows]))]
    count = members.count[rows]
    place = np.arange(rows.size) - np.searchsorted(labels[rows], labels[rows])
    alone = (place == count - 1) & (place % per_class == 0)
    first = (place % per_class == 0) & ~alone
    bundle = np.cumsum(first) - 1
    key = rng.permutation(int(first.sum()))[bundle] if rows.size else bundle
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    batch = (begins // batch_size)[key]
    yield from np.split(rows, np.flatnonzero(np.diff(batch)) + 1) if rows.size else ()
