"""The list of longer tests names tests that exist."""

from pathlib import Path

import pytest

from tests.conftest import THOROUGH

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("entry", sorted({entry.split("[")[0] for entry in THOROUGH}))
def test_it_exists(entry):
    path, _, function = entry.partition("::")
    assert f"def {function}" in (ROOT / path).read_text(encoding="utf8")
