"""Which rows to label next: those in dense regions, far from all labeled or suggested rows.

The score of a row is the density around it (the 4-norm of its similarities to the exemplars,
weighted by the rows they represent) times its distance to the nearest labeled or suggested row.
The best row is suggested, the distances are updated, and so on. So classes are covered early, and
the suggested rows of one class are far apart, which helps to learn its scatter.

If the rows are available, all of them are candidates. A model alone only has the positions of its
exemplars: these come first, followed by the rows with the least probable triplets.
"""

from dataclasses import dataclass

import numpy as np

from rpml.method.clustering.pseudo_labels import Exemplars
from rpml.method.graph.heaps import nearest_rows
from rpml.runtime.rows import Array, Indices, Integers, Labels, Mask
from rpml.runtime.threads import single_blas_thread, times

DENSITY_ROWS = 1024


@dataclass(frozen=True)
class Candidates:
    """Training rows that may be labeled, with their clusters and labels."""

    count: int  # the first so many rows may be labeled; after an update, those that were new
    exemplars: Exemplars
    middles: Array  # the embedded exemplars, unit rows
    rows: Array | None  # all embedded training rows, if they are available
    labels: Labels  # (n,) clusters of all training rows, -1 where unknown
    labeled: Mask  # (n,) rows whose class is given
    triplets: Integers
    probabilities: Array


def rank_candidates(n: int, known: Candidates) -> Indices:
    """Return up to n unlabeled rows, most informative first."""
    if n < 0:
        raise ValueError(f"n={n}: the number of rows must not be negative.")
    exemplars, labeled = known.exemplars, known.labeled[: known.count]
    if known.rows is None:
        chosen = exemplars.rows < known.count
        rows, Z = exemplars.rows[chosen], known.middles[chosen]
        covered = np.isin(exemplars.labels[chosen], known.labels[known.labeled])
    else:
        rows, Z, covered = np.arange(known.count), known.rows, labeled
    first = rows[spread_out(Z, density(Z, known.middles, exemplars.sizes), covered, n)]
    doubt = row_doubt(len(known.labeled), known.triplets, known.probabilities)
    rest = np.setdiff1d(np.flatnonzero(~labeled), first)
    rest = rest[np.argsort(-doubt[rest], kind="stable")]
    return np.asarray(np.concatenate([first, rest])[:n])


@single_blas_thread()
def spread_out(Z: Array, weight: Array, covered: Mask, n: int) -> Indices:
    """Return up to n uncovered rows: dense ones, far from covered rows and from each other."""
    similarity = np.full(len(Z), -1.0)
    if covered.any():
        similarity = nearest_rows(Z, Z[covered])[0][:, 0]
    free = ~covered
    chosen = np.empty(min(n, int(free.sum())), np.intp)
    for i in range(len(chosen)):
        best = np.where(free, weight * np.maximum(1.0 - similarity, 0.0), -1.0).argmax()
        chosen[i], free[best] = best, False
        similarity = np.maximum(similarity, Z @ Z[best])
    return chosen


def density(Z: Array, middles: Array, sizes: Integers) -> Array:
    """Return how many rows surround each row of Z, near ones counting most."""
    columns, counts = np.ascontiguousarray(middles.T), sizes.astype(middles.dtype)
    blocks = np.array_split(Z, 1 + len(Z) // DENSITY_ROWS)
    near = (np.maximum(times(block, columns), 0) ** 4 for block in blocks)
    return np.concatenate([(similar @ counts) ** 0.25 for similar in near])


def row_doubt(n: int, triplets: Integers, probabilities: Array) -> Array:
    """Return the mean of 1 - p over the triplets of each row as anchor or positive."""
    ends = triplets[:, :2].ravel()
    total = np.bincount(ends, np.repeat(1.0 - probabilities, 2), n)
    return np.asarray(total / np.maximum(np.bincount(ends, minlength=n), 1))
