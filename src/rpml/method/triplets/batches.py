"""Mini-batches with several rows per label, and the triplets within one."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.method.triplets import kernels
from rpml.method.triplets.members import Members, check_labels, members_of
from rpml.runtime.wording import counted

Triplets = NDArray[np.intp]
_MINING = {"semi-hard": kernels.SEMI_HARD, "hard": kernels.HARD}


def mine_batch_triplets(
    Z: ArrayLike,
    labels: ArrayLike,
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
    if mining not in ("all", *_MINING):
        raise ValueError(f"mining={mining!r}: use 'semi-hard', 'hard' or 'all'")
    Z = np.ascontiguousarray(Z, dtype=np.float32 if np.asarray(Z).itemsize <= 4 else np.float64)
    names = check_labels(labels)
    if len(Z) != names.size:
        raise ValueError(f"got {counted(names.size, 'label')} for {counted(len(Z), 'row')} of Z")
    if mining == "all":
        return _of_all_triplets(members_of(names), rng, limit)
    kind = _MINING[mining]
    distance = kernels.distances(Z)
    nothing = np.empty(0, dtype=np.intp)
    count = kernels.mine(distance, names, margin, kind, nothing, np.empty((0, 3), dtype=np.intp))
    retained = _retained(count, rng, limit)
    out = np.empty((retained.size, 3), dtype=np.intp)
    kernels.mine(distance, names, margin, kind, retained, out)
    return out


def _retained(count: int, rng: np.random.Generator, limit: int | None) -> NDArray[np.intp]:
    """Return the numbers of the selected triplets, ascending."""
    if limit is None or count <= limit:
        return np.arange(count)
    return np.sort(rng.choice(count, limit, replace=False, shuffle=False))


def _of_all_triplets(members: Members, rng: np.random.Generator, limit: int | None) -> Triplets:
    """Select triplets by their number among all; only the selected ones are formed."""
    rows = members.rows
    begin, same = members.start[rows], members.count[rows]
    positives, negatives = same - 1, rows.size - same
    last = np.cumsum(positives * negatives)
    number = _retained(int(last[-1]) if last.size else 0, rng, limit)
    anchor = np.searchsorted(last, number, side="right")
    within = number - (last - positives * negatives)[anchor]
    positive, negative = np.divmod(within, np.maximum(negatives[anchor], 1))
    positive = begin[anchor] + positive
    positive += positive >= anchor  # skip the anchor itself
    negative += np.where(negative >= begin[anchor], same[anchor], 0)  # and its label
    return np.stack([rows[anchor], rows[positive], rows[negative]], axis=1)


def batch_sampler(
    labels: ArrayLike, rng: np.random.Generator, batch_size: int = 120, per_class: int = 4
) -> Iterator[NDArray[np.intp]]:
    """Yield one epoch of mini-batches, each with several rows of every label in it.

    The rows of a label are shuffled and split into groups of `per_class` (a single remaining row
    joins the previous group); the groups are shuffled and distributed to batches of about
    `batch_size` rows. Every row whose label has two members appears exactly once.
    """
    labels = check_labels(labels)
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
    bundle = np.cumsum(first) - 1
    key = rng.permutation(int(first.sum()))[bundle] if rows.size else bundle
    order = np.argsort(key, kind="stable")
    rows, key = rows[order], key[order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    batch = (begins // batch_size)[key]
    yield from np.split(rows, np.flatnonzero(np.diff(batch)) + 1) if rows.size else ()
