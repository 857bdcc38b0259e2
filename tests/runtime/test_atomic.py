import errno
import os
import resource
import subprocess

import pytest

from rpml.runtime.atomic import atomic_output, check_output
from rpml.runtime.errors import InputError, WriteError


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_success_replaces_and_leaves_nothing_else(tmp_path):
    for text in ("old", "new"):
        with atomic_output(tmp_path / "f") as temporary:
            temporary.write_text(text)
    assert (tmp_path / "f").read_text() == "new"
    assert names(tmp_path) == ["f"]


def fail_half_way(path, error):
    with atomic_output(path) as temporary:
        temporary.write_text("new")
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failure_keeps_the_old_one(tmp_path, error):
    (tmp_path / "f").write_text("old")
    with pytest.raises(error):
        fail_half_way(tmp_path / "f", error)
    assert (tmp_path / "f").read_text() == "old"
    assert names(tmp_path) == ["f"]


def test_refuses_to_overwrite_even_what_appears_meanwhile(tmp_path):
    def race():
        with atomic_output(tmp_path / "f", overwrite=False) as temporary:
            temporary.write_text("ours")
            (tmp_path / "f").write_text("theirs")

    with pytest.raises(InputError, match="--force"):
        race()
    assert (tmp_path / "f").read_text() == "theirs"


def test_folders_are_replaced(tmp_path):
    for name in ("a", "b"):
        with atomic_output(tmp_path / "d") as temporary:
            temporary.mkdir()
            (temporary / name).touch()
    assert names(tmp_path / "d") == ["b"]
    assert names(tmp_path) == ["d"]


def test_leftovers_of_killed_processes_are_removed(tmp_path):
    process = subprocess.Popen(["true"])
    process.wait()
    with atomic_output(tmp_path / "f") as temporary:
        stale = temporary.with_name(temporary.name.replace(str(os.getpid()), str(process.pid)))
        own = temporary.name
        stale.write_text("half")
        temporary.write_text("x")
    with atomic_output(tmp_path / "f") as temporary:
        assert temporary.name == own
        assert not stale.exists()
        temporary.write_text("y")
    assert names(tmp_path) == ["f"]


def test_a_folder_swap_that_was_killed_half_way_is_undone(tmp_path):
    process = subprocess.Popen(["true"])
    process.wait()
    with atomic_output(tmp_path / "d") as temporary:
        temporary.mkdir()
        pattern = temporary.name.replace(str(os.getpid()), str(process.pid))
    os.rename(tmp_path / "d", tmp_path / (pattern + ".old"))
    with pytest.raises(RuntimeError), atomic_output(tmp_path / "d"):
        raise RuntimeError
    assert names(tmp_path) == ["d"]


def test_file_size_limit_is_a_clear_error(tmp_path):
    """The same path a full disk takes: the write itself fails."""
    (tmp_path / "f").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(WriteError) as caught, atomic_output(tmp_path / "f") as temporary:
            temporary.write_bytes(bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert "the previous one is unchanged" in str(caught.value)
    assert (tmp_path / "f").read_text() == "old"
    assert names(tmp_path) == ["f"]


def test_long_names(tmp_path):
    name = "é" * 120
    with atomic_output(tmp_path / name) as temporary:
        temporary.touch()
    assert names(tmp_path) == [name]


def test_missing_folder(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        check_output(tmp_path / "no" / "f", False)


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with atomic_output(tmp_path / "link") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_special_files_are_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        check_output(tmp_path / "pipe", True)
    with pytest.raises(InputError, match="not a regular file"):
        check_output("/dev/null", True)
