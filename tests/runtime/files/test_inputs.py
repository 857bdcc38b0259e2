"""Files that change while they are read."""

import os
import subprocess
import sys

import numpy as np
import pytest

from rpml.io.features import open_features
from rpml.runtime.errors import InputError
from rpml.runtime.files.atomic import atomic_output
from rpml.runtime.files.inputs import Stamp, check_mapped, map_npy


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1000, 40)))
    return tmp_path / "x.npy"


def test_a_truncated_map_reads_zeros_and_is_noticed(path):
    """In a process of its own: pytest answers SIGBUS itself."""
    program = f"""
import os
from pathlib import Path
from rpml.runtime.files.inputs import check_mapped, map_npy
x = map_npy(Path({str(path)!r}))
os.truncate({str(path)!r}, 8192)
print(x[-1].sum(), x[0].sum())
check_mapped()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "0.0 40.0\n"
    assert "was changed while it was read" in done.stderr


def test_nothing_is_published_of_a_map_that_was_rewritten(path, tmp_path):
    x = map_npy(path)
    with open(path, "r+b") as file:
        file.seek(200)
        file.write(b"other")
    os.utime(path, ns=(0, 0))
    with pytest.raises(InputError, match="was changed"), atomic_output(tmp_path / "out") as new:
        new.write_text(str(x.sum()))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy"]
    del x
    check_mapped()  # nobody reads it any more
    with pytest.raises(InputError, match="was changed"):
        check_mapped(closed=True)


def test_a_map_of_a_file_that_was_replaced_or_removed_is_intact(path, tmp_path):
    x = map_npy(path)
    np.save(tmp_path / "new.npy", np.zeros((2, 2)))
    os.replace(tmp_path / "new.npy", path)
    check_mapped()
    path.unlink()
    check_mapped()
    assert x.sum() == 40_000


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


def test_a_file_that_is_gone_has_changed_unless_it_is_mapped(path):
    stamp = Stamp.of(path)
    stamp.check()
    path.unlink()
    stamp.check(mapped=True)
    with pytest.raises(InputError):
        stamp.check()
