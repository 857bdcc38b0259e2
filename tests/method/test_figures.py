"""The same seed gives the same map: figures along the way, as stored by `figures.py`."""

from __future__ import annotations

import json
import re

import pytest

from tests.method.figures import PROBLEMS, STORED, constants

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
EXPECTED = json.loads(STORED.read_text())


def differences(found, stored, path="", size=1e-2):
    """Where two figures differ: in an integer, in a text, or by more than the rounding of float32.

    The figures of an array are compared on the scale of its mean size.
    """
    if isinstance(stored, dict):
        if found.keys() != stored.keys():
            return [f"{path}: {sorted(found.keys() ^ stored.keys())}"]
        parts = [differences(found[key], stored[key], f"{path}/{key}") for key in stored]
        return [text for part in parts for text in part]
    if isinstance(stored, list):
        if len(found) != len(stored):
            return [f"{path}: {len(found)} instead of {len(stored)}"]
        if [type(part) for part in stored] == [int, float, float, float]:
            size = stored[1]
        both = enumerate(zip(found, stored, strict=True))
        parts = [differences(a, b, f"{path}/{i}", size) for i, (a, b) in both]
        return [text for part in parts for text in part]
    if isinstance(stored, str):
        texts = [NUMBER.split(text) for text in (found, stored)]
        if texts[0] != texts[1]:
            return [f"{path}: {found!r} instead of {stored!r}"]
        numbers = [[float(x) for x in NUMBER.findall(text)] for text in (found, stored)]
        same = numbers[0] == pytest.approx(numbers[1], rel=2e-3, abs=2e-3)
    elif isinstance(stored, float):
        same = found == pytest.approx(stored, rel=1e-3, abs=1e-3 * size)
    else:
        same = found == stored
    return [] if same else [f"{path}: {found} instead of {stored}"]


def test_a_constant_has_its_stored_value():
    """One that is new or gone is no change of a value."""
    found = constants()
    stored = {name: EXPECTED["constants"].get(name, values) for name, values in found.items()}
    assert found == stored


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.__name__)
def test_as_stored(problem):
    found = json.loads(json.dumps(problem()))
    assert differences(found, EXPECTED[problem.__name__]) == []
