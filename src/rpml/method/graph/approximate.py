"""Approximate neighbors: compare each row with the rows of its nearest cells, measure the recall.

Rows are assigned to cells around k-means centers. A sample is searched exactly, and the cells of
its true neighbors determine how many cells each row must search, so there is no parameter to
choose. The rows that search a cell are compared with it by one matrix product, which costs far
less per comparison than traversing an index row by row.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph import kernels as kernels
from rpml.method.graph.exact import (
    EMPTY_SLOT,
    Heaps,
    HeapState,
    Progress,
    SearchCorpus,
    block_size,
    empty_heaps,
    push_scores,
    search_rows,
    sort,
)
from rpml.runtime.blas import single_blas_thread, times
from rpml.runtime.context import LoopState
from rpml.runtime.rows import slices
from rpml.runtime.threads import run_chunks

logger = logging.getLogger(__name__)

PARTS = 8  # of a round, after each of which the search may be stored
Look = tuple[NDArray[np.int32], int]  # rows, and the cell they search

TARGET = 0.98  # share of the true neighbors that the searched cells must contain
CELL = 600  # rows
SAMPLE = 800  # rows searched exactly: half to choose, half to measure
TRAINING = 64  # rows per cell to place the centers
ROUNDS = 8  # of k-means
SEED = 0  # cells and sample are part of the method, not of the caller's randomness


@dataclass(frozen=True)
class Sample:
    """Rows whose true neighbors are known."""

    rows: NDArray[np.intp]
    neighbors: NDArray[np.int32]

    def half(self, which: int) -> Sample:
        return Sample(self.rows[which::2], self.neighbors[which::2])

    def recall(self, indices: NDArray[np.int32]) -> float:
        """Return the share of the true neighbors that were found."""
        hits = [
            np.isin(true, indices[row]).mean()
            for row, true in zip(self.rows, self.neighbors, strict=True)
        ]
        return float(np.mean(hits))


@dataclass(frozen=True)
class Cells:
    """home[i] is the cell of row i, probes[i] the cells it searches.

    Cells numbered `count` or more are empty: such a row is not found, or does not search.
    """

    home: NDArray[np.int32]
    probes: NDArray[np.int32]
    count: int


def ground_truth_sample(rows: SearchCorpus, k: int, memory_limit: int) -> Sample:
    """Search a sample of rows exactly."""
    rng = np.random.default_rng(SEED)
    chosen = rng.choice(rows.count, min(SAMPLE, rows.count), replace=False)
    return Sample(chosen, search_rows(rows, chosen, k, memory_limit, np.float32)[1])


def find_cells(rows: SearchCorpus, sample: Sample, memory_limit: int) -> Cells | None:
    """Partition the rows into cells; None if a row would have to search most of them."""
    count = rows.count // CELL
    if count < 4:
        return None
    centers = _centers(rows, count, memory_limit)
    needed = choose_nprobe(rows, centers, sample, memory_limit)
    logger.info("%d cells, a row looks into %d", count, needed)
    if needed > count // 3:  # the exact search uses each product in both directions
        return None
    probes = nearest_centers(rows, None, centers, needed, memory_limit)
    return Cells(probes[:, 0], probes, count)


def choose_nprobe(
    rows: SearchCorpus, centers: NDArray[np.float32], sample: Sample, memory_limit: int
) -> int:
    """Return how many cells contain TARGET of the sample's true neighbors."""
    count, k = len(centers), sample.neighbors.shape[1]
    ranking = nearest_centers(rows, sample.rows, centers, count, memory_limit)
    rank = np.empty_like(ranking)
    np.put_along_axis(rank, ranking, np.arange(count, dtype=np.int32)[None, :], axis=1)
    theirs = nearest_centers(rows, sample.neighbors.ravel(), centers, 1, memory_limit)
    needed = np.take_along_axis(rank, theirs.reshape(-1, k), axis=1)
    return int(np.quantile(needed, TARGET, method="higher")) + 1


def _centers(rows: SearchCorpus, count: int, memory_limit: int) -> NDArray[np.float32]:
    """Run k-means on a sample of the rows."""
    rng = np.random.default_rng(SEED)
    chosen = rng.choice(rows.count, min(rows.count, TRAINING * count), replace=False)
    centers = rows.block(chosen[:count])
    training = np.sort(chosen)
    for _ in range(ROUNDS):
        centers = move_centers(centers, *center_sums(rows, training, centers, memory_limit))
    return centers


