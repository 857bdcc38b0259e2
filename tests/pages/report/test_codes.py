"""The section of codes: every space, every code, its bytes."""

import numpy as np

from rpml.pages.report.measurements import Space
from rpml.pages.report.sections.quality import quality_by_code


def space(key, size):
    rng = np.random.default_rng(size)
    return Space(key, key, rng.normal(size=(60, size)).astype(np.float32), np.zeros((60, 1)))


def test_table_of_codes():
    spaces = [space("raw", 32), space("rpml", 8)]
    table = quality_by_code(spaces, None, np.random.default_rng(0))
    assert "retained" in table.title
    assert [name for name, _, _ in table.lines] == ["float32", "int8", "int4", "int2", "binary"]
    assert [cell.small[-1] for cell in table.lines[2][2]] == ["16 bytes", "4 bytes"]
    text, (interval, _), _ = table.lines[3][2][1]
    low, high = map(float, interval.split(" – "))
    assert low < float(text.removesuffix("%")) < high
    exact = table.lines[0][2][0]
    assert (exact.text, exact.small) == ("100.0%", ["128 bytes"])
    labels = np.array([str(i % 3) for i in range(50)] + [""] * 10)
    assert quality_by_code(spaces, labels, np.random.default_rng(0)).title == "Recall@1"
