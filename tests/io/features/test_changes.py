"""Files that change while they are read."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from rpml.io.features import open_features, read_features
from rpml.runtime.errors import InputError


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    monkeypatch.setattr("rpml.io.features.numpy_files.MAPPED_BYTES", 1000)
    np.save(tmp_path / "x.npy", np.ones((1000, 40)))
    return tmp_path / "x.npy"


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_a_file_that_changes_between_two_batches_is_noticed(tmp_path, kind):
    path = tmp_path / f"x.{kind}"
    if kind == "csv":
        path.write_text("1,2\n" * 10)
    else:
        np.save(path, np.ones((10, 2)))
    batches = open_features(path).batches(rows=4)
    next(batches)
    os.utime(path, ns=(0, 0))
    with pytest.raises(InputError, match="was changed while it was read"):
        list(batches)


def test_batches_of_a_truncated_file_are_an_error(mapped):
    batches = open_features(mapped).batches(rows=100)
    next(batches)
    os.truncate(mapped, 8192)
    with pytest.raises(InputError, match="was truncated while it was read"):
        list(batches)


def test_rows_of_any_layout_are_read_as_they_are(mapped):
    rows = np.arange(6000.0).reshape(100, 60)
    for array in (rows, np.asfortranarray(rows), rows.astype(">f4")):
        np.save(mapped, array)
        found = [batch.values for batch in open_features(mapped).batches(rows=7)]
        np.testing.assert_array_equal(np.concatenate(found), rows)


def test_a_mapped_file_that_was_rewritten_is_noticed(mapped):
    features = read_features(mapped)
    features.check_unchanged()
    os.utime(mapped, ns=(0, 0))
    with pytest.raises(InputError, match="was changed"):
        features.check_unchanged()


def test_a_mapped_file_that_was_replaced_or_removed_is_intact(mapped):
    features = read_features(mapped)
    np.save(mapped.with_name("new.npy"), np.zeros((2, 2)))
    os.replace(mapped.with_name("new.npy"), mapped)
    features.check_unchanged()
    mapped.unlink()
    features.check_unchanged()
    assert features.values.sum() == 40_000


def test_a_file_that_is_gone_has_changed(mapped):
    batches = open_features(mapped).batches()
    next(batches)
    mapped.unlink()
    with pytest.raises(InputError, match="was changed"):
        next(batches)


TRUNCATED_MAP = """
import os, sys
import numpy as np
import rpml.io.features.numpy_files as files
files.MAPPED_BYTES = 1000
from rpml.io.features import read_features
from rpml.estimator import ResumableFit
from rpml import RPML

rows = read_features("x.npy")
other = np.load("y.npy", mmap_mode="r")
os.truncate("y.npy", 4096)
print("mapped", flush=True)
other.sum()
"""


def test_maps_of_other_libraries_are_left_to_the_system(mapped):
    """A truncated map is a bus error, not zeros: rpml handles no signal of the process."""
    np.save(mapped.with_name("y.npy"), np.ones(100_000))
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATED_MAP], cwd=mapped.parent, capture_output=True, text=True
    )
    assert done.stdout == "mapped\n"
    assert done.returncode == -signal.SIGBUS
