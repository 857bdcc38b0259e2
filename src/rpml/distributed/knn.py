"""Nearest neighbors of all rows, found and kept on the workers.

Exact search compares every pair of partitions once and uses each product in both directions.
Beyond 100,000 rows the search uses cells, like the local one: k-means centers of a sample are
computed in distributed rounds, and each row is compared with the rows of its nearest cells. Cells
are assigned to buckets of neighboring cells, one per task. A partition sends each bucket the rows
that search it; their results are returned and merged. The recall is measured on rows that are
searched exactly.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dask.sizeof import sizeof
from numpy.typing import NDArray

from rpml.distributed import knn_tasks as on_worker
from rpml.distributed.cluster import Cluster, Task
from rpml.distributed.knn_tasks import Frame
from rpml.distributed.take import take
from rpml.method.graph import approximate as ann
from rpml.method.graph.exact import EMPTY_SLOT, center_and_unit
from rpml.method.graph.neighbors import EXACT_ROWS, Neighbors
from rpml.runtime.context import Context

logger = logging.getLogger(__name__)

_BUCKET = 2_000_000  # maximal number of rows per bucket
_SHARE = 0.4  # of the memory per thread, for one search
_VISITORS = 4  # rows that search a bucket, per row in it
_CELLS = 2.0  # times sqrt(rows): maximal number of cells, so that finding the own one stays cheap


@sizeof.register(Neighbors)  # type: ignore[untyped-decorator]
def _bytes(lists: Neighbors) -> int:
    return int(lists.indices.nbytes + lists.distances.nbytes)


@dataclass(frozen=True)
class Graph:
    """Partitioned neighbors: part i is a `Neighbors` of the rows of partition i."""

    parts: list[Task]
    edges: NDArray[np.int64]
    n_neighbors: int
    metric: str
    recall: float
    method: str


@dataclass(frozen=True)
class KnnSettings:
    """The search's settings; "auto" is exact up to 100,000 rows and "ann" beyond."""

    n_neighbors: int
    metric: str = "cosine"
    method: str = "auto"

    def __post_init__(self) -> None:
        if self.method not in ("auto", "exact", "ann"):
            raise ValueError(f"method={self.method!r}: use 'auto', 'exact' or 'ann'")


def nearest_neighbors(
    cluster: Cluster,
    parts: Sequence[Task],
    edges: NDArray[np.int64],
    settings: KnnSettings,
    context: Context,
) -> Graph:
    """Find the neighbors of all rows, given as in `PartitionedRows`."""
    n, metric = int(edges[-1]), settings.metric
    k = min(settings.n_neighbors, n - 1)
    search = Search(cluster, list(parts), edges, k, find_frame(cluster, parts, metric), context)
    if settings.method == "exact" or (settings.method == "auto" and n <= EXACT_ROWS):
        return Graph(search.exact(), edges, k, metric, 1.0, "exact")
    return search.approximate()


def find_frame(cluster: Cluster, parts: Sequence[Task], metric: str) -> Frame:
    """Compute the frame; Euclidean distances need the range and the mean of every column."""
    if metric == "cosine":
        return Frame(metric, np.zeros(1))
    if metric != "euclidean":
        raise ValueError(f"metric={metric!r}: use 'cosine' or 'euclidean'")
    ranges = cluster.each(on_worker.extent, parts)
    low, high, total, count = cluster.value(cluster.total(ranges, on_worker.widest))
    return Frame(metric, *center_and_unit(low, high, total / count))


