"""Statistics of a file of vectors: one pass, in memory that does not grow with the rows."""

import tracemalloc

import numpy as np

from rpml.io.features.source import Batch, FeatureSource, file_statistics

ROWS = 5000


class Narrow(FeatureSource):
    """Many batches of two columns, made as they are read."""

    name, n_features = "narrow", 2

    def __init__(self, n_batches):
        self.n_batches = n_batches

    def raw_batches(self, rows):
        for i in range(self.n_batches):
            yield Batch(i * ROWS, np.full((ROWS, 2), i + 1.0))


def peak(n_batches):
    tracemalloc.start()
    try:
        found = file_statistics(Narrow(n_batches))
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_rows():
    peak(2)  # what is loaded on the first call
    _, few = peak(2)
    found, many = peak(400)  # a float64 per row would be 16 MB
    assert found["rows"] == 400 * ROWS
    assert found["norms"]["max"] == 400 * np.sqrt(2)
    assert many < few + 2**20
