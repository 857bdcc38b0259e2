import errno
import json
import os
import resource
import signal
import stat

import pytest

import rpml.runtime.files.atomic as atomic
from rpml.runtime.errors import InputError, WriteError
from rpml.runtime.files.atomic import atomic_output, atomic_outputs, repair, write_error
from rpml.runtime.files.outputs import check_output
from tests.faults.shim import FAULTS, NOT_REACHED, run_forked


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


def dead_home(path):
    """What a process leaves that is killed while it writes `path`."""

    def write_and_die():
        with atomic_output(path) as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

    assert run_forked(write_and_die, path.parent, -1, "kill") == -signal.SIGKILL
    (home,) = path.parent.glob(f".{path.name}.*")
    return home


def test_leftovers_of_killed_processes_are_removed(tmp_path):
    home = dead_home(tmp_path / "f")
    with atomic_output(tmp_path / "f") as temporary:
        assert not home.exists()
        with atomic_output(tmp_path / "f") as second:  # the first is at work, not dead
            assert temporary.parent.is_dir()
            second.write_text("x")
        temporary.write_text("y")
    assert (tmp_path / "f").read_text() == "y"
    assert names(tmp_path) == ["f"]


def write_pair(folder, text, sides=("f.ids", "f.labels"), removed=()):
    with atomic_outputs(folder / "f") as outputs:
        for name in ("f", *sides):
            outputs.new(folder / name).write_text(text)
        for name in removed:
            outputs.remove(folder / name)


def contents(folder):
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


PAIR = ("f", "f.ids", "f.labels")
OLD = dict.fromkeys(PAIR, "old") | {"f.extra": "old", "mine": "mine"}
NEW = dict.fromkeys(PAIR, "new") | {"mine": "mine"}


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_several_files_are_old_or_new_whatever_fails(tmp_path, fault, links, monkeypatch):
    if not links:

        def no_link(*args, **options):
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", no_link)
    for moment in range(100):
        folder = tmp_path / str(moment)
        folder.mkdir()
        for name, text in OLD.items():
            (folder / name).write_text(text)
        status = run_forked(
            lambda: write_pair(folder, "new", removed=["f.extra", "absent"]),  # noqa: B023
            folder,
            moment,
            fault,
        )
        if fault != "kill":
            assert contents(folder) in (OLD, NEW)
        repair(folder / "f")
        assert contents(folder) in (OLD, NEW)
        assert set(names(folder)) == set(contents(folder))
        if status == NOT_REACHED:
            break
    assert contents(folder) == NEW
    assert moment > 12


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_is_old_or_new_whatever_fails(tmp_path, fault, exchange, monkeypatch):
    if not exchange:
        monkeypatch.setattr(atomic, "_rename", lambda *args: False)

    def write(folder, name):
        with atomic_output(folder / "d") as temporary:
            temporary.mkdir()
            (temporary / name).touch()

    for moment in range(100):
        folder = tmp_path / str(moment)
        folder.mkdir()
        write(folder, "old")
        status = run_forked(lambda: write(folder, "new"), folder, moment, fault)  # noqa: B023
        repair(folder / "d")
        assert names(folder) == ["d"]
        assert names(folder / "d") in (["old"], ["new"])
        if status == NOT_REACHED:
            break
    assert names(folder / "d") == ["new"]


def test_a_file_put_in_place_of_ours_survives_the_repair(tmp_path):
    """Killed half way, then the user writes one of the files himself."""
    write_pair(tmp_path, "old", sides=("f.ids",))
    for moment in range(100):
        write_pair(tmp_path, "old", sides=("f.ids",))
        (tmp_path / "f.labels").unlink(missing_ok=True)
        status = run_forked(lambda: write_pair(tmp_path, "new"), tmp_path, moment, "kill")
        (tmp_path / "f.labels").unlink(missing_ok=True)
        (tmp_path / "f.labels").write_text("the user's")
        repair(tmp_path / "f")
        assert (tmp_path / "f.labels").read_text() == "the user's"
        if status == NOT_REACHED:
            break
    assert moment > 8


def test_the_repair_is_reported(tmp_path, caplog):
    write_pair(tmp_path, "old")
    for moment in range(100):
        run_forked(lambda: write_pair(tmp_path, "new"), tmp_path, moment, "kill")
        repair(tmp_path / "f")
        if caplog.text:
            break
    assert "interrupted has been undone" in caplog.text
    assert set(contents(tmp_path).values()) == {"old"}


def test_a_journal_cannot_name_files_elsewhere(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "precious").write_text("mine")
    home = dead_home(tmp_path / "d" / "f")
    (home / "old").mkdir()
    identity = atomic._identity(tmp_path / "precious")
    (home / "journal").write_text(json.dumps({"../precious": identity}))
    with pytest.raises(InputError, match="cannot be repaired"):
        repair(tmp_path / "d" / "f")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_private_file_stays_private(tmp_path):
    write_pair(tmp_path, "old")
    (tmp_path / "f").chmod(0o600)
    (tmp_path / "f.ids").chmod(0o640)
    write_pair(tmp_path, "new")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("f", "f.ids")]
    assert modes == [0o600, 0o640]


def test_a_folder_in_the_way_is_not_replaced_by_a_file(tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "precious").write_text("mine")
    with pytest.raises(InputError, match="Is a directory"):
        fail_half_way(tmp_path / "f", OSError(errno.EISDIR, "Is a directory"))
    with pytest.raises(InputError, match="Is a directory"), atomic_output(tmp_path / "f") as new:
        new.write_text("ours")
    assert contents(tmp_path / "f") == {"precious": "mine"}


def test_nobody_can_guess_where_new_files_are_written(tmp_path):
    with atomic_output(tmp_path / "f") as first, atomic_output(tmp_path / "f") as second:
        assert first.parent != second.parent
        assert stat.S_IMODE(first.parent.parent.stat().st_mode) == 0o700
        first.write_text("1")
        second.write_text("2")


def test_a_full_disk_says_what_to_do(tmp_path):
    error = write_error(tmp_path / "f", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert str(error).endswith("f: No space left on device: free some space and try again")


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
