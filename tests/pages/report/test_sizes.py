"""The curve of quality against size."""

import re

import numpy as np

from rpml.pages.report.measurements import SampledLabels
from rpml.pages.report.sections.quality import prefix_sizes, quality_by_size


def made(size):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, size)) / np.arange(1, size + 1)
    return rows.astype(np.float32)


def test_sizes_double_up_to_the_whole():
    assert prefix_sizes(128) == [8, 16, 32, 64, 128]
    assert prefix_sizes(100) == [8, 16, 32, 64, 100]
    assert prefix_sizes(9) == [8, 9]
    assert prefix_sizes(8) == [8]
    assert prefix_sizes(3) == [3]


def test_the_whole_keeps_every_neighbor_and_labels_add_a_chart():
    rng = np.random.default_rng(1)
    (kept,) = quality_by_size(made(32), None, rng)
    assert re.search(r"from [\d.]+ to 100", kept["svg"])
    assert all(f">{size}</text>" in kept["svg"] for size in (8, 16, 32))
    labels = SampledLabels(np.arange(100), np.array([str(i % 3) for i in range(100)]))
    headings = [figure["heading"] for figure in quality_by_size(made(32), labels, rng)]
    assert headings[1] == "Recall@1 (%)"


def test_no_chart_without_a_smaller_size():
    assert quality_by_size(made(8), None, np.random.default_rng(0)) == []
