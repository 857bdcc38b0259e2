"""The section of codes: every space, every code, its bytes."""

import numpy as np

from rpml.pages.report.measurements import SampledLabels, Space
from rpml.pages.report.sections.quality import quality_by_code


def space(key, size):
    rng = np.random.default_rng(size)
    return Space(key, key, rng.normal(size=(60, size)).astype(np.float32), np.zeros((60, 1)))


def test_table_and_chart():
    spaces = [space("raw", 32), space("rpml", 8)]
    lines, figure = quality_by_code(spaces, None, np.random.default_rng(0))
    assert [line.name for line in lines] == ["float32", "int8", "int4", "int2", "binary"]
    assert lines[2].notes == {"raw": "16 bytes", "rpml": "4 bytes"}
    low, high = map(float, lines[3].bounds("rpml").split(" – "))
    assert low < float(lines[3].text("rpml").removesuffix("%")) < high
    assert (lines[0].text("raw"), lines[0].bounds("raw")) == ("100.0%", "")
    assert "retained" in figure["heading"]
    assert ">int4</text>" in figure["svg"]
    labels = SampledLabels(np.arange(50), np.array([str(i % 3) for i in range(50)]))
    assert quality_by_code(spaces, labels, np.random.default_rng(0))[1]["heading"] == "Recall@1 (%)"
