"""The table of quality against size."""

import numpy as np
import pytest

from rpml.pages.report.sections.quality import quality_by_size


def made(size):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, size)) / np.arange(1, size + 1)
    return rows.astype(np.float32)


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(128, [8, 16, 32, 64, 128]), (100, [8, 16, 32, 64, 100]), (9, [8, 9]), (8, [8]), (3, [3])],
)
def test_sizes_double_up_to_the_whole(size, sizes):
    table = quality_by_size(made(size), None, np.random.default_rng(1))
    assert [int(name) for name, _, _ in table.lines] == sizes
    assert table.lines[-1][2][0].text == "100.0%"


def test_labels_add_a_column():
    rng = np.random.default_rng(1)
    labels = np.array([str(i % 3) for i in range(100)] + [""] * 20)
    table = quality_by_size(made(32), labels, rng)
    assert [title for _, title in table.columns][1] == "Recall@1"
    assert all(len(cells) == 2 for _, _, cells in table.lines)
