import os

import pytest

from rpml.runtime.errors import InputError
from rpml.runtime.files.outputs import (
    Manifest,
    check_apart,
    check_folder,
    check_output,
    mark_folder,
    write_manifest,
)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("a")
    (tmp_path / "x.npy").write_text("x")
    (tmp_path / "link.npy").symlink_to("x.npy")
    os.link(tmp_path / "x.npy", tmp_path / "hard.npy")
    return tmp_path


@pytest.mark.parametrize(
    ("output", "source", "reason"),
    [
        ("x.npy", "x.npy", "is the input"),
        ("link.npy", "x.npy", "is the input"),
        ("hard.npy", "x.npy", "is the input"),
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


def test_no_file_is_called_like_standard_output():
    with pytest.raises(InputError, match="only tables can be written to standard output"):
        check_output("-", overwrite=True)


def test_neighbors_are_fine(tree):
    check_apart([tree / "photos.npy", tree / "y.npy"], [tree / "photos", tree / "x.npy", "s3://b"])


def test_a_listed_file_is_ours_until_somebody_changes_it(tmp_path):
    (tmp_path / "ids.csv").write_text("1")
    (tmp_path / "labels.csv").write_text("mine")
    write_manifest(tmp_path / "m.json", {"ids.csv": tmp_path / "ids.csv"}, {"rows": 3})
    manifest = Manifest(tmp_path / "m.json")
    assert manifest.facts == {"rows": 3}
    assert manifest.intact()
    for name in ("ids.csv", "m.json", "absent.csv"):
        manifest.check(tmp_path / name)
    with pytest.raises(InputError, match="not as an earlier run"):
        manifest.check(tmp_path / "labels.csv")
    (tmp_path / "ids.csv").write_text("2")
    assert not manifest.intact()
    with pytest.raises(InputError, match="not as an earlier run"):
        manifest.check(tmp_path / "ids.csv")


@pytest.mark.parametrize("text", ["", "[", "{}", '{"files": 3, "facts": {}}', "[" * 100_000])
def test_a_manifest_that_is_not_ours_lists_nothing(tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    (tmp_path / "f").touch()
    manifest = Manifest(tmp_path / "m.json")
    assert not manifest.intact()
    with pytest.raises(InputError):
        manifest.check(tmp_path / "f")


def test_only_a_folder_of_ours_may_be_replaced(tmp_path):
    folder = tmp_path / "d"
    check_folder(folder)
    (folder / "sub").mkdir(parents=True)
    check_folder(folder)
    (folder / "sub" / "part").touch()
    with pytest.raises(InputError, match="sub/part"):
        check_folder(folder)
    mark_folder(folder)
    check_folder(folder)
    (folder / ".hidden").touch()
    with pytest.raises(InputError, match="hidden"):
        check_folder(folder)
