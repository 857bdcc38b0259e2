"""Finding images: names, links, lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rpml.runtime.errors import InputError
from rpml.vision.files import find_images


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_folder_is_walked_in_order(tmp_path: Path) -> None:
    for name in ("b/2.JPG", "b/1.png", "a space/ñandú.jpeg", "z.gif", "notes.txt", ".hidden.jpg"):
        touch(tmp_path / name)
    touch(tmp_path / ".git" / "x.jpg")
    files = find_images(tmp_path)
    assert [f.id for f in files] == ["a space/ñandú.jpeg", "b/1.png", "b/2.JPG", "z.gif"]
    assert all(f.path.is_file() for f in files)


def test_symlink_loops_end_and_links_to_folders_are_followed(tmp_path: Path) -> None:
    touch(tmp_path / "root" / "a" / "1.png")
    touch(tmp_path / "elsewhere" / "2.png")
    os.symlink(tmp_path / "root", tmp_path / "root" / "a" / "up")
    os.symlink(tmp_path / "root" / "a", tmp_path / "root" / "a" / "self")
    os.symlink(tmp_path / "elsewhere", tmp_path / "root" / "b")
    assert [f.id for f in find_images(tmp_path / "root")] == ["a/1.png", "b/2.png"]


def test_broken_links_are_listed_to_be_reported(tmp_path: Path) -> None:
    os.symlink(tmp_path / "nowhere", tmp_path / "gone.jpg")
    assert [f.id for f in find_images(tmp_path)] == ["gone.jpg"]


def test_links_to_themselves_are_listed_to_be_reported(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "1.png")
    os.symlink("loop.jpg", tmp_path / "a" / "loop.jpg")
    os.symlink("there", tmp_path / "back")  # two links that point at each other
    os.symlink("back", tmp_path / "there")
    assert [f.id for f in find_images(tmp_path)] == ["a/1.png", "a/loop.jpg"]
    with pytest.raises(InputError, match="no such file or folder"):
        find_images(tmp_path / "back")


def test_names_that_are_not_text_can_still_be_written(tmp_path: Path) -> None:
    try:
        touch(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jpg")))
    except OSError:
        pytest.skip("this file system only takes UTF-8 names")
    (file,) = find_images(tmp_path)
    assert file.id.encode("utf8") == rb"\udcff.jpg"
    assert file.path.is_file()


def test_folders_that_cannot_be_listed_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path / "open" / "1.png")
    touch(tmp_path / "closed" / "2.png")
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert [f.id for f in find_images(tmp_path)] == ["closed", "open/1.png"]


def test_empty_and_missing_folders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        find_images(tmp_path)
    with pytest.raises(InputError, match="no such file or folder"):
        find_images(tmp_path / "absent")


def test_lists_keep_their_order(tmp_path: Path) -> None:
    touch(tmp_path / "b.png")
    (tmp_path / "list.txt").write_text("b.png\n\n  a.png  \n", encoding="utf8")
    files = find_images(tmp_path / "list.txt")
    assert [f.id for f in files] == ["b.png", "a.png"]
    assert files[0].path == tmp_path / "b.png"
    (tmp_path / "list.txt").write_text("b.png\nb.png\n")
    with pytest.raises(InputError, match=r"'b\.png' twice"):
        find_images(tmp_path / "list.txt")
    (tmp_path / "list.txt").write_text("\n")
    with pytest.raises(InputError, match="lists no images"):
        find_images(tmp_path / "list.txt")


def test_one_image(tmp_path: Path) -> None:
    touch(tmp_path / "a.png")
    assert [f.id for f in find_images(tmp_path / "a.png")] == ["a.png"]
