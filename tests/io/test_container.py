"""The file under models and checkpoints: standard, reproducible, and safe to open."""

import json
import os
import pickle
import resource
import stat
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from rpml.io.container import read_container, write_container
from rpml.runtime.errors import ModelFormatError, WriteError

ARRAYS = {
    "mean": np.arange(6, dtype=np.float32),
    "components": np.arange(12, dtype=np.float64).reshape(2, 6) / 7,
    "labels": np.array([3, 1, 2], dtype=np.int32),
    "flags": np.array([True, False]),
}
METADATA = {"settings": {"alpha": 45.0, "name": "é«"}, "loss": float("inf")}


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.rpml"
    write_container(path, ARRAYS, METADATA, "model", 1)
    return path


def refusal(path):
    with pytest.raises(ModelFormatError) as caught:
        read_container(path, "model", 1)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_round_trip(model):
    arrays, fields = read_container(model, "model", 1)
    assert fields["metadata"] == METADATA
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_others_may_read_it_as_the_umask_says(tmp_path):
    before = os.umask(0o022)
    try:
        write_container(tmp_path / "m", ARRAYS, METADATA, "model", 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o644


def test_the_real_library_reads_it(model):
    loaded = load_file(model)
    assert loaded.keys() == ARRAYS.keys()
    np.testing.assert_array_equal(loaded["components"], ARRAYS["components"])


def test_equal_content_gives_equal_bytes(tmp_path, model):
    reordered = dict(reversed(list(ARRAYS.items())))
    write_container(tmp_path / "again", reordered, METADATA, "model", 1)
    assert (tmp_path / "again").read_bytes() == model.read_bytes()


@pytest.mark.parametrize(
    "array",
    [np.zeros((0, 3), np.float16), np.array(5), np.ones((2, 3)).T, np.arange(3, dtype=">i4")],
)
def test_unusual_arrays(tmp_path, array):
    write_container(tmp_path / "m", {"a": array}, {}, "model", 1)
    found = read_container(tmp_path / "m", "model", 1)[0]["a"]
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


def test_objects_and_text_are_not_storable(tmp_path):
    for array in (np.array([{}]), np.array(["a"])):
        with pytest.raises(TypeError, match="dtype"):
            write_container(tmp_path / "m", {"a": array}, {}, "model", 1)
    assert list(tmp_path.iterdir()) == []


def test_every_truncation_is_refused(model):
    whole = model.read_bytes()
    for length in range(len(whole)):
        model.write_bytes(whole[:length])
        refusal(model)
    model.write_bytes(whole + b"\0")
    refusal(model)


def mutate(whole, rng):
    """One random damage: flipped bits, a changed, removed, repeated or zeroed stretch."""
    data = bytearray(whole)
    at = int(rng.integers(len(data)))
    size = int(rng.integers(1, 40))
    kind = rng.integers(6)
    if kind == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        data[at : at + size] = rng.bytes(len(data[at : at + size]))
    elif kind == 2:
        del data[at : at + size]
    elif kind == 3:
        data[at:at] = data[at : at + size] * int(rng.integers(1, 50))
    elif kind == 4:
        data[at : at + size] = bytes(len(data[at : at + size]))
    else:
        data[:8] = struct.pack("<Q", int(rng.integers(2**63)) >> int(rng.integers(63)))
    return bytes(data)


def digits(whole, rng):
    """Another number somewhere in the header: wrong shapes, offsets and versions."""
    places = [i for i, c in enumerate(whole[8:-80], 8) if 48 <= c < 58]
    data = bytearray(whole)
    at = places[int(rng.integers(len(places)))]
    data[at] = 48 + int(rng.integers(10))
    return bytes(data)


def fuzz(model, count, seed):
    whole, rng = model.read_bytes(), np.random.default_rng(seed)
    for i in range(count):
        changed = (digits if i % 3 == 0 else mutate)(whole, rng)
        model.write_bytes(changed)
        try:
            arrays, fields = read_container(model, "model", 1)
        except ModelFormatError:
            continue
        # only damage that changes nothing may pass (a digit replaced by itself, padding)
        assert fields["metadata"] == METADATA
        assert arrays.keys() == ARRAYS.keys()
        assert all(np.array_equal(arrays[n], ARRAYS[n]) for n in ARRAYS)


def test_fuzz(model):
    fuzz(model, 600, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_fuzz_long(model, seed):
    fuzz(model, 10_000, seed)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "m.rpml"
    path.write_bytes(data)
    refusal(path)


HEADERS = {
    "a huge shape": {"a": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 8]}},
    "an overflowing shape": {
        "a": {"dtype": "F32", "shape": [2**63, 2**63], "data_offsets": [0, 8]}
    },
    "offsets beyond the file": {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 2**50]}},
    "negative numbers": {"a": {"dtype": "F32", "shape": [-2], "data_offsets": [8, 0]}},
    "overlapping arrays": {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    },
    "an unknown dtype": {"a": {"dtype": "PYOBJECT", "shape": [1], "data_offsets": [0, 8]}},
    "bfloat16": {"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}},
    "no dtype": {"a": {"shape": [1], "data_offsets": [0, 8]}},
    "a list": [1, 2],
    "nothing": {},
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("marked", [True, False])
def test_forged_headers(tmp_path, name, marked):
    header = HEADERS[name]
    if marked and isinstance(header, dict):
        text = json.dumps({"kind": "model", "format_version": 1, "metadata": {}})
        header = {"__metadata__": {"rpml": text, "checksum": "sha256:0"}, **header}
    encoded = json.dumps(header).encode()
    (tmp_path / "m").write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(8))
    refusal(tmp_path / "m")


