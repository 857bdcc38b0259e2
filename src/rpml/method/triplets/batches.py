"""Mini-batches with several rows per label, and the triplets within one."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rpml.method.triplets.sampling import Rows, Triplets, members_of
from rpml.runtime.compiled import VECTORIZED, compiled
from rpml.runtime.rows import Array


def mine_batch_triplets(
    Z: Array,
    labels: NDArray[np.integer],
    rng: np.random.Generator,
    *,
    margin: float = 0.5,
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
    distance = _distances(np.ascontiguousarray(Z))
    nothing = np.empty((0, 3), dtype=np.intp)
    count = _mine(distance, labels, margin, mining == "hard", nothing[:, 0], nothing)
    drawn = _drawn(count, rng, limit)
    out = np.empty((drawn.size, 3), dtype=np.intp)
    _mine(distance, labels, margin, mining == "hard", drawn, out)
    return out


def _drawn(count: int, rng: np.random.Generator, limit: int | None) -> Rows:
    """Return the numbers of the selected triplets, ascending."""
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(rng.choice(count, limit, replace=False, shuffle=False))


def _all_triplets(
    labels: NDArray[np.integer], rng: np.random.Generator, limit: int | None
) -> Triplets:
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


@compiled(VECTORIZED)
def _distances(Z):  # type: ignore[no-untyped-def]
    """Return Euclidean distances between all rows; a batch is too small for BLAS threads."""
    b, width = Z.shape
    out = np.zeros((b, b), Z.dtype)
    for i in range(b):
        x = Z[i]
        for j in range(i):
            y = Z[j]
            total = Z.dtype.type(0)
            for c in range(width):
                total += (x[c] - y[c]) * (x[c] - y[c])
            out[i, j] = out[j, i] = np.sqrt(total)
    return out


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
    labels: NDArray[np.integer],
    rng: np.random.Generator,
    batch_size: int = 120,
    per_class: int = 4,
) -> Iterator[Rows]:
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
