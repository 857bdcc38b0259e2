"""Tasks of the nearest-neighbor search: pure functions of partitions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph import approximate as ann
from rpml.method.graph.exact import (
    EMPTY_SLOT,
    Heaps,
    SearchCorpus,
    block_size,
    empty_heaps,
    prepare,
    push_scores,
    search_pairs,
    sort,
)
from rpml.method.graph.kernels import push
from rpml.method.graph.neighbors import Neighbors, refine
from rpml.runtime.compiled import compiled
from rpml.runtime.rows import Array, slices

MEMORY = 256 * 2**20  # bytes for the working blocks of one task
EMPTY_ROW = np.iinfo(np.int64).max  # an empty position in a list of neighbors
Candidates = tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.float32]]
"""(rows of the partition, neighbors, distances)."""
Visit = tuple[NDArray[np.int32], Array, NDArray[np.int32]]
"""(positions in the partition, rows, the cells they search)."""
CellSums = tuple[NDArray[np.float64], NDArray[np.intp]]
Extent = tuple[Array, Array, Array, int]
"""Minimum, maximum and sum of every column, and the number of rows."""


@dataclass(frozen=True)
class Frame:
    """Metric, center and unit of length of a `SearchCorpus`, from all rows."""

    metric: str
    center: NDArray[np.float64]
    unit: float = 1.0

    def prepare(self, block: Array) -> Array:
        """Return rows ready for products."""
        return prepare(block, self.metric, np.float32, self.center, self.unit)

    def rows(self, block: Array) -> SearchCorpus:
        """Return a block of rows as a corpus for the search."""
        if self.metric == "cosine":
            half = np.full(len(block), 0.5)
        else:
            doubles = prepare(block, self.metric, np.float64, self.center, self.unit)
            half = 0.5 * np.einsum("ij,ij->i", doubles, doubles)
        return SearchCorpus(block, self.metric, self.center, self.unit, half)


def extent(part: Array) -> Extent:
    total = part.sum(axis=0, dtype=np.float64)
    return part.min(axis=0).astype(float), part.max(axis=0).astype(float), total, len(part)


def widest(parts: list[Extent]) -> Extent:
    low, high, total, count = zip(*parts, strict=True)
    return np.min(low, axis=0), np.max(high, axis=0), np.sum(total, axis=0), sum(count)


def pair(
    one: Array, two: Array | None, starts: NDArray[np.integer], k: int, frame: Frame
) -> tuple[Candidates, ...]:
    """Find the top k of each partition's rows in the other one (or within the only one)."""
    both = one if two is None else np.concatenate([one, two])
    rows = frame.rows(both)
    ids = np.arange(len(both), dtype=np.int32)
    size = block_size(EMPTY_SLOT, both.shape[1], MEMORY)
    left = [ids[: len(one)][part] for part in slices(len(one), size)]
    right = [] if two is None else [ids[len(one) :][part] for part in slices(len(two), size)]
    every = range(len(left))
    pairs = [(a, b) for a in every for b in every if a <= b]
    if two is not None:
        pairs = [(a, len(left) + b) for a in every for b in range(len(right))]
    blocks = [*left, *right]
    heaps = search_pairs(rows.prepared(MEMORY), blocks, pairs, k, lambda share: None)
    whose = np.where(ids < len(one), starts[0], starts[1] - len(one)) + ids
    near, distances = named_lists(rows, heaps, whose)
    parts = [slice(0, len(one))] if two is None else [slice(0, len(one)), slice(len(one), None)]
    return tuple((np.arange(len(near[p]), dtype=np.int32), near[p], distances[p]) for p in parts)


