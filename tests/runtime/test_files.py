import errno
import os
import resource
import shutil
import signal
import stat
import threading

import pytest

from rpml.runtime.context import file_fingerprint
from rpml.runtime.errors import InputError, WriteError, write_error
from rpml.runtime.files import atomic_output, atomic_outputs, check_apart, check_output
from tests.faults.shim import FAULTS, NOT_REACHED, run_forked


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def contents(folder):
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


def write(path, text, overwrite=True):
    with atomic_output(path, overwrite) as draft:
        draft.write_text(text)


@pytest.fixture
def no_links(monkeypatch):
    def link(*args, **options):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)


def test_success_replaces_and_leaves_nothing_else(tmp_path):
    for text in ("old", "new"):
        write(tmp_path / "f", text)
    assert contents(tmp_path) == {"f": "new"}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failure_keeps_the_old_one(tmp_path, error):
    def fail():
        with atomic_output(tmp_path / "f", True) as draft:
            draft.write_text("new")
            raise error

    write(tmp_path / "f", "old")
    with pytest.raises(error):
        fail()
    assert contents(tmp_path) == {"f": "old"}


def plant_file(path):
    path.write_text("theirs")


def plant_folder(path):
    path.mkdir()


def plant_link(path):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("plant", [plant_file, plant_folder, plant_link])
@pytest.mark.parametrize("links", [True, False])
def test_what_appears_during_the_write_is_not_replaced(tmp_path, plant, links, request):
    if not links:
        request.getfixturevalue("no_links")

    def race():
        with atomic_output(tmp_path / "f", overwrite=False) as draft:
            draft.write_text("ours")
            plant(tmp_path / "f")

    plant(tmp_path / "same")
    with pytest.raises(InputError, match=r"f exists: .*--force"):
        race()
    before, after = (os.lstat(tmp_path / name) for name in ("same", "f"))
    assert (after.st_mode, after.st_size) == (before.st_mode, before.st_size)
    assert names(tmp_path) == ["f", "same"]


@pytest.mark.parametrize("links", [True, False])
def test_of_many_writers_at_once_one_succeeds(tmp_path, links, request):
    """In threads, which share the lock: only the publication tells them apart."""
    if not links:
        request.getfixturevalue("no_links")
    barrier, ended = threading.Barrier(8), []

    def attempt(i):
        try:
            with atomic_output(tmp_path / "f", overwrite=False) as draft:
                draft.write_text(str(i))
                barrier.wait()
            ended.append(i)
        except InputError as error:
            assert "exists" in str(error)  # noqa: PT017

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(tmp_path) == {"f": str(*ended)}


def test_drafts_of_other_threads_stay_when_one_has_finished(tmp_path):
    """The first of three leaves before the third begins: the second still has its draft."""
    first, second, third = (atomic_output(tmp_path / "f", overwrite=True) for _ in range(3))
    drafts = {}
    for name, output in {"first": first, "second": second}.items():
        drafts[name] = output.__enter__()
        drafts[name].write_text(name)
    first.__exit__(None, None, None)
    with third as draft:
        draft.write_text("third")
        assert contents(tmp_path)["f"] == "first"
    second.__exit__(None, None, None)
    assert contents(tmp_path) == {"f": "second"}


def test_without_links_nothing_else_changes(tmp_path, no_links):
    write(tmp_path / "f", "new", overwrite=False)
    write(tmp_path / "f", "newer")
    assert contents(tmp_path) == {"f": "newer"}


def write_pair(folder, text, removed=()):
    with atomic_outputs(folder / "f", True, [folder / name for name in removed]) as scratch:
        (scratch / "f").write_text(text)
        (scratch / "f.ids").write_text(file_fingerprint(scratch / "f"))


def read_pair(folder):
    """As a reader of two files does."""
    if (folder / "f.ids").read_text() != file_fingerprint(folder / "f"):
        raise InputError("they do not match")
    return (folder / "f").read_text()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pair_is_old_or_new_or_refused_whatever_fails(tmp_path, fault):
    seen = set()
    for moment in range(100):
        folder = tmp_path / str(moment)
        folder.mkdir()
        (folder / "mine").write_text("mine")
        (folder / "f.extra").write_text("old")
        write_pair(folder, "old")
        status = run_forked(
            lambda: write_pair(folder, "new", ["f.extra", "absent"]),  # noqa: B023
            folder,
            moment,
            fault,
        )
        try:
            seen.add(read_pair(folder))
        except InputError:
            seen.add("refused")
        write_pair(folder, "new", ["f.extra"])
        assert read_pair(folder) == "new"
        assert names(folder) == ["f", "f.ids", "mine"]
        if status == NOT_REACHED:
            break
    assert moment > 8
    assert seen == {"old", "new", "refused"}


def test_without_overwriting_a_pair_leaves_no_half_of_it(tmp_path):
    def race():
        with atomic_outputs(tmp_path / "f", False) as scratch:
            for name in ("f", "f.ids"):
                (scratch / name).write_text("ours")
            (tmp_path / "f").write_text("theirs")

    with pytest.raises(InputError, match="f exists"):
        race()
    assert contents(tmp_path) == {"f": "theirs"}


def test_a_file_to_be_removed_that_appears_is_kept(tmp_path):
    def race():
        with atomic_outputs(tmp_path / "f", False, [tmp_path / "f.ids"]) as scratch:
            (scratch / "f").write_text("ours")
            (tmp_path / "f.ids").write_text("theirs")

    with pytest.raises(InputError, match=r"f\.ids exists"):
        race()
    assert contents(tmp_path) == {"f.ids": "theirs"}


