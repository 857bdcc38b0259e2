"""Approximate neighbors: compare each row with the rows of its nearest cells, measure the recall.

Rows are assigned to cells around k-means centers. A sample is searched exactly, and the cells of
its true neighbors determine how many cells each row must search, so there is no parameter to
choose. The rows that search a cell are compared with it by one matrix product, which costs far
less per comparison than traversing an index row by row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rpml.method.graph.heaps import (
    EMPTY_SLOT,
    Heaps,
    SearchCorpus,
    block_size,
    empty_heaps,
    nearest_rows,
    push_rows,
    resume_heaps,
    search_rows,
    sort_heaps,
    store_heaps,
)
from rpml.runtime.context import LoopState
from rpml.runtime.rows import slices
from rpml.runtime.threads import run_chunks, single_blas_thread

logger = logging.getLogger(__name__)

Look = tuple[NDArray[np.int32], int]  # rows, and the cell they search
TARGET = 0.98  # share of the true neighbors that the searched cells must contain
CELL = 600  # rows
SAMPLE = 800  # rows searched exactly: half to choose, half to measure
TRAINING = 64  # rows per cell to place the centers
ROUNDS = 8  # of k-means
SEED = 0  # cells and sample are part of the method, not of the caller's randomness


def search_cells(
    rows: SearchCorpus, k: int, progress: Callable[[float], object], state: LoopState | None
) -> tuple[Heaps, float] | None:
    """Return the neighbors found in cells and their recall; None if cells do not help."""
    rng = np.random.default_rng(SEED)
    sample = rng.choice(rows.count, min(SAMPLE, rows.count), replace=False)
    true = search_rows(rows, sample, k, np.float32)[1]
    probes = _choose_probes(rows, sample[::2], true[::2])
    if probes is None:
        return None
    scores, found = _visit_cells(rows, probes, k, progress, state)
    short = np.flatnonzero((found == EMPTY_SLOT).any(axis=1))
    if short.size:  # rows that met fewer than k others
        scores[short], found[short] = search_rows(rows, short, k)
    hits = [np.isin(true[i], found[sample[i]]).mean() for i in range(1, len(sample), 2)]
    return (scores, found), float(np.mean(hits))


def _choose_probes(
    rows: SearchCorpus, sample: NDArray[np.intp], true: NDArray[np.int32]
) -> NDArray[np.int32] | None:
    """Return the cells that each row searches, its own first; None if they would be most cells."""
    count = rows.count // CELL
    if count < 4:
        return None
    centers = _centers(rows, count)
    ranking = nearest_centers(rows, sample, centers, count)
    rank = np.empty_like(ranking)
    np.put_along_axis(rank, ranking, np.arange(count, dtype=np.int32)[None, :], axis=1)
    theirs = nearest_centers(rows, true.ravel(), centers, 1)
    place = np.take_along_axis(rank, theirs.reshape(true.shape), axis=1)
    needed = int(np.quantile(place, TARGET, method="higher")) + 1
    logger.info("%d cells, a row looks into %d", count, needed)
    if needed > count // 3:  # the exact search uses each product in both directions
        return None
    return nearest_centers(rows, np.arange(rows.count), centers, needed)


def _centers(rows: SearchCorpus, count: int) -> NDArray[np.float32]:
    """Run k-means on a sample of the rows; an empty cell keeps its center."""
    rng = np.random.default_rng(SEED)
    chosen = rng.choice(rows.count, min(rows.count, TRAINING * count), replace=False)
    centers = rows.block(chosen[:count])
    training = np.sort(chosen)
    for _ in range(ROUNDS):
        cell = nearest_centers(rows, training, centers, 1)[:, 0]
        sums = np.zeros(centers.shape)
        for part in slices(training.size, max(1, rows.memory_limit // (32 * centers.shape[1]))):
            order = np.argsort(cell[part], kind="stable")
            block = rows.block(training[part], np.float64)[order]
            present, first = np.unique(cell[part][order], return_index=True)
            sums[present] += np.add.reduceat(block, first, axis=0)
        size = np.bincount(cell, minlength=count)[:, None]
        centers = np.where(size > 0, sums / np.maximum(size, 1), centers).astype(np.float32)
    return centers


def nearest_centers(
    rows: SearchCorpus,
    which: NDArray[np.integer],
    centers: NDArray[np.float32],
    probes: int,
) -> NDArray[np.int32]:
    """Return the nearest centers of the given rows, nearest first."""
    out = np.empty((which.size, probes), dtype=np.int32)
    half = 0.5 * np.einsum("ij,ij->i", centers, centers)
    for part in slices(which.size, max(1, min(8192, rows.memory_limit // (64 * centers.shape[1])))):
        out[part] = nearest_rows(rows.block(which[part]), centers, probes, half=half)[1]
    return out


def _visit_cells(
    rows: SearchCorpus,
    probes: NDArray[np.int32],
    k: int,
    progress: Callable[[float], object],
    state: LoopState | None,
) -> Heaps:
    """Find the top k of every row among the rows of the cells it searches.

    Round t compares every row with its t-th cell. A row appears once per round, so no two threads
    use the same heap.
    """
    vals, idx = heaps = empty_heaps(rows.count, k)
    half = rows.half.astype(np.float32)
    count = int(probes.max()) + 1
    members, edges = _group(probes[:, 0], count)
    size = block_size(64 * CELL, rows.X.shape[1], rows.memory_limit)

    def compare(visitors: NDArray[np.int32], cell: int) -> None:
        base = members[edges[cell] : edges[cell + 1]]
        for block in slices(visitors.size, size):
            mine = visitors[block]
            left, scores, found = rows.block(mine), vals[mine], idx[mine]
            for part in slices(base.size, size):
                near = base[part]
                push_rows(left @ rows.block(near).T, half[near], mine, near, scores, found)
            vals[mine], idx[mine] = scores, found

    with single_blas_thread():
        for turn in range(resume_heaps(heaps, state), probes.shape[1]):
            visitors, cuts = _group(probes[:, turn], count)
            order = np.argsort(-np.diff(cuts) * np.diff(edges), kind="stable")  # the longest first
            looks = [(visitors[cuts[cell] : cuts[cell + 1]], int(cell)) for cell in order]

            def work(_: int, start: int, stop: int, looks: list[Look] = looks) -> None:
                for mine, cell in looks[start:stop]:
                    compare(mine, cell)

            run_chunks(work, len(looks), 1)
            store_heaps(heaps, state, turn + 1)
            progress((turn + 1) / probes.shape[1])
    sort_heaps(heaps)
    return heaps


def _group(cell: NDArray[np.int32], count: int) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Return rows in the order of their cells, and where each cell begins."""
    order = np.argsort(cell, kind="stable").astype(np.int32)
    return order, np.searchsorted(cell[order], np.arange(count + 1))
