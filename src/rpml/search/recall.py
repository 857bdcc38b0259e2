"""Recall of codes against the float embedding, measured while rows are added."""

import numpy as np
from numpy.typing import NDArray

from rpml.runtime.blas import times
from rpml.runtime.rows import top_columns

PROBES = 100
NEAREST = 10
Floats = NDArray[np.float32]


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

    def recall(self, found: NDArray[np.intp], k: int) -> float:
        """Return the share of the k nearest rows among `found`, without the query itself.

        `found` has k + 1 rows per query, best first.
        """
        shares = []
        for own, rows, nearest in zip(self._own, found, self._rows, strict=True):
            others = rows[rows != own][:k]
            shares.append(np.isin(nearest[:k], others).mean())
        return float(np.mean(shares))