def test_a_lock_of_a_draft_that_could_not_be_removed_is_not_published(tmp_path):
    with atomic_outputs(tmp_path / "f", True) as scratch:
        write(scratch / "f", "x")
        hidden = scratch / ".f-0923a5b83027.rpml-new"
        hidden.mkdir()
        (hidden / "lock").touch()
    assert names(tmp_path) == ["f"]


def killed_draft(path):
    """What a process leaves that is killed while it writes `path`."""

    def write_and_die():
        with atomic_output(path, True) as draft:
            draft.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

    assert run_forked(write_and_die, path.parent, -1, "kill") == -signal.SIGKILL
    (draft,) = path.parent.glob(f".{path.name}-*.rpml-new/*/{path.name}")
    return draft


def test_leftovers_of_a_killed_writer_are_removed_by_the_next_one(tmp_path):
    draft = killed_draft(tmp_path / "f.npy")
    other = killed_draft(tmp_path / "f.npy.npy")
    with atomic_output(tmp_path / "f.npy", True) as first:
        assert not draft.exists()
        write(tmp_path / "f.npy", "x")  # the first is at work, not dead
        first.write_text("y")
    assert (tmp_path / "f.npy").read_text() == "y"
    assert other.exists()
    assert sorted(contents(tmp_path)) == ["f.npy"]


@pytest.mark.parametrize("plant", [plant_file, plant_link, lambda path: path.symlink_to("mine")])
def test_what_stands_where_drafts_go_is_neither_followed_nor_emptied(tmp_path, plant):
    hidden = killed_draft(tmp_path / "f").parents[1]
    shutil.rmtree(hidden)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("mine")
    plant(hidden)
    with pytest.raises(InputError, match="not a folder of yours"):
        write(tmp_path / "f", "x")
    assert names(tmp_path) == sorted([hidden.name, "mine"])
    assert contents(tmp_path / "mine") == {"thesis": "mine"}


def test_drafts_are_private_and_outputs_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with atomic_output(tmp_path / "f", False) as draft:
            draft.touch()
            assert stat.S_IMODE(draft.parents[1].stat().st_mode) == 0o700
            assert draft.parents[2] == tmp_path
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_the_mode_of_a_replaced_file_is_kept(tmp_path):
    write_pair(tmp_path, "old")
    (tmp_path / "f").chmod(0o600)
    (tmp_path / "f.ids").chmod(0o444)
    write_pair(tmp_path, "new")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("f", "f.ids")]
    assert modes == [0o600, 0o444]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "real").write_text("precious")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "here").symlink_to(".")
    write(tmp_path / "here" / "link", "new")
    assert not (tmp_path / "link").is_symlink()
    assert contents(tmp_path) == {"real": "precious", "link": "new"}


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_special_files_and_folders_are_not_replaced(tmp_path, make):
    make(tmp_path / "f")
    with pytest.raises(InputError, match=r"not a regular file|is a folder"):
        write(tmp_path / "f", "new")
    assert not (tmp_path / "f").is_file()
    assert names(tmp_path) == ["f"]


def test_a_full_disk_says_what_to_do(tmp_path):
    error = write_error(tmp_path / "f", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert str(error).endswith("f: No space left on device: free some space and try again")


def test_file_size_limit_is_a_clear_error(tmp_path):
    """The same path a full disk takes: the write itself fails."""
    write(tmp_path / "f", "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(WriteError) as caught, atomic_output(tmp_path / "f", True) as draft:
            draft.write_bytes(bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert contents(tmp_path) == {"f": "old"}


def test_long_names(tmp_path):
    name = "é" * 120 + ".npy"
    write(tmp_path / name, "x")
    assert names(tmp_path) == [name]


def test_one_flush_per_file(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    write(tmp_path / "f", "x")
    assert len(flushed) == 1


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("a")
    (tmp_path / "x.npy").write_text("x")
    (tmp_path / "link.npy").symlink_to("x.npy")
    return tmp_path


@pytest.mark.parametrize(
    ("output", "source", "reason"),
    [
        ("x.npy", "x.npy", "is the input"),
        ("link.npy", "x.npy", "is the input"),
        ("photos/../x.npy", "x.npy", "is the input"),
        ("photos", "photos", "is the input"),
        ("photos", "photos/a.jpg", "holds the input"),
        (".", "photos", "holds the input"),
        ("photos/out.npy", "photos", "lies in the input"),
        ("photos/new/out.npy", "photos", "lies in the input"),
    ],
)
def test_inputs_are_never_outputs(tree, output, source, reason):
    with pytest.raises(InputError, match=reason):
        check_apart([tree / "fine.npy", tree / output], [None, "-", tree / source])


def test_neighbors_are_fine(tree):
    check_apart([tree / "photos.npy", tree / "y.npy"], [tree / "photos", tree / "x.npy", "s3://b"])


def test_outputs_that_cannot_be_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "there").symlink_to("nowhere")
    for name, overwrite, reason in (
        ("-", True, "only tables can be written to standard output"),
        (tmp_path / "pipe", True, "not a regular file"),
        ("/dev/null", True, "not a regular file"),
        (tmp_path / "no" / "f", False, "does not exist"),
        (tmp_path / "there", False, "exists"),
    ):
        with pytest.raises(InputError, match=reason):
            check_output(name, overwrite)


def test_a_name_that_is_no_text_is_noticed_before_the_work(tmp_path):
    """As Python decodes é under LC_ALL=C without its UTF-8 mode; libraries could not write it."""
    with pytest.raises(InputError, match="not text in this locale"):
        check_output(tmp_path / "mod\udcc3\udca8le.rpml", False)
