"""Exact Lloyd k-means that stays fast with thousands of clusters.

If there are many seeds, they are drawn in rounds of many at a time. A center whose members did not
change is exactly the same center, so a row in such a cluster is compared only with the centers
that moved; the assignment stays exact. All comparisons are single-precision products of blocks, so
memory is bounded by a block and not by n x k.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.compiled import compiled
from rpml.runtime.rows import slices
from rpml.runtime.threads import run_chunks, single_blas_thread

Floats = NDArray[np.float32]
_TILE = 1 << 23  # scores held at once: 32 MB
_GREEDY = 256  # up to here seeds are drawn one by one, beyond in rounds
_SEED_ROUNDS = 128
_SEED_TILE = 1 << 25  # distances held at once in a round: 128 MB
_LARGE = 2e10  # n * k * d from which one run is enough
_MAX_ITER = 100


@dataclass(frozen=True)
class KMeansResult:
    """Labels, centers, inertia, and how the best run ended."""

    labels: NDArray[np.intp]
    centers: Floats
    inertia: float
    n_iter: int
    converged: bool


def kmeans(
    X: NDArray[np.floating],
    k: int,
    rng: np.random.Generator,
    n_init: int | None = None,
    progress: Callable[[float], object] | None = None,
) -> KMeansResult:
    """Cluster the rows of X into k clusters; return the run with the least inertia.

    Rows should be centered or normalized, since distances are computed in single precision. Fewer
    than k clusters are returned only if fewer rows are distinct. `n_init` is by default 5, or 1 if
    n * k * dimensions is above 2e10. A run stops early when no row changes its cluster. `progress`
    is called with the finished share of the maximal number of iterations.
    """
    rows = np.ascontiguousarray(X, dtype=np.float32)
    n, d = rows.shape
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and the number of rows ({n}), got {k}")
    runs = n_init if n_init is not None else (1 if n * k * d > _LARGE else 5)
    if runs < 1:
        raise ValueError(f"n_init must be at least 1, got {n_init}")
    count = itertools.count(1)

    def advance() -> None:
        if progress is not None:
            progress(next(count) / (runs * _MAX_ITER))

    if runs == 1:
        results = [_lloyd(rows, _seed(rows, k, rng), advance)]
    else:
        results = _restarts(rows, k, rng.spawn(runs), advance)
    if progress is not None:
        progress(1.0)
    return min(results, key=lambda result: result.inertia)


def _restarts(
    rows: Floats, k: int, sources: list[np.random.Generator], advance: Callable[[], None]
) -> list[KMeansResult]:
    """Run restarts in parallel, each on one BLAS thread: their products are small."""
    results: list[KMeansResult | None] = [None] * len(sources)

    def work(_: int, first: int, last: int) -> None:
        for i in range(first, last):
            results[i] = _lloyd(rows, _seed(rows, k, sources[i]), advance)

    with single_blas_thread():
        run_chunks(work, len(sources), minimum=1)
    return [result for result in results if result is not None]


def _seed(rows: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Draw seeds by greedy k-means++: each is the best of several draws by squared distance.

    Many seeds are drawn in rounds: the draws of a round share one product and the distances at its
    start, but each choice among them takes into account the seeds chosen before it.
    """
    squares = _squares(rows)
    draws, at_once = 2 + int(np.log(k)), 1
    if k > _GREEDY:
        draws = 4
        at_once = min(-(-k // _SEED_ROUNDS), max(1, _SEED_TILE // (draws * len(rows))))
    chosen = [rng.integers(len(rows))]
    distance = _distances(rows[chosen], rows, squares)[0]
    while len(chosen) < k:
        drawn = _draw(distance, (min(at_once, k - len(chosen)), draws), rng)
        to_drawn = _distances(rows[drawn.ravel()], rows, squares).reshape(*drawn.shape, -1)
        for candidates, distances in zip(drawn, to_drawn, strict=True):
            np.minimum(distances, distance, out=distances)
            best = int(distances.sum(axis=1, dtype=np.float64).argmin())
            chosen.append(candidates[best])
            distance = distances[best]
    return rows[chosen]


def _draw(distance: Floats, shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.intp]:
    total = np.cumsum(distance, dtype=np.float64)
    if total[-1] == 0:  # every row coincides with a seed
        return rng.integers(len(distance), size=shape)
    drawn: NDArray[np.intp] = np.searchsorted(total, rng.random(shape) * total[-1], side="right")
    return drawn.clip(max=len(distance) - 1)


def _distances(centers: Floats, rows: Floats, squares: Floats) -> Floats:
    """Return non-negative squared distances (centers, rows); `squares` are those of the rows."""
    distances: Floats = centers @ rows.T
    distances *= -2
    distances += squares
    distances += _squares(centers)[:, None]
    np.maximum(distances, 0, out=distances)
    return distances


def _squares(rows: Floats) -> Floats:
    squares: Floats = np.einsum("ij,ij->i", rows, rows)
    return squares


def _lloyd(rows: Floats, centers: Floats, advance: Callable[[], None]) -> KMeansResult:
    """Alternate assignments and means until no row changes its cluster.

    `scores` are x.c - |c|^2/2 of each row and its own center, largest for the nearest center.
    """
    squares = _squares(rows)
    labels, scores = _nearest(rows, np.arange(len(rows)), centers)
    touched = np.ones(len(centers), dtype=bool)
    n_iter = 0
    while touched.any() and n_iter < _MAX_ITER:
        touched |= _fill_empty(labels, squares - 2 * scores, len(centers))
        moved = _update_centers(rows, labels, centers, touched)
        before = labels.copy()
        _reassign(rows, centers, moved, labels, scores)
        touched = _clusters_of(before, labels, len(centers))
        n_iter += 1
        advance()
    inertia = float((squares - 2 * scores).clip(min=0).sum(dtype=np.float64))
    return KMeansResult(labels, centers, inertia, n_iter, not touched.any())


def _fill_empty(labels: NDArray[np.intp], distance: Floats, k: int) -> NDArray[np.bool_]:
    """Move the rows farthest from their center into empty clusters; return changed clusters."""
    sizes = np.bincount(labels, minlength=k)
    changed = np.zeros(k, dtype=bool)
    empty = list(np.flatnonzero(sizes == 0))
    farthest = np.argsort(-distance, kind="stable") if empty else ()
    for row in farthest:
        if not empty or distance[row] <= 0:
            break
        if sizes[labels[row]] > 1:
            target = empty.pop()
            sizes[labels[row]] -= 1
            sizes[target] = 1
            changed[[labels[row], target]] = True
            labels[row] = target
    return changed


def _update_centers(
    rows: Floats, labels: NDArray[np.intp], centers: Floats, touched: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """Set the touched centers to the mean of their rows; return those that moved."""
    sums = np.zeros(centers.shape)
    counts = np.zeros(len(centers), dtype=np.int64)
    sum_by_label(rows, labels, touched, sums, counts)
    which = np.flatnonzero(counts)
    means = (sums[which] / counts[which, None]).astype(np.float32)
    moved: NDArray[np.intp] = which[(means != centers[which]).any(axis=1)]
    centers[which] = means
    return moved


def _reassign(
    rows: Floats, centers: Floats, moved: NDArray[np.intp], labels: NDArray[np.intp], scores: Floats
) -> None:
    """Move every row to its nearest center, in place."""
    own_moved = np.zeros(len(centers), dtype=bool)
    own_moved[moved] = True
    adrift = own_moved[labels]
    go = np.flatnonzero(adrift)
    labels[go], scores[go] = _nearest(rows, go, centers)
    if not len(moved):
        return
    stay = np.flatnonzero(~adrift)
    label, score = _nearest(rows, stay, centers[moved])
    better = score > scores[stay]
    labels[stay[better]], scores[stay[better]] = moved[label[better]], score[better]


def _nearest(
    rows: Floats, which: NDArray[np.intp], centers: Floats
) -> tuple[NDArray[np.intp], Floats]:
    """Return the nearest of the centers to each of the rows `which`, and its score, in blocks."""
    half = np.float32(0.5) * _squares(centers)
    labels = np.empty(len(which), dtype=np.intp)
    scores = np.empty(len(which), dtype=np.float32)
    for block in slices(len(which), max(64, _TILE // max(len(centers), 1))):
        tile = rows[which[block]] @ centers.T
        tile -= half
        labels[block] = tile.argmax(axis=1)
        scores[block] = np.take_along_axis(tile, labels[block, None], axis=1)[:, 0]
    return labels, scores


def _clusters_of(before: NDArray[np.intp], after: NDArray[np.intp], k: int) -> NDArray[np.bool_]:
    """Return the clusters that a row left or joined."""
    changed = before != after
    touched = np.zeros(k, dtype=bool)
    touched[before[changed]] = True
    touched[after[changed]] = True
    return touched


@compiled()
def sum_by_label(
    X: NDArray[np.generic],
    labels: NDArray[np.generic],
    wanted: NDArray[np.generic],
    sums: NDArray[np.generic],
    counts: NDArray[np.generic],
) -> None:
    """Add each row of X whose label is wanted to that label's sum (double precision) and count."""
    for i in range(X.shape[0]):
        label = labels[i]
        if wanted[label]:
            counts[label] += 1
            for j in range(X.shape[1]):
                sums[label, j] += X[i, j]
