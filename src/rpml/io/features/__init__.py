"""Reading and writing files of vectors and labels."""

from rpml.io.features.reading import open_features, read_features
from rpml.io.features.source import Batch, Features, FeatureSource, ReadOptions
from rpml.io.features.writing import Layout, check_table_output, write_batches, write_table

__all__ = [
    "Batch",
    "FeatureSource",
    "Features",
    "Layout",
    "ReadOptions",
    "check_table_output",
    "open_features",
    "read_features",
    "write_batches",
    "write_table",
]
