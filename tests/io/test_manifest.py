import json
import os

import pytest

from rpml.io.manifest import Manifest, check_folder, check_written_together, folder_outputs
from rpml.runtime.context import file_fingerprint
from rpml.runtime.errors import InputError
from rpml.runtime.files import locked
from tests.faults.shim import FAULTS, NOT_REACHED, run_forked
from tests.runtime.test_files import contents, names

LIST = ".npy.manifest.json"
LATE = 2**61  # of a file that was edited after it was listed, by more than a tick of the clock


def listing(path, *files, complete=True, facts=None, main=None):
    path.unlink(missing_ok=True)
    manifest = Manifest(path)
    manifest.facts, manifest.main = facts or {}, file_fingerprint(main) if main else ""
    manifest.files = files
    with locked(path) as scratch:
        manifest.write(complete, scratch)


def edit(path, text):
    path.write_text(text)
    os.utime(path, ns=(LATE, LATE))


def test_a_listed_file_is_ours_until_somebody_changes_it(tmp_path):
    (tmp_path / "ids.csv").write_text("1")
    (tmp_path / "labels.csv").write_text("mine")
    listing(tmp_path / "m.json", tmp_path / "ids.csv", facts={"rows": 3})
    manifest = Manifest(tmp_path / "m.json")
    assert manifest.facts == {"rows": 3}
    for name in ("ids.csv", "m.json", "absent.csv"):
        manifest.check(tmp_path / name)
    with pytest.raises(InputError, match="not as an earlier run"):
        manifest.check(tmp_path / "labels.csv")
    edit(tmp_path / "ids.csv", "2")
    with pytest.raises(InputError, match="not as an earlier run"):
        manifest.check(tmp_path / "ids.csv")


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", '{"files": 3, "facts": {}}', "[" * 100_000])
def test_a_manifest_that_is_not_ours_lists_nothing(tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    (tmp_path / "f").touch()
    manifest = Manifest(tmp_path / "m.json")
    assert manifest.files == []
    with pytest.raises(InputError):
        manifest.check(tmp_path / "f")


def test_a_pipe_is_no_manifest(tmp_path):
    os.mkfifo(tmp_path / "m.json")
    assert Manifest(tmp_path / "m.json").files == []


def test_a_forged_manifest_claims_nothing_outside_its_folder(tmp_path):
    folder, precious = tmp_path / "d", tmp_path / "precious"
    folder.mkdir()
    precious.write_text("mine")
    (folder / "link").symlink_to("..")
    listing(folder / "m.json")
    forged = json.loads((folder / "m.json").read_text())
    forged["files"] = ["../precious", "link/precious", str(precious), ".."]
    (folder / "m.json").write_text(json.dumps(forged))
    manifest = Manifest(folder / "m.json")
    assert manifest.files == []
    assert not manifest.owns(precious)


def test_a_folder_is_checked_before_the_work(tmp_path):
    folder = tmp_path / "d"
    check_folder(folder, overwrite=False)
    folder.mkdir()
    (folder / "thesis").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        check_folder(folder, overwrite=False)
    check_folder(folder, True, ["part"])
    (folder / "part").touch()
    with pytest.raises(InputError, match="part is there"):
        check_folder(folder, True, ["part"])
    listing(folder / "rpml.json", folder / "part")
    check_folder(folder, True, ["part"])


def test_a_table_is_refused_with_other_features(tmp_path):
    for name in ("x.npy", "x.groups.csv", "x.labels.csv"):
        (tmp_path / name).write_text(name)
    features, table, manifest = (tmp_path / f"x{end}" for end in (".npy", ".groups.csv", LIST))
    listing(manifest, features, table, main=features)
    check_written_together(table)
    edit(table, "corrected by hand")
    check_written_together(table)
    listing(manifest, features, table, main=features, complete=False)
    with pytest.raises(InputError, match="other features"):
        check_written_together(table)
    listing(manifest, features, table, main=features)
    features.write_text("other")
    with pytest.raises(InputError, match="other features"):
        check_written_together(table)
    check_written_together(tmp_path / "x.labels.csv")  # not listed: the user's own
    features.unlink()
    check_written_together(table)


def write_folder(folder, files, overwrite=True):
    with folder_outputs(folder, overwrite) as scratch:
        for name, text in files.items():
            (scratch / name).parent.mkdir(exist_ok=True)
            (scratch / name).write_text(text)


def test_a_folder_is_written_file_by_file_and_the_rest_stays(tmp_path):
    folder = tmp_path / "d"
    write_folder(folder, {"a": "1", "b": "1", "s/c": "1"}, overwrite=False)
    (folder / "thesis").write_text("mine")
    (folder / "empty").mkdir()
    (tmp_path / "precious").mkdir()
    (folder / "link").symlink_to("../precious")
    inode = folder.stat().st_ino
    write_folder(folder, {"b": "2", "s/c": "2", "t/d": "2"})
    assert folder.stat().st_ino == inode
    assert names(folder) == ["b", "empty", "link", "rpml.json", "s", "t", "thesis"]
    assert contents(folder) | {"rpml.json": ""} == {"b": "2", "thesis": "mine", "rpml.json": ""}
    assert contents(folder / "s") | contents(folder / "t") == {"c": "2", "d": "2"}
    assert (tmp_path / "precious").is_dir()


def test_without_force_an_existing_folder_stays(tmp_path):
    (tmp_path / "d").mkdir()
    with pytest.raises(InputError, match="exists"):
        write_folder(tmp_path / "d", {"a": "1"}, overwrite=False)
    assert names(tmp_path / "d") == []


@pytest.mark.parametrize("when", ["before", "during", "edited"])
def test_a_file_of_the_users_under_the_name_of_ours_stays(tmp_path, when):
    folder = tmp_path / "d"
    write_folder(folder, {"a": "1"} if when == "edited" else {"z": "1"})
    manifest = (folder / "rpml.json").read_text()

    def edit():
        (folder / "a").write_text("mine!")
        os.utime(folder / "a", ns=(2**61, 2**61))  # later than the list by more than a tick

    def attempt():
        with folder_outputs(folder, True) as scratch:
            for name in "ab":
                (scratch / name).write_text("2")
            if when == "during":
                edit()

    if when != "during":
        edit()
    with pytest.raises(InputError, match="a exists"):
        attempt()
    assert (folder / "a").read_text() == "mine!"
    assert "b" not in names(folder)
    assert (folder / "rpml.json").read_text() == manifest


def test_a_list_of_the_users_under_the_name_of_ours_stays(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "rpml.json").write_text("mine")
    with pytest.raises(InputError, match=r"rpml\.json exists"):
        write_folder(tmp_path / "d", {"a": "1"})
    assert contents(tmp_path / "d") == {"rpml.json": "mine"}


def test_a_link_in_a_folder_leads_nothing_out_of_it(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "d" / "s").symlink_to("../elsewhere")
    with pytest.raises(InputError, match="behind a link"):
        write_folder(tmp_path / "d", {"s/c": "1"})
    assert names(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_is_complete_or_noticed_whatever_fails(tmp_path, fault):
    noticed = 0
    for moment in range(100):
        folder = tmp_path / str(moment)
        write_folder(folder, {"a": "1", "b": "1", "c": "1"})
        (folder / "thesis").write_text("mine")
        status = run_forked(
            lambda: write_folder(folder, {"b": "2", "a": "2"}),  # noqa: B023
            tmp_path,
            moment,
            fault,
        )
        manifest = Manifest(folder / "rpml.json")
        listed = {path.name for path in manifest.files}
        there = {k: v for k, v in contents(folder).items() if k in listed}
        whole = listed == set(there) and set(there.values()) in ({"1"}, {"2"})
        assert whole or not manifest.complete
        noticed += not manifest.complete
        write_folder(folder, {"b": "2", "a": "2"})  # whatever state the kill left it in
        assert names(folder) == ["a", "b", "rpml.json", "thesis"]
        assert (folder / "thesis").read_text() == "mine"
        if status == NOT_REACHED:
            break
    assert noticed > 0
    assert moment > 8


def test_a_folder_that_failed_is_not_left_behind(tmp_path):
    def fail():
        with folder_outputs(tmp_path / "d", False) as scratch:
            (scratch / "a").write_text("1")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert names(tmp_path) == []
