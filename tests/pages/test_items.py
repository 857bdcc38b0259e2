"""Ids, pictures and thumbnails of rows."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rpml.io.features import Features
from rpml.pages.items import (
    SIDES,
    Items,
    fitting_side,
    make_items,
    picture_reader,
    read_ids,
    read_texts,
    thumbnail,
)
from rpml.pages.report.section import Gallery
from rpml.runtime.errors import InputError


def draw(path: Path, seed: int = 0, side: int = 50) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, name in enumerate(("a/1.png", "a/2.png", "b/3.jpg")):
        draw(tmp_path / "images" / name, i)
    return tmp_path / "images"


def rows(n: int, ids: np.ndarray | None = None) -> Features:
    return Features(np.zeros((n, 2)), ids)


def test_rows_without_ids_are_numbered() -> None:
    assert make_items(3).ids == ["0", "1", "2"]


def test_a_nuisance_of_many_numbers_is_shown_by_ranges() -> None:
    """As the fit takes them: floats are numbers, whole or not, and integers are categories."""
    minutes = np.arange(60)
    assert len(set(make_items(60, nuisance=minutes.astype(float)).metadata["nuisance"])) == 4
    assert len(set(make_items(60, nuisance=minutes).metadata["nuisance"])) == 60


@pytest.mark.parametrize(
    "ids",
    [
        ["a/1.png", "a/2.png", "b/3.jpg"],
        ["a/1", "a/2", "b/3"],
        ["1", "2", "3"],
        ["1.png", "2.png", "3.jpg"],
        ["a/1.png#view2", "a/2.png#view1", "b/3.jpg"],
        None,
    ],
)
def test_pictures_are_found_by_id_or_order(folder: Path, ids: list[str] | None) -> None:
    found = make_items(3, ids, images=folder).images
    assert [p.name for p in found] == ["1.png", "2.png", "3.jpg"]


def test_a_row_may_have_no_picture(folder: Path) -> None:
    assert make_items(2, ["a/1.png", "zzz"], images=folder).images[1] is None


def test_links_out_of_the_folder_are_not_used(folder: Path, tmp_path: Path) -> None:
    outside = draw(tmp_path / "outside.png")
    (folder / "link.png").symlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    found = make_items(3, ["link.png", "up/outside.png", "a/1.png"], images=folder).images
    assert found[:2] == [None, None]


def test_an_exact_id_wins_over_a_base_name(folder: Path) -> None:
    draw(folder / "1.png")
    draw(folder / "c/1.png")
    found = make_items(3, ["1.png", "a/1.png", "c/1"], images=folder).images
    assert found == [folder / "1.png", folder / "a/1.png", folder / "c/1.png"]
    draw(folder / "3.png")
    assert make_items(2, ["3.jpg", "a/1"], images=folder).images[0] == folder / "b/3.jpg"


def test_a_base_name_of_two_pictures_is_refused(folder: Path) -> None:
    draw(folder / "c/1.png")
    with pytest.raises(
        InputError, match=r"a/1\.png and c/1\.png are both pictures of the id '1\.png'"
    ):
        make_items(2, ["1.png", "2.png"], images=folder)


def test_a_looping_link_is_a_row_without_a_picture(folder: Path) -> None:
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "a" / "round").symlink_to("round")
    items = make_items(2, ["loop.png", "a/1.png"], images=folder)
    assert items.images[1] == folder / "a/1.png"
    assert Gallery(items, [0, 1], 10**6).encoded(0) == ""
    assert picture_reader(items, folder)(0, False) is None


def test_what_does_not_fit_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"3 images .* 5 rows without ids"):
        make_items(5, images=folder)
    with pytest.raises(InputError, match=r"no image .* is named like an id"):
        make_items(2, ["x", "y"], images=folder)
    with pytest.raises(InputError, match="no such folder"):
        make_items(2, images=tmp_path / "nowhere")
    with pytest.raises(InputError, match="2 ids, the features have 3 rows"):
        make_items(3, ["x", "y"])
    with pytest.raises(InputError, match="1 label, the features have 3 rows"):
        make_items(3, labels=["a"])
    with pytest.raises(InputError, match="4 texts, the features have 3 rows"):
        make_items(3, texts="abcd")


def test_nan_is_no_label() -> None:
    assert make_items(2, labels=[np.nan, 3.0]).labeled_mask.tolist() == [False, True]


def test_ids_are_read_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ids.txt"
    path.write_text("one\n<b>two</b>\nthree, 3\n", encoding="utf8")
    assert read_ids(path, 3) == ["one", "<b>two</b>", "three, 3"]
    with pytest.raises(InputError, match="3 ids, the features have 4 rows"):
        read_ids(path, 4)
    path.write_text("one\none\n", encoding="utf8")
    with pytest.raises(InputError, match="'one' to 2 rows"):
        read_ids(path, 2)
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(InputError, match="cannot read"):
        read_ids(path, 1)


def test_thumbnails_stay_within_their_budget(tmp_path: Path) -> None:
    paths: list[Path | None] = [draw(tmp_path / f"{i}.png", i, 128) for i in range(12)]
    items = Items([str(i) for i in range(12)], None, paths)
    assert fitting_side(paths, 10_000_000) == SIDES[0]
    assert fitting_side(paths, 20_000) < SIDES[0]
    tight = Gallery(items, range(12), 20_000)
    assert sum(len(tight.encoded(i)) for i in range(12)) < 20_000
    assert tight.encoded(0) is tight.encoded(0)


def test_drawings_stay_sharp_and_bad_files_are_left_out(tmp_path: Path) -> None:
    drawing = np.random.default_rng(0).choice([30, 255], (28, 28)).astype(np.uint8)
    Image.fromarray(drawing).save(tmp_path / "drawing.png")
    shown = Image.open(BytesIO(thumbnail(tmp_path / "drawing.png", 96)))
    assert np.array_equal(np.asarray(shown)[..., 0], np.kron(drawing, np.ones((3, 3), int)))
    (tmp_path / "broken.png").write_bytes(b"not an image")
    assert thumbnail(tmp_path / "broken.png", 96) is None
    assert thumbnail(tmp_path / "missing.png", 96) is None
    assert Gallery(Items(["0"]), [0], 100).encoded(0) == ""


def test_ids_of_a_table_are_read_with_their_header(tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text('id\n"a, b"\nc\n', encoding="utf8")
    assert read_ids(path, 2) == ["a, b", "c"]


def test_texts_may_repeat_and_are_matched_by_id(tmp_path: Path) -> None:
    lines = tmp_path / "texts.txt"
    lines.write_text("lost card, help\nlost card, help\n", encoding="utf8")
    assert make_items(2, texts=read_texts(lines, rows(2))).texts == ["lost card, help"] * 2
    with pytest.raises(InputError, match="2 lines, the features have 3 rows"):
        read_texts(lines, rows(3))
    table = tmp_path / "texts.csv"
    table.write_text("id,text,other\nb,hello,1\na,bye,2\n", encoding="utf8")
    ids = np.array(["a", "b", "c"], object)
    items = make_items(3, ids, texts=read_texts(table, rows(3, ids)))
    assert items.texts == ["bye", "hello", ""]
    assert items.text(1) == "hello"
    assert make_items(2).text(1) == "1"


def test_texts_can_be_a_column_of_the_features(tmp_path: Path) -> None:
    features = tmp_path / "features.csv"
    features.write_text("id,x,y,said\na,1,2,hello\nb,3,4,bye\n", encoding="utf8")
    assert read_texts("said", rows(2), features) == ["hello", "bye"]
    with pytest.raises(InputError, match="no column 'spoken'"):
        read_texts("spoken", rows(2), features)
    with pytest.raises(InputError, match="no such file"):
        read_texts("said", rows(2), tmp_path / "features.npy")
