import numpy as np
import pytest

from rpml.runtime.errors import counted


@pytest.mark.parametrize(
    ("count", "nouns", "text"),
    [
        (0, ["row"], "0 rows"),
        (1, ["row"], "1 row"),
        (np.int64(1), ["row"], "1 row"),
        (2000, ["row"], "2,000 rows"),
        (1, ["class", "classes"], "1 class"),
        (3, ["class", "classes"], "3 classes"),
    ],
)
def test_counts_agree_with_their_nouns(count, nouns, text):
    assert counted(count, *nouns) == text
