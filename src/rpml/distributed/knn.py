"""The nearest neighbours of every row, found and kept on the workers.

Exact: every pair of partitions is compared once, each product read both ways. Beyond 100,000 rows
the cells of the local search: k-means centres on a sample by distributed rounds, each row compared
with the rows of its nearest cells. Cells are dealt to buckets of neighbouring ones, one per task,
and a partition sends each bucket the rows that look into it; what they find comes back and is
merged. The recall is measured on rows that are searched exactly.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray

from rpml.distributed import _kernels as kernels
from rpml.distributed.buckets import deal_cells
from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.frame import Frame, find_frame
from rpml.distributed.take import take
from rpml.method.graph import approximate as ann
from rpml.method.graph.exact import (
    EMPTY_SLOT,
    SearchCorpus,
    block_size,
    empty_heaps,
    push_scores,
    search_pairs,
    slices,
    sort,
)
from rpml.method.graph.neighbors import EXACT_ROWS, Neighbors, refine
from rpml.runtime.context import Context

logger = logging.getLogger(__name__)

MEMORY = 256 * 2**20  # bytes the working blocks of one task may take
EMPTY_ROW = np.iinfo(np.int64).max  # an empty place in a list of neighbours
_BUCKET = 2_000_000  # most rows whose cells make a bucket
_SHARE = 0.4  # of the memory a thread has, for one search
_VISITORS = 4  # rows that look into a bucket, for each that is in it
_CELLS = 2.0  # times the square root of the rows: most cells, so that finding one's own stays cheap

Candidates = tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]
"""(rows of the partition, neighbours, distances)."""


@sizeof.register(Neighbors)  # type: ignore[untyped-decorator]
def _bytes(lists: Neighbors) -> int:
    return int(lists.indices.nbytes + lists.distances.nbytes)


@dataclass(frozen=True)
class Graph:
    """Partitioned neighbours: part i is a `Neighbors` of the rows of partition i."""

    parts: list[Task]
    edges: NDArray[np.int64]
    n_neighbors: int
    metric: str
    recall: float
    method: str


def nearest_neighbors(
    cluster: Cluster,
    parts: Sequence[Task],
    edges: NDArray[np.int64],
    n_neighbors: int,
    context: Context,
    *,
    metric: str = "cosine",
    method: str = "auto",
) -> Graph:
    """Find the neighbours of all rows.

    Parameters
    ----------
    cluster, parts, edges
        The rows, as in `rpml.distributed.source.PartitionedRows`.
    n_neighbors : int
        At most the number of other rows.
    context : Context
        Told how many tasks are done.
    metric : "cosine" or "euclidean"
    method : "auto", "exact" or "ann"
        "auto" is exact up to 100,000 rows.
    """
    if method not in ("auto", "exact", "ann"):
        raise ValueError(f"method={method!r}: use 'auto', 'exact' or 'ann'")
    n = int(edges[-1])
    k = min(n_neighbors, n - 1)
    search = Search(cluster, list(parts), edges, k, find_frame(cluster, parts, metric), context)
    if method == "exact" or (method == "auto" and n <= EXACT_ROWS):
        return Graph(search.exact(), edges, k, metric, 1.0, "exact")
    return search.approximate()


@dataclass
class Search:
    """One search: the rows and how they are compared."""

    cluster: Cluster
    parts: list[Task]
    edges: NDArray[np.int64]
    k: int
    frame: Frame
    context: Context

    @property
    def _starts(self) -> NDArray[Any]:
        """The first row of each partition, in as few bytes as all row numbers need."""
        return self.edges[:-1].astype(np.int32 if self.edges[-1] < EMPTY_SLOT else np.int64)

    def exact(self) -> list[Task]:
        """Compare every pair of partitions."""
        count = len(self.parts)
        offers: list[list[Task]] = [[] for _ in range(count)]
        # the longer ones first
        pairs = sorted((a == b, a, b) for a in range(count) for b in range(a, count))
        found = []
        for _, a, b in pairs:
            one, two = self.parts[a], self.parts[b] if a != b else None
            task = self.cluster.submit(_pair, one, two, self._starts[[a, b]], self.k, self.frame)
            found.append(task)
            offers[a].append(self.cluster.item(task, 0))
            if a != b:
                offers[b].append(self.cluster.item(task, 1))
        self.cluster.wait(found, self.context, "neighbors")
        return self._merge(offers)

    def approximate(self) -> Graph:
        """Compare each row with the rows of its nearest cells."""
        sample = self._sample()
        n = int(self.edges[-1])
        count = min(n // ann.CELL, int(_CELLS * np.sqrt(n)))
        centers = self._centers(count)
        needed = self._needed(centers, sample.half(0))
        logger.info("%d cells, a row looks into %d", count, needed)
        if count < 4 or needed > count // 3:
            logger.info("cells would not help with these %d rows: searching exactly", n)
            return Graph(self.exact(), self.edges, self.k, self.frame.metric, 1.0, "exact")
        lists = self._fill(self._visit(centers, needed))
        recall = self._recall(lists, sample.half(1))
        logger.info("%d rows, %d neighbours by cells: recall %.3f", n, self.k, recall)
        return Graph(lists, self.edges, self.k, self.frame.metric, recall, "ann")

    def _sample(self) -> ann.Sample:
        n = int(self.edges[-1])
        rng = np.random.default_rng(ann.SEED)
        chosen = rng.choice(n, min(ann.SAMPLE, n), replace=False)
        return ann.Sample(chosen, self._scan(chosen)[1])

    def _scan(self, rows: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[Any]]:
        """The true neighbours of some rows: every partition looks through its own."""
        queries = take(self.cluster, self.parts, self.edges, rows)
        tasks = [
            self.cluster.submit(_scan, part, int(start), queries, rows, self.k, self.frame)
            for part, start in zip(self.parts, self.edges, strict=False)
        ]
        task = self.cluster.submit(_merge, tasks, len(rows), self.k, self.frame.metric)
        found: Neighbors = self.cluster.value(task)
        return found.distances, found.indices

    def _centers(self, count: int) -> Task:
        """k-means on some of the rows: partial sums where they are, centres to all."""
        n = int(self.edges[-1])
        rng = np.random.default_rng(ann.SEED)
        chosen = rng.choice(n, min(n, ann.TRAINING * count), replace=False)
        first = take(self.cluster, self.parts, self.edges, chosen[:count])
        centers = self.cluster.submit(self.frame.prepare, first)
        chosen.sort()
        cuts = np.searchsorted(chosen, self.edges)
        training = [
            self.cluster.submit(_rows_of, part, chosen[a:b] - start)
            for part, a, b, start in zip(self.parts, cuts, cuts[1:], self.edges, strict=False)
        ]
        for _ in range(ann.ROUNDS):
            sums = [
                self.cluster.submit(_center_sums, some, centers, self.frame) for some in training
            ]
            centers = self.cluster.submit(_moved, centers, self.cluster.total(sums))
        return centers

    def _needed(self, centers: Task, sample: ann.Sample) -> int:
        rows = np.concatenate([sample.rows, sample.neighbors.ravel()])
        taken = take(self.cluster, self.parts, self.edges, rows)
        task = self.cluster.submit(_needed, taken, centers, len(sample.rows), self.frame)
        return int(self.cluster.value(task))

    def _visit(self, centers: Task, needed: int) -> list[Task]:
        """Every bucket of cells looks for the neighbours of its visitors."""
        submit = self.cluster.submit
        probes = [submit(_probes, part, centers, needed, self.frame) for part in self.parts]
        sizes = self.cluster.total([submit(_cell_sizes, p, centers) for p in probes])
        count = len(self.parts)
        buckets = self._buckets(int(self.cluster.value(submit(_width, centers))))
        bucket = submit(deal_cells, centers, sizes, buckets)
        offers: list[list[Task]] = [[] for _ in range(count)]
        searches = []
        for b in range(buckets):
            visits = [
                submit(_visitors, part, p, bucket, b)
                for part, p in zip(self.parts, probes, strict=True)
            ]
            task = submit(_search, visits, self._starts, bucket, b, self.k, self.frame)
            searches.append(task)
            for i in range(count):
                offers[i].append(self.cluster.item(task, i))
        looks = self.cluster.total([submit(_looks, p, bucket) for p in probes])
        self.cluster.wait(searches, self.context, "neighbors")
        mean = self.cluster.value(looks) / int(self.edges[-1])
        logger.info("%d buckets, a row looks into %.1f", buckets, mean)
        return self._merge(offers)

    def _buckets(self, width: int) -> int:
        """Buckets: two a thread at least, and so many that a search fits its worker."""
        row = 4 * 3 * width + 16 * self.k  # bytes: sent, joined and ready; its heap and its list
        most = self.cluster.thread_memory() * _SHARE / (_VISITORS * row)
        threads = sum(self.cluster.workers().values())
        return max(2 * threads, -(-int(self.edges[-1]) // max(1000, int(min(most, _BUCKET)))))

    def _merge(self, offers: list[list[Task]]) -> list[Task]:
        sizes = np.diff(self.edges).tolist()
        return [
            self.cluster.submit(_merge, mine, size, self.k, self.frame.metric)
            for mine, size in zip(offers, sizes, strict=True)
        ]

    def _fill(self, lists: list[Task]) -> list[Task]:
        """Search exactly the rows that met fewer than k others."""
        short = [self.cluster.value(self.cluster.submit(_short, part)) for part in lists]
        rows = np.concatenate([s + start for s, start in zip(short, self.edges, strict=False)])
        if not rows.size:
            return lists
        distances, indices = self._scan(rows)
        cuts = np.cumsum([0, *map(len, short)])
        return [
            self.cluster.submit(_patched, part, s, indices[a:b], distances[a:b]) if s.size else part
            for part, s, a, b in zip(lists, short, cuts, cuts[1:], strict=False)
        ]

    def _recall(self, lists: list[Task], sample: ann.Sample) -> float:
        cells = [self.cluster.submit(_indices, part) for part in lists]
        found = self.cluster.value(take(self.cluster, cells, self.edges, sample.rows))
        true = ann.Sample(np.arange(len(found)), sample.neighbors)
        return true.recall(found)


def _pair(one: Any, two: Any, starts: NDArray[Any], k: int, frame: Frame) -> tuple[Candidates, ...]:
    """Top k of the rows of either partition among those of the other (or of the only one)."""
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
    found = search_pairs(rows.kept_ready(MEMORY), blocks, pairs, k, lambda share: None)
    whose = np.where(ids < len(one), starts[0], starts[1] - len(one)) + ids
    near, distances = _lists(rows, found, whose)
    parts = [slice(0, len(one))] if two is None else [slice(0, len(one)), slice(len(one), None)]
    return tuple((np.arange(len(near[p]), dtype=np.int32), near[p], distances[p]) for p in parts)


def _lists(
    rows: SearchCorpus, found: tuple[Any, Any], names: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Scores -> names and distances, nearest first; a place nobody took is infinitely far."""
    scores, idx = found
    out = np.empty(idx.shape, names.dtype)
    distances = np.empty(idx.shape, np.float32)
    for part in slices(len(scores), max(1, MEMORY // (64 * idx.shape[1]))):
        squares = rows.squares(part, scores[part])  # infinite where the score is -infinite
        near = np.where(idx[part] == EMPTY_SLOT, 0, idx[part])
        refine(rows, squares, near, np.arange(len(scores))[part], MEMORY)
        out[part] = np.where(np.isinf(squares), np.iinfo(names.dtype).max, names[near])
        distances[part] = np.sqrt(squares) * rows.unit
    return out, distances


def _scan(
    part: Any, start: int, queries: Any, names: NDArray[Any], k: int, frame: Frame
) -> Candidates:
    """Top k of the queries, whose names are given, among the rows of a partition."""
    rows = frame.rows(np.concatenate([queries, part]))
    mine = np.arange(len(queries), rows.count, dtype=np.int32)
    own = np.asarray(names) - start + len(queries)  # a query that lies here is not offered itself
    own = np.where((own >= len(queries)) & (own < rows.count), own, -1).astype(np.int32)
    half = rows.half.astype(np.float32)
    heaps = empty_heaps(len(queries), k)
    left = frame.prepare(queries)
    for some in slices(len(part), max(256, MEMORY // (16 * max(1, len(queries))))):
        push_scores(left @ rows.block(mine[some]).T, half[mine[some]], own, mine[some], heaps)
    sort(*heaps)
    whose = np.concatenate([names, start + np.arange(len(part))])
    return np.arange(len(queries)), *_lists(rows, heaps, whose)


def _merge(offers: list[Candidates], size: int, k: int, metric: str) -> Neighbors:
    """The best k of all that was found, nearest first."""
    vals = np.full((size, k), -np.inf, np.float32)
    idx = np.full((size, k), EMPTY_ROW, np.int64)
    for rows, found, distances in offers:
        kernels.push_found(vals, idx, rows, found, -distances)
    sort(vals, idx)
    return Neighbors(_narrow(idx), -vals, metric, method="dask")


def _narrow(idx: NDArray[np.int64]) -> Any:
    """Row numbers below 2^31 in half the space; EMPTY_ROW stays the largest number there is."""
    known = idx[idx != EMPTY_ROW]
    if known.size and known.max() >= EMPTY_SLOT:
        return idx
    return np.minimum(idx, EMPTY_SLOT).astype(np.int32)


def _short(lists: Neighbors) -> NDArray[np.intp]:
    return np.flatnonzero(np.isinf(lists.distances).any(axis=1))


def _patched(
    lists: Neighbors, rows: NDArray[np.intp], indices: Any, distances: NDArray[np.float32]
) -> Neighbors:
    near, far = lists.indices.copy(), lists.distances.copy()
    near[rows], far[rows] = indices, distances
    return Neighbors(near, far, lists.metric, method="dask")


def _indices(lists: Neighbors) -> Any:
    return lists.indices


def _width(centers: NDArray[np.float32]) -> int:
    return int(centers.shape[1])


def _rows_of(part: Any, which: NDArray[Any]) -> Any:
    return part[which]


def _center_sums(some: Any, centers: NDArray[np.float32], frame: Frame) -> tuple[Any, Any]:
    return ann.center_sums(frame.rows(some), np.arange(len(some)), centers, MEMORY)


def _moved(centers: NDArray[np.float32], sums: tuple[Any, Any]) -> NDArray[np.float32]:
    return ann.move_centers(centers, *sums)


def _needed(taken: Any, centers: NDArray[np.float32], queries: int, frame: Frame) -> int:
    """How many cells hold the target share of the true neighbours."""
    places = np.arange(queries, len(taken)).reshape(queries, -1)
    sample = ann.Sample(np.arange(queries), places.astype(np.int32))
    return ann.choose_nprobe(frame.rows(taken), centers, sample, MEMORY)


def _probes(part: Any, centers: NDArray[np.float32], needed: int, frame: Frame) -> Any:
    return ann.nearest_centers(frame.rows(part), None, centers, needed, MEMORY)


def _cell_sizes(probes: NDArray[np.int32], centers: NDArray[np.float32]) -> NDArray[np.intp]:
    return np.bincount(probes[:, 0], minlength=len(centers))


def _looks(probes: NDArray[np.int32], bucket: NDArray[np.intp]) -> int:
    """How many buckets the rows of a partition look into, together."""
    seen = np.sort(bucket[probes], axis=1)
    return len(seen) + int((np.diff(seen, axis=1) != 0).sum())


def _visitors(
    part: Any, probes: NDArray[np.int32], bucket: NDArray[np.intp], b: int
) -> tuple[NDArray[np.int32], Any, NDArray[np.int32]]:
    """The rows that look into a bucket: (their places in the partition, values, cells)."""
    rows = np.flatnonzero((bucket[probes] == b).any(axis=1)).astype(np.int32)
    return rows, part[rows], probes[rows]


def _search(
    visits: list[tuple[Any, Any, Any]],
    starts: NDArray[Any],
    bucket: NDArray[np.intp],
    b: int,
    k: int,
    frame: Frame,
) -> list[Candidates]:
    """What the visitors of a bucket find there, one list a partition they came from."""
    rows = frame.rows(np.concatenate([values for _, values, _ in visits]))
    probes = np.concatenate([cells for _, _, cells in visits])
    inside = np.flatnonzero(bucket == b)
    number = np.full(len(bucket), len(inside), np.int32)  # cells elsewhere: nobody's
    number[inside] = np.arange(len(inside), dtype=np.int32)
    home = number[probes[:, 0]]
    probes = np.sort(number[probes], axis=1)
    probes = probes[:, (probes < len(inside)).any(axis=0)]
    cells = ann.Cells(home, probes, len(inside))
    found = ann.visit_cells(rows.kept_ready(2 * MEMORY), cells, k, MEMORY, lambda share: None)
    names = np.concatenate([s + v[0] for s, v in zip(starts, visits, strict=True)])
    near, distances = _lists(rows, found, names)
    cuts = np.cumsum([0, *(len(v[0]) for v in visits)])
    return [
        (v[0], near[a:z], distances[a:z]) for v, a, z in zip(visits, cuts, cuts[1:], strict=False)
    ]
