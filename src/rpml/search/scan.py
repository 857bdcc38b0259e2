"""The best rows of float queries by their codes: table look-up above a threshold.

And how many of the best by the float embedding are among them, measured while rows are added.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from rpml.method.codes import Codec, Codes
from rpml.runtime.compiled import VECTORIZED, compiled
from rpml.runtime.rows import Floats, Indices, Mask, top_columns, top_k
from rpml.runtime.threads import run_chunks, times

MIN_CHUNK = 131_072  # rows at a time
SAMPLE = 16_384  # rows that bound the best scores from below
WORD = 8  # bytes
PROBES = 100  # queries of the recall that an index measures
NEAREST = 10
Candidates = Callable[[slice], Iterator[tuple[Floats, Indices]]]


@compiled(VECTORIZED)
def rows_above(
    table: Floats,
    words: NDArray[np.uint64],
    scales: Floats,
    least: float,
    rows: Indices,
    scores: Floats,
) -> int:
    """Write the rows with a score of at least `least` and the scores; return how many they are.

    A score is the row's scale times the sum of the table entries that its bytes select. Eight
    bytes per load and two open sums take two thirds of the time of a loop over bytes.
    """
    found, byte = 0, np.uint64(255)
    for i in range(words.shape[0]):
        even, odd = np.float32(0), np.float32(0)
        for w in range(words.shape[1]):
            word, first = words[i, w], np.uint64(2048) * np.uint64(w)
            even += table[first + (word & byte)]
            odd += table[first + np.uint64(256) + (word >> np.uint64(8) & byte)]
            even += table[first + np.uint64(512) + (word >> np.uint64(16) & byte)]
            odd += table[first + np.uint64(768) + (word >> np.uint64(24) & byte)]
            even += table[first + np.uint64(1024) + (word >> np.uint64(32) & byte)]
            odd += table[first + np.uint64(1280) + (word >> np.uint64(40) & byte)]
            even += table[first + np.uint64(1536) + (word >> np.uint64(48) & byte)]
            odd += table[first + np.uint64(1792) + (word >> np.uint64(56))]
        score = (even + odd) * scales[i]
        if score >= least:
            rows[found], scores[found] = i, score
            found += 1
    return found


class CodeScan:
    """Scores float queries against codes, as `queries @ codec.decode(codes).T` would."""

    def __init__(self, codec: Codec, codes: Codes) -> None:
        self.codec, self.codes = codec, codes
        self.by_table = codec.centroids.shape[2] > 1
        if self.by_table:
            padded = np.pad(codec.indices(codes), ((0, 0), (0, -codec.width % WORD)))
            self.words, self.scales = padded.view("<u8"), codec.scales(codes)
            self.sample = np.arange(0, len(codes), max(1, len(codes) // SAMPLE))
            self.sampled_words = self.words[self.sample]

    def best(self, queries: Floats, k: int, mask: Mask | None = None) -> tuple[Floats, Indices]:
        """Return the (n_queries, k) best scores, best first, and their rows."""
        found: list[list[tuple[Floats, Indices]]] = [[] for _ in queries]
        candidates = (self._by_table if self.by_table else self._by_product)(queries, k, mask)

        def work(_: int, start: int, stop: int) -> None:
            for parts, (scores, rows) in zip(found, candidates(slice(start, stop)), strict=True):
                kept = top_k(scores, k)
                parts.append((scores[kept], rows[kept] + start))

        run_chunks(work, len(self.codes), MIN_CHUNK)
        best_scores, best_rows = [], []
        for parts in found:
            scores, rows = (np.concatenate(a) for a in zip(*parts, strict=True))
            order = np.lexsort((rows, -scores))[:k]
            best_scores.append(scores[order])
            best_rows.append(rows[order])
        return np.stack(best_scores), np.stack(best_rows)

    def _by_table(self, queries: Floats, k: int, mask: Mask | None) -> Candidates:
        """Rows that score at least as the k-th best of an evenly spaced sample."""
        missing = -self.codec.width % WORD
        tables = np.pad(self.codec.tables(queries), ((0, 0), (0, missing), (0, 0)))
        tables = tables.reshape(len(queries), -1)
        # a score of NaN is not above anything
        scales = self.scales if mask is None else np.where(mask, self.scales, np.float32(np.nan))

        def above(
            words: NDArray[np.uint64], scales: Floats, bounds: Floats
        ) -> Iterator[tuple[Floats, Indices]]:
            for table, bound in zip(tables, bounds, strict=True):
                # nothing but the rows that are found is touched
                scores, rows = np.empty(len(words), np.float32), np.empty(len(words), np.intp)
                n = rows_above(table, words, scales, bound, rows, scores)
                yield scores[:n], rows[:n]

        least = np.full(len(queries), -np.inf, np.float32)
        sampled = above(self.sampled_words, scales[self.sample], least.copy())
        for number, (scores, _) in enumerate(sampled):
            if len(scores) >= k:
                least[number] = np.partition(scores, len(scores) - k)[len(scores) - k]
        return lambda part: above(self.words[part], scales[part], least)

    def _by_product(self, queries: Floats, k: int, mask: Mask | None) -> Candidates:
        """All rows: a product is faster than a look-up per axis."""

        def scored(part: slice) -> Iterator[tuple[Floats, Indices]]:
            rows = np.arange(part.stop - part.start)
            rows = rows if mask is None else rows[mask[part]]
            return ((s[rows], rows) for s in times(queries, self.codec.decode(self.codes[part]).T))

        return scored


class RecallProbe:
    """Some of the first rows as queries, with their nearest rows by the float embedding so far."""

    def __init__(self) -> None:
        self.queries: Floats = np.empty((0, 0), np.float32)
        self._own = np.empty(0, np.intp)
        self._scores: Floats = np.empty((0, 0), np.float32)
        self._rows = np.empty((0, 0), np.intp)

    def see(self, Y: Floats, first: int) -> None:
        """Compare the queries with a batch of embedded rows, whose first row has this number."""
        if not len(Y):
            return
        if not len(self.queries):
            self._own = np.unique(np.linspace(0, len(Y) - 1, PROBES).astype(np.intp)) + first
            self.queries = Y[self._own - first]
            self._scores = np.empty((len(self._own), 0), np.float32)
            self._rows = np.empty((len(self._own), 0), np.intp)
        scores = times(self.queries, Y.T)
        mine = (self._own >= first) & (self._own < first + len(Y))
        scores[np.flatnonzero(mine), self._own[mine] - first] = -np.inf
        best = top_columns(scores, NEAREST)
        self._scores = np.hstack([self._scores, np.take_along_axis(scores, best, axis=1)])
        self._rows = np.hstack([self._rows, best + first])
        best = top_columns(self._scores, NEAREST)
        self._scores = np.take_along_axis(self._scores, best, axis=1)
        self._rows = np.take_along_axis(self._rows, best, axis=1)

    def recall(self, found: Indices, k: int) -> float:
        """Return the share of the k nearest rows among `found`, without the query itself.

        `found` has k + 1 rows per query, best first.
        """
        shares = []
        for own, rows, nearest in zip(self._own, found, self._rows, strict=True):
            others = rows[rows != own][:k]
            shares.append(np.isin(nearest[:k], others).mean())
        return float(np.mean(shares))
