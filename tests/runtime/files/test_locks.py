import os
import resource
import signal
import subprocess
import sys

import pytest

from rpml.runtime.errors import InputError
from rpml.runtime.files.locks import locked

HOLD = (
    "import sys, time; from rpml.runtime.files.locks import locked\n"
    "with locked(sys.argv[1]): print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of an output."""
    line = [sys.executable, "-c", HOLD, str(tmp_path / "m.rpml")]
    process = subprocess.Popen(line, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_told_who_holds_it(tmp_path, holder):
    with (
        pytest.raises(InputError, match=f"being written by process {holder.pid}"),
        locked(tmp_path / "m.rpml"),
    ):
        pass
    with locked(tmp_path / "other.rpml"):
        pass


def test_the_same_output_by_another_name(tmp_path, holder):
    (tmp_path / "link").symlink_to("m.rpml")
    with pytest.raises(InputError, match="being written"), locked(tmp_path / "link"):
        pass


def test_a_crash_releases_it(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(tmp_path / "m.rpml"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_lock(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(InputError, match="File too large"), locked(tmp_path / "m.rpml"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_file_of_that_name_is_not_touched(tmp_path):
    path = tmp_path / ".m.rpml.rpml-lock"
    path.write_text("mine")
    with pytest.raises(InputError, match="not ours"), locked(tmp_path / "m.rpml"):
        pass
    assert path.read_text() == "mine"


def test_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("1")
    os.symlink("precious", tmp_path / ".m.rpml.rpml-lock")
    with pytest.raises(InputError, match="cannot write"), locked(tmp_path / "m.rpml"):
        pass
    assert (tmp_path / "precious").read_text() == "1"
