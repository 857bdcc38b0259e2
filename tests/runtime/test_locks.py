import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
import tempfile
import types

import pytest

from rpml.runtime.errors import InputError
from rpml.runtime.files import locked
from tests.faults.shim import run_forked

HOLD = (
    "import sys, time; from rpml.runtime.files import locked\n"
    "with locked(sys.argv[1]): print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def hold(tmp_path):
    """Another process that holds the lock of an output."""
    processes = []

    def start(name="m.rpml"):
        line = [sys.executable, "-c", HOLD, str(tmp_path / name)]
        processes.append(subprocess.Popen(line, stdout=subprocess.PIPE))
        assert processes[-1].stdout.readline() == b"held\n"
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def refused(path, reason="being written by process"):
    with pytest.raises(InputError, match=reason), locked(path):
        pass


def test_a_second_process_learns_who_holds_it(tmp_path, hold):
    process = hold()
    refused(tmp_path / "m.rpml", f"being written by process {process.pid}")
    with locked(tmp_path / "other.rpml"):
        pass


def test_the_same_output_in_a_folder_of_another_name(tmp_path, hold):
    hold()
    (tmp_path / "link").symlink_to(".")
    refused(tmp_path / "link" / "m.rpml")


def test_long_names_that_begin_alike_have_locks_of_their_own(tmp_path, hold):
    first, second = "x" * 160 + "1.npy", "x" * 160 + "2.npy"
    hold(first)
    refused(tmp_path / first)
    with locked(tmp_path / second):
        pass


def test_one_process_may_take_it_twice(tmp_path):
    with locked(tmp_path / "m"):
        with locked(tmp_path / "m", again=True):
            pass
        refused(tmp_path / "m", f"process {os.getpid()}")
        assert len(list(tmp_path.iterdir())) == 1

        def child():
            with locked(tmp_path / "m"):
                pass

        assert run_forked(child, tmp_path, None, "kill") == 1  # a fork is another process
    assert list(tmp_path.iterdir()) == []


def test_a_crash_releases_it(tmp_path, hold):
    process = hold()
    process.send_signal(signal.SIGKILL)
    process.wait()
    with locked(tmp_path / "m.rpml"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_lock(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with locked(tmp_path / "m.rpml"):
            refused(tmp_path / "m.rpml")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_cannot_be_completed_is_released(tmp_path, monkeypatch):
    def mkdtemp(*args, **options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", mkdtemp)
        refused(tmp_path / "m.rpml", "cannot write")
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "m.rpml"):
        pass


def test_a_missing_folder_is_named(tmp_path):
    refused(tmp_path / "no" / "m", "the folder .* does not exist")


def test_msvcrt_locks_where_there_is_no_fcntl(tmp_path, monkeypatch):
    """A stand-in for the module of Windows, which locks bytes of a file."""

    def locking(descriptor, mode, size):
        assert (mode, size) == (3, 1)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    monkeypatch.setitem(sys.modules, "fcntl", None)
    fake = types.SimpleNamespace(locking=locking, LK_NBLCK=3)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    with locked(tmp_path / "m"):

        def child():
            refused(tmp_path / "m", f"process {os.getppid()}")

        assert run_forked(child, tmp_path, None, "kill") == 0


def test_without_any_locks_there_is_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with locked(tmp_path / "m"):
        pass
    assert "a second writer is not noticed" in caplog.text
    assert list(tmp_path.iterdir()) == []


WITHOUT_FCNTL = """
import sys
sys.modules["fcntl"] = None
import numpy as np
from rpml import RPML
from rpml.cli.app import app
x = np.random.default_rng(0).normal(size=(60, 6))
np.save("x.npy", x)
RPML(2, n_neighbors=5, max_iter=2, random_state=0).fit(x).save("saved.rpml")
for line in ("fit x.npy -o m.rpml --dim 2", "embed m.rpml x.npy -o z.npy", "embed m.rpml - -o -"):
    sys.stdin = open("x.npy")
    try:
        app([*line.split(), "--quiet"])
    except SystemExit as end:
        assert not end.code, line
"""


def test_everything_works_without_fcntl(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FCNTL], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["m.rpml", "saved.rpml", "x.npy", "z.npy"]