def named_lists(
    rows: SearchCorpus, heaps: Heaps, names: NDArray[np.integer]
) -> tuple[NDArray[np.integer], NDArray[np.float32]]:
    """Convert scores to row numbers and distances, nearest first; empty slots are at infinity."""
    scores, idx = heaps
    out = np.empty(idx.shape, names.dtype)
    distances = np.empty(idx.shape, np.float32)
    for part in slices(len(scores), max(1, MEMORY // (64 * idx.shape[1]))):
        squares = rows.squares(part, scores[part])  # infinite where the score is -infinite
        near = np.where(idx[part] == EMPTY_SLOT, 0, idx[part])
        refine(rows, squares, near, np.arange(len(scores))[part], MEMORY)
        out[part] = np.where(np.isinf(squares), np.iinfo(names.dtype).max, names[near])
        distances[part] = np.sqrt(squares) * rows.unit
    return out, distances


def scan(
    part: Array, start: int, queries: Array, names: NDArray[np.integer], k: int, frame: Frame
) -> Candidates:
    """Find the top k of queries, given with their row numbers, among the rows of a partition."""
    rows = frame.rows(np.concatenate([queries, part]))
    mine = np.arange(len(queries), rows.count, dtype=np.int32)
    own = np.asarray(names) - start + len(queries)  # a query in this partition is not its own hit
    own = np.where((own >= len(queries)) & (own < rows.count), own, -1).astype(np.int32)
    half = rows.half.astype(np.float32)
    heaps = empty_heaps(len(queries), k)
    left = frame.prepare(queries)
    for block in slices(len(part), max(256, MEMORY // (16 * max(1, len(queries))))):
        push_scores(left @ rows.block(mine[block]).T, half[mine[block]], own, mine[block], heaps)
    sort(*heaps)
    whose = np.concatenate([names, start + np.arange(len(part))])
    return np.arange(len(queries)), *named_lists(rows, heaps, whose)


@compiled()
def push_candidates(vals, idx, rows, candidates, scores):  # type: ignore[no-untyped-def]
    """Push sorted candidates of some rows into their heaps, which keep the largest scores."""
    for r in range(rows.shape[0]):
        at = rows[r]
        for c in range(candidates.shape[1]):
            value, index = scores[r, c], candidates[r, c]
            worst = vals[at, 0]
            if value < worst or value == -np.inf:  # the rest is no better
                break
            if value > worst or index < idx[at, 0]:
                push(vals[at], idx[at], value, index)


def merge(candidates: list[Candidates], size: int, k: int, metric: str) -> Neighbors:
    """Merge lists of candidates to the best k, nearest first."""
    vals = np.full((size, k), -np.inf, np.float32)
    idx = np.full((size, k), EMPTY_ROW, np.int64)
    for rows, indices, distances in candidates:
        push_candidates(vals, idx, rows, indices, -distances)
    sort(vals, idx)
    return Neighbors(narrow(idx), -vals, metric, method="dask")


def narrow(idx: NDArray[np.int64]) -> NDArray[np.int32]:
    """Store row numbers below 2^31 in half the space; EMPTY_ROW stays the largest number."""
    indices = idx[idx != EMPTY_ROW]
    if indices.size and indices.max() >= EMPTY_SLOT:
        return idx  # type: ignore[return-value]  # more rows than int32 can count
    return np.minimum(idx, EMPTY_SLOT).astype(np.int32)


def short(lists: Neighbors) -> NDArray[np.intp]:
    return np.flatnonzero(np.isinf(lists.distances).any(axis=1))


def patched(
    lists: Neighbors,
    rows: NDArray[np.intp],
    indices: NDArray[np.integer],
    distances: NDArray[np.float32],
) -> Neighbors:
    near, far = lists.indices.copy(), lists.distances.copy()
    near[rows], far[rows] = indices, distances
    return Neighbors(near, far, lists.metric, method="dask")


def indices(lists: Neighbors) -> NDArray[np.int32]:
    return lists.indices


def width(centers: NDArray[np.float32]) -> int:
    return int(centers.shape[1])


def rows_of(part: Array, which: NDArray[np.integer]) -> Array:
    return np.asarray(part[which])


def center_sums(subset: Array, centers: NDArray[np.float32], frame: Frame) -> CellSums:
    return ann.center_sums(frame.rows(subset), np.arange(len(subset)), centers, MEMORY)


def moved(centers: NDArray[np.float32], sums: CellSums) -> NDArray[np.float32]:
    return ann.move_centers(centers, *sums)


def needed(taken: Array, centers: NDArray[np.float32], queries: int, frame: Frame) -> int:
    """Return how many cells contain the target share of the true neighbors."""
    places = np.arange(queries, len(taken)).reshape(queries, -1)
    sample = ann.Sample(np.arange(queries), places.astype(np.int32))
    return ann.choose_nprobe(frame.rows(taken), centers, sample, MEMORY)


def probes(
    part: Array, centers: NDArray[np.float32], needed: int, frame: Frame
) -> NDArray[np.int32]:
    return ann.nearest_centers(frame.rows(part), None, centers, needed, MEMORY)


def cell_sizes(probes: NDArray[np.int32], centers: NDArray[np.float32]) -> NDArray[np.intp]:
    return np.bincount(probes[:, 0], minlength=len(centers))


def deal_cells(
    centers: NDArray[np.float32], sizes: NDArray[np.intp], buckets: int
) -> NDArray[np.intp]:
    """Return the bucket of each cell, by repeatedly halving the cells along their main axis."""
    out = np.zeros(len(centers), np.intp)
    _halve(centers, sizes, np.arange(len(centers)), (0, buckets), out)
    return out


def _halve(
    centers: NDArray[np.float32],
    sizes: NDArray[np.intp],
    cells: NDArray[np.intp],
    span: tuple[int, int],
    out: NDArray[np.intp],
) -> None:
    first, last = span
    if last - first <= 1 or len(cells) <= 1:
        out[cells] = first
        return
    middle = (first + last) // 2
    offsets = (centers[cells] - centers[cells].mean(axis=0)).astype(np.float64)
    longest = np.linalg.eigh(offsets.T @ offsets)[1][:, -1]
    cells = cells[np.argsort(offsets @ longest, kind="stable")]
    load = np.cumsum(sizes[cells])
    at = int(np.searchsorted(load, load[-1] * (middle - first) / (last - first))) + 1
    at = min(max(at, 1), len(cells) - 1)
    _halve(centers, sizes, cells[:at], (first, middle), out)
    _halve(centers, sizes, cells[at:], (middle, last), out)


def looks(probes: NDArray[np.int32], bucket: NDArray[np.intp]) -> int:
    """Return how many buckets the rows of a partition search in total."""
    seen = np.sort(bucket[probes], axis=1)
    return len(seen) + int((np.diff(seen, axis=1) != 0).sum())


def visitors(part: Array, probes: NDArray[np.int32], bucket: NDArray[np.intp], b: int) -> Visit:
    """Return the rows that search a bucket: (positions in the partition, values, cells)."""
    rows = np.flatnonzero((bucket[probes] == b).any(axis=1)).astype(np.int32)
    return rows, part[rows], probes[rows]


def search(
    visits: list[Visit],
    starts: NDArray[np.integer],
    bucket: NDArray[np.intp],
    b: int,
    k: int,
    frame: Frame,
) -> list[Candidates]:
    """Search a bucket for its visitors; returns one list of candidates per partition."""
    rows = frame.rows(np.concatenate([values for _, values, _ in visits]))
    probes = np.concatenate([cells for _, _, cells in visits])
    inside = np.flatnonzero(bucket == b)
    number = np.full(len(bucket), len(inside), np.int32)  # for cells of other buckets
    number[inside] = np.arange(len(inside), dtype=np.int32)
    home = number[probes[:, 0]]
    probes = np.sort(number[probes], axis=1)
    probes = probes[:, (probes < len(inside)).any(axis=0)]
    cells = ann.Cells(home, probes, len(inside))
    heaps = ann.visit_cells(rows.prepared(2 * MEMORY), cells, k, MEMORY, lambda share: None)
    names = np.concatenate([s + v[0] for s, v in zip(starts, visits, strict=True)])
    near, distances = named_lists(rows, heaps, names)
    cuts = np.cumsum([0, *(len(v[0]) for v in visits)])
    return [
        (v[0], near[a:z], distances[a:z]) for v, a, z in zip(visits, cuts, cuts[1:], strict=False)
    ]
