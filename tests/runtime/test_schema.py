"""The schema that everything read from a file is checked against."""

import json
import os

import numpy as np
import pytest

from rpml.runtime.errors import ModelFormatError
from rpml.runtime.schema import COUNT, ArraySpec, Number, Schema, check_json, read_document

SPEC = {
    "indices": ArraySpec("i", ("rows", "k"), 0, 1),
    "distances": ArraySpec("f", ("rows", "k"), 0),
    "mask": ArraySpec("b", ("rows",), optional=True),
}
GOOD = {"indices": np.array([[1], [0]]), "distances": np.zeros((2, 1)), "mask": np.ones(2, bool)}


def test_what_fits_passes_and_names_its_sizes():
    assert Schema(SPEC).check(GOOD, {}) == {"rows": 2, "k": 1}
    without = {name: array for name, array in GOOD.items() if name != "mask"}
    Schema(SPEC).check({**without, "unknown": np.zeros(3)}, {})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"indices": None}, "no indices"),
        ({"indices": np.array([[1.0], [0.0]])}, "not integers"),
        ({"indices": np.array([[2], [0]])}, "not from 0 to 1"),
        ({"indices": np.array([[-1], [0]])}, "not from 0 to 1"),
        ({"indices": np.array([1, 0])}, "shape"),
        ({"distances": np.zeros((2, 2))}, "shape"),
        ({"distances": np.full((2, 1), np.nan)}, "not finite"),
        ({"distances": np.full((2, 1), np.inf, np.float32)}, "not finite"),
        ({"distances": np.zeros((2, 1), np.float16)}, "16 bits"),
        ({"mask": np.ones(2)}, "not flags"),
    ],
)
def test_what_does_not_fit_is_named(change, complaint):
    arrays = {name: array for name, array in {**GOOD, **change}.items() if array is not None}
    with pytest.raises(ModelFormatError, match=complaint):
        Schema(SPEC).check(arrays, {})


VALUES = {"n": COUNT, "share": Number(0, 1), "names?": (None, [str]), "*": bool}


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"n": 1},
        {"n": True, "share": 0.5},
        {"n": -1, "share": 0.5},
        {"n": 1.5, "share": 0.5},
        {"n": 10**30, "share": 0.5},
        {"n": 1, "share": float("nan")},
        {"n": 1, "share": float("inf")},
        {"n": 1, "share": 0.5, "names": "abc"},
        {"n": 1, "share": 0.5, "names": [1]},
        {"n": 1, "share": 0.5, "other": "text"},
    ],
)
def test_json_that_does_not_fit(value):
    with pytest.raises(ModelFormatError):
        check_json(value, VALUES)


def test_json_that_fits():
    check_json({"n": 1, "share": 0, "names": None, "other": True}, VALUES)
    check_json({"n": 1, "share": 0.5, "names": ["a"]}, VALUES)


def test_depth_is_bounded_whatever_is_allowed():
    check_json(json.loads("[" * 16 + "]" * 16), object)
    for text in ("[" * 30 + "]" * 30, '{"a":' * 30 + "1" + "}" * 30):
        with pytest.raises(ModelFormatError, match="deeply"):
            check_json(json.loads(text), object)


@pytest.mark.parametrize("name", ["x.json", "x.toml"])
def test_documents_are_regular_and_flat(tmp_path, name):
    path = tmp_path / name
    path.write_text("[" * 10**5 if name == "x.json" else "x = " + "[" * 10**4)
    with pytest.raises(ModelFormatError, match="deeply"):
        read_document(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ModelFormatError, match="regular"):
        read_document(path)