@dataclass
class Search:
    """A search: the rows and how they are compared."""

    cluster: Cluster
    parts: list[Task]
    edges: NDArray[np.int64]
    k: int
    frame: Frame
    context: Context

    @property
    def _starts(self) -> NDArray[np.generic]:
        """The first row of each partition, in the smallest sufficient dtype."""
        return self.edges[:-1].astype(np.int32 if self.edges[-1] < EMPTY_SLOT else np.int64)

    def exact(self) -> list[Task]:
        """Compare every pair of partitions."""
        count = len(self.parts)
        candidates: list[list[Task]] = [[] for _ in range(count)]
        # pairs of different partitions take longer and go first
        pairs = sorted((a == b, a, b) for a in range(count) for b in range(a, count))
        lists = []
        for _, a, b in pairs:
            one, two = self.parts[a], self.parts[b] if a != b else None
            task = self.cluster.submit(
                on_worker.pair, one, two, self._starts[[a, b]], self.k, self.frame
            )
            lists.append(task)
            candidates[a].append(self.cluster.item(task, 0))
            if a != b:
                candidates[b].append(self.cluster.item(task, 1))
        self.cluster.wait(lists, self.context, "neighbors")
        return self._merge(candidates)

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
        logger.info("%d rows, %d neighbors by cells: recall %.3f", n, self.k, recall)
        return Graph(lists, self.edges, self.k, self.frame.metric, recall, "ann")

    def _sample(self) -> ann.Sample:
        n = int(self.edges[-1])
        rng = np.random.default_rng(ann.SEED)
        chosen = rng.choice(n, min(ann.SAMPLE, n), replace=False)
        return ann.Sample(chosen, self._scan(chosen)[1])

    def _scan(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Find the true neighbors of some rows; every partition searches its own rows."""
        queries = take(self.cluster, self.parts, self.edges, rows)
        tasks = [
            self.cluster.submit(on_worker.scan, part, int(start), queries, rows, self.k, self.frame)
            for part, start in zip(self.parts, self.edges, strict=False)
        ]
        task = self.cluster.submit(on_worker.merge, tasks, len(rows), self.k, self.frame.metric)
        neighbors: Neighbors = self.cluster.value(task)
        return neighbors.distances, neighbors.indices

    def _centers(self, count: int) -> Task:
        """Run k-means on a sample: partial sums in the partitions, centers sent to all."""
        n = int(self.edges[-1])
        rng = np.random.default_rng(ann.SEED)
        chosen = rng.choice(n, min(n, ann.TRAINING * count), replace=False)
        first = take(self.cluster, self.parts, self.edges, chosen[:count])
        centers = self.cluster.submit(self.frame.prepare, first)
        chosen.sort()
        cuts = np.searchsorted(chosen, self.edges)
        training = [
            self.cluster.submit(on_worker.rows_of, part, chosen[a:b] - start)
            for part, a, b, start in zip(self.parts, cuts, cuts[1:], self.edges, strict=False)
        ]
        for _ in range(ann.ROUNDS):
            sums = self.cluster.each(on_worker.center_sums, training, centers, self.frame)
            centers = self.cluster.submit(on_worker.moved, centers, self.cluster.total(sums))
        return centers

    def _needed(self, centers: Task, sample: ann.Sample) -> int:
        rows = np.concatenate([sample.rows, sample.neighbors.ravel()])
        taken = take(self.cluster, self.parts, self.edges, rows)
        task = self.cluster.submit(on_worker.needed, taken, centers, len(sample.rows), self.frame)
        return int(self.cluster.value(task))

    def _visit(self, centers: Task, needed: int) -> list[Task]:
        """Search every bucket of cells for the neighbors of the rows that visit it."""
        submit, each, total = self.cluster.submit, self.cluster.each, self.cluster.total
        probes = each(on_worker.probes, self.parts, centers, needed, self.frame)
        sizes = total(each(on_worker.cell_sizes, probes, centers))
        count = len(self.parts)
        buckets = self._buckets(int(self.cluster.value(submit(on_worker.width, centers))))
        bucket = submit(on_worker.deal_cells, centers, sizes, buckets)
        candidates: list[list[Task]] = [[] for _ in range(count)]
        searches = []
        for b in range(buckets):
            visits = [
                submit(on_worker.visitors, part, p, bucket, b)
                for part, p in zip(self.parts, probes, strict=True)
            ]
            task = submit(on_worker.search, visits, self._starts, bucket, b, self.k, self.frame)
            searches.append(task)
            for i in range(count):
                candidates[i].append(self.cluster.item(task, i))
        looks = total(each(on_worker.looks, probes, bucket))
        self.cluster.wait(searches, self.context, "neighbors")
        mean = self.cluster.value(looks) / int(self.edges[-1])
        logger.info("%d buckets, a row looks into %.1f", buckets, mean)
        return self._merge(candidates)

    def _buckets(self, width: int) -> int:
        """Choose at least two buckets per thread, and enough that a search fits in memory."""
        row = 4 * 3 * width + 16 * self.k  # bytes: sent, joined and prepared; its heap and list
        most = self.cluster.thread_memory() * _SHARE / (_VISITORS * row)
        threads = sum(self.cluster.workers().values())
        return max(2 * threads, -(-int(self.edges[-1]) // max(1000, int(min(most, _BUCKET)))))

    def _merge(self, candidates: list[list[Task]]) -> list[Task]:
        sizes = np.diff(self.edges).tolist()
        return [
            self.cluster.submit(on_worker.merge, mine, size, self.k, self.frame.metric)
            for mine, size in zip(candidates, sizes, strict=True)
        ]

    def _fill(self, lists: list[Task]) -> list[Task]:
        """Search exactly for rows that met fewer than k others."""
        short = self.cluster.values(self.cluster.each(on_worker.short, lists))
        rows = np.concatenate([s + start for s, start in zip(short, self.edges, strict=False)])
        if not rows.size:
            return lists
        distances, indices = self._scan(rows)
        cuts = np.cumsum([0, *map(len, short)])
        return [
            self.cluster.submit(on_worker.patched, part, s, indices[a:b], distances[a:b])
            if s.size
            else part
            for part, s, a, b in zip(lists, short, cuts, cuts[1:], strict=False)
        ]

    def _recall(self, lists: list[Task], sample: ann.Sample) -> float:
        cells = self.cluster.each(on_worker.indices, lists)
        neighbors = self.cluster.value(take(self.cluster, cells, self.edges, sample.rows))
        true = ann.Sample(np.arange(len(neighbors)), sample.neighbors)
        return true.recall(neighbors)