def center_sums(
    rows: SearchCorpus, training: NDArray[np.intp], centers: NDArray[np.float32], memory_limit: int
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the sum and number of the training rows nearest to each center."""
    cell = nearest_centers(rows, training, centers, 1, memory_limit)[:, 0]
    sums = np.zeros(centers.shape)
    for part in slices(training.size, max(1, memory_limit // (32 * centers.shape[1]))):
        order = np.argsort(cell[part], kind="stable")
        block = rows.block(training[part], np.float64)[order]
        present, first = np.unique(cell[part][order], return_index=True)
        sums[present] += np.add.reduceat(block, first, axis=0)
    return sums, np.bincount(cell, minlength=len(centers))


def move_centers(
    centers: NDArray[np.float32], sums: NDArray[np.float64], size: NDArray[np.intp]
) -> NDArray[np.float32]:
    """Return the means of the rows of each cell; an empty cell keeps its center."""
    means = sums / np.maximum(size, 1)[:, None]
    return np.where(size[:, None] > 0, means, centers).astype(np.float32)


def nearest_centers(
    rows: SearchCorpus,
    which: NDArray[np.integer] | None,
    centers: NDArray[np.float32],
    probes: int,
    memory_limit: int,
) -> NDArray[np.int32]:
    """Return the nearest centers of the given rows (all if None), nearest first."""
    which = np.arange(rows.count) if which is None else which
    out = np.empty((which.size, probes), dtype=np.int32)
    half = 0.5 * np.einsum("ij,ij->i", centers, centers)
    names = np.arange(len(centers), dtype=np.int32)
    width = len(centers) + 8 * centers.shape[1]
    for part in slices(which.size, max(1, min(8192, memory_limit // (8 * width)))):
        scores = times(rows.block(which[part]), centers.T)
        if probes == 1:
            out[part, 0] = np.argmax(scores - half, axis=1)
            continue
        heaps = empty_heaps(len(scores), probes)
        push_scores(scores, half, np.full(len(scores), -1, dtype=np.int32), names, heaps)
        sort(*heaps)
        out[part] = heaps[1]
    return out


def search_cells(
    rows: SearchCorpus,
    cells: Cells,
    k: int,
    memory_limit: int,
    progress: Progress,
    state: LoopState | None = None,
) -> Heaps:
    """Run `visit_cells`, and an exact search for rows that met fewer than k others."""
    heaps = visit_cells(rows, cells, k, memory_limit, progress, state)
    return _fill_gaps(rows, heaps, memory_limit)


def visit_cells(
    rows: SearchCorpus,
    cells: Cells,
    k: int,
    memory_limit: int,
    progress: Progress,
    state: LoopState | None = None,
) -> Heaps:
    """Find the top k of every row among the rows of the cells it searches.

    Round t compares every row with its t-th cell. A row appears once per round, so no two threads
    use the same heap.
    """
    vals, idx = empty_heaps(rows.count, k)
    kept = HeapState(state, (vals, idx))
    half = rows.half.astype(np.float32)
    members, edges = _group(cells.home, cells.count)
    size = block_size(64 * CELL, rows.X.shape[1], memory_limit)

    def compare(visitors: NDArray[np.int32], cell: int) -> None:
        base = members[edges[cell] : edges[cell + 1]]
        for block in slices(visitors.size, size):
            mine = visitors[block]
            left, heaps = rows.block(mine), (vals[mine], idx[mine])
            for part in slices(base.size, size):
                near = base[part]
                scores = left @ rows.block(near).T
                kernels.push_rows(scores, half[near], mine, near, *heaps, 0, mine.size)
            vals[mine], idx[mine] = heaps

    with single_blas_thread():
        finished, total = kept.resume(), PARTS * cells.probes.shape[1]
        for turn in range(finished // PARTS, cells.probes.shape[1]):
            visitors, cuts = _group(cells.probes[:, turn], cells.count)
            order = np.argsort(-np.diff(cuts) * np.diff(edges), kind="stable")  # the longest first
            looks = [(visitors[cuts[cell] : cuts[cell + 1]], int(cell)) for cell in order]

            for part in range(max(0, finished - PARTS * turn), PARTS):
                some = looks[part * len(looks) // PARTS : (part + 1) * len(looks) // PARTS]

                def work(_: int, start: int, stop: int, looks: list[Look] = some) -> None:
                    for mine, cell in looks[start:stop]:
                        compare(mine, cell)

                run_chunks(work, len(some), 1)
                kept.finished(PARTS * turn + part + 1)
                progress((PARTS * turn + part + 1) / total)
    sort(vals, idx)
    return vals, idx


def _group(cell: NDArray[np.int32], count: int) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Return rows in the order of their cells, and where each cell begins."""
    order = np.argsort(cell, kind="stable").astype(np.int32)
    return order, np.searchsorted(cell[order], np.arange(count + 1))


def _fill_gaps(rows: SearchCorpus, heaps: Heaps, memory_limit: int) -> Heaps:
    """Search exactly for rows that met fewer than k others."""
    scores, idx = heaps
    short = np.flatnonzero((idx == EMPTY_SLOT).any(axis=1))
    if short.size:
        scores[short], idx[short] = search_rows(rows, short, idx.shape[1], memory_limit)
    return scores, idx