def test_deeply_nested_json(tmp_path):
    for text in ("[" * 100_000, '{"a":' * 100_000):
        (tmp_path / "m").write_bytes(struct.pack("<Q", len(text)) + text.encode())
        refusal(tmp_path / "m")
        save_file({"a": np.zeros(1)}, tmp_path / "m", {"rpml": text, "checksum": ""})
        refusal(tmp_path / "m")


def test_a_file_with_a_terabyte_of_holes(tmp_path):
    encoded = json.dumps(HEADERS["offsets beyond the file"]).encode()
    with open(tmp_path / "m", "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(2**40)
    refusal(tmp_path / "m")


class Trap:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_disguises(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for protocol in range(6):
        (tmp_path / "p.rpml").write_bytes(pickle.dumps(Trap(), protocol))
        refusal(tmp_path / "p.rpml")
    with zipfile.ZipFile(tmp_path / "z.rpml", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Trap()))
    assert "not an rpml file" in refusal(tmp_path / "z.rpml")
    np.save(tmp_path / "n.npy", np.zeros(3))
    assert "not an rpml file" in refusal(tmp_path / "n.npy")
    save_file({"a": np.zeros(3)}, tmp_path / "s")
    assert "not written by rpml" in refusal(tmp_path / "s")
    assert not (tmp_path / "executed").exists()


def test_a_full_disk_is_named(model):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(WriteError, match=r"m\.rpml: File too large$"):
            write_container(model, {"a": np.zeros(1000)}, {}, "model", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_container(model, "model", 1)[1]["metadata"] == METADATA


def test_future_version_names_both(model):
    write_container(model, ARRAYS, METADATA, "model", 7)
    assert "format version 7, this rpml reads up to 1" in refusal(model)


def test_another_kind(model):
    write_container(model, ARRAYS, METADATA, "checkpoint", 1)
    assert "is a checkpoint, not a model" in refusal(model)


def test_missing_empty_and_special_files(tmp_path):
    assert "there is no such file" in refusal(tmp_path / "absent")
    (tmp_path / "empty").touch()
    assert "is empty" in refusal(tmp_path / "empty")
    assert "regular file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "regular file" in refusal(tmp_path / "pipe")
