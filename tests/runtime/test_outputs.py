import json
import os

import pytest

from rpml.runtime.context import file_fingerprint
from rpml.runtime.errors import InputError
from rpml.runtime.outputs import (
    Manifest,
    check_apart,
    check_folder,
    check_output,
    check_written_together,
)


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


LIST = ".npy.manifest.json"
LATE = 2**61  # of a file that was edited after it was listed, by more than a tick of the clock


def listing(path, *files, complete=True, facts=None, main=None):
    manifest = Manifest(path)
    manifest.facts, manifest.main = facts or {}, file_fingerprint(main) if main else ""
    path.write_text(manifest.text(files, complete))


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
    listing(folder / "m.json", precious)
    forged = json.loads((folder / "m.json").read_text())
    forged["files"] = ["../precious", "link/precious", str(precious), ".."]
    (folder / "m.json").write_text(json.dumps(forged))
    manifest = Manifest(folder / "m.json")
    assert manifest.files == []
    assert not manifest.owns(precious)


def test_the_manifest_of_another_user_gives_no_right_to_replace(tmp_path, monkeypatch):
    (tmp_path / "thesis").write_text("mine")
    listing(tmp_path / "m.json", tmp_path / "thesis")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert not Manifest(tmp_path / "m.json").owns(tmp_path / "thesis")


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
