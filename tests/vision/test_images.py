"""Finding, decoding, resizing and augmenting images."""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rpml.runtime.errors import InputError
from rpml.vision.images import (
    AUGMENTATIONS,
    ImageError,
    Views,
    as_array,
    find_images,
    fit_long_side,
    load_rgb,
)
from tests.vision.conftest import noise_image


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


def halves(mode: str = "RGB") -> Image.Image:
    """Left half red, right half blue, 40 x 20."""
    image = Image.new("RGB", (40, 20), (255, 0, 0))
    image.paste((0, 0, 255), (20, 0, 40, 20))
    return image.convert(mode)


def color(image: Image.Image, x: int, y: int) -> np.ndarray:
    return np.asarray(image.convert("RGB"))[y, x].astype(int)


@pytest.mark.parametrize(
    ("orientation", "size", "corner"),
    [(1, (40, 20), "red"), (3, (40, 20), "blue"), (6, (20, 40), "red"), (8, (20, 40), "blue")],
)
def test_exif_orientation(
    tmp_path: Path, orientation: int, size: tuple[int, int], corner: str
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    halves().save(tmp_path / "a.jpg", exif=exif, quality=95)
    image = load_rgb(tmp_path / "a.jpg")
    assert image.size == size
    red, _, blue = color(image, 3, 3)
    assert (red > blue) == (corner == "red")


def test_damaged_exif_does_not_spoil_the_image(tmp_path: Path) -> None:
    halves().save(tmp_path / "a.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff nonsense")
    assert load_rgb(tmp_path / "a.jpg").size == (40, 20)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "YCbCr"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    suffix = ".jpg" if mode in ("CMYK", "YCbCr") else ".png"
    halves("L" if mode == "LA" else mode).convert(mode).save(tmp_path / f"a{suffix}")
    image = load_rgb(tmp_path / f"a{suffix}")
    assert image.mode == "RGB"
    left, right = color(image, 5, 10), color(image, 35, 10)
    if mode in ("P", "RGBA", "CMYK", "YCbCr"):
        assert left[0] > 180 > 80 > left[2]
        assert right[2] > 180 > 80 > right[0]
    else:
        assert len(set(left.tolist())) == 1


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.save(tmp_path / "a.png")
    assert (np.asarray(load_rgb(tmp_path / "a.png")) == 255).all()
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([0, 0, 0, 9, 9, 9])
    palette.save(tmp_path / "b.gif", transparency=0)
    assert (np.asarray(load_rgb(tmp_path / "b.gif")) == 255).all()


def test_sixteen_bit_grays_keep_their_brightness(tmp_path: Path) -> None:
    values = np.array([[0, 257 * 100, 65535]], np.uint16)
    for name in ("a.png", "a.tif"):
        Image.fromarray(values).save(tmp_path / name)
        assert np.asarray(load_rgb(tmp_path / name))[0, :, 0].tolist() == [0, 100, 255]


def test_thirty_two_bit_images(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)).save(tmp_path / "f.tif")
    assert np.asarray(load_rgb(tmp_path / "f.tif"))[0, :, 0].tolist() == [0, 128, 255]
    Image.fromarray(np.array([[0, 25700, 65535]], np.int32)).save(tmp_path / "i.tif")
    assert np.asarray(load_rgb(tmp_path / "i.tif"))[0, :, 0].tolist() == [0, 100, 255]


def test_animation_gives_its_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in ((255, 0, 0), (0, 255, 0))]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert color(load_rgb(tmp_path / "a.gif"), 2, 2).tolist() == [255, 0, 0]


def png_claiming(width: int, height: int) -> bytes:
    """A PNG whose header promises far more pixels than it holds."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0"))


@pytest.mark.parametrize("side", [12_000, 20_000, 100_000])
def test_decompression_bombs_are_refused_before_decoding(tmp_path: Path, side: int) -> None:
    (tmp_path / "bomb.png").write_bytes(png_claiming(side, side))
    with pytest.raises(ImageError, match="--max-pixels"):
        load_rgb(tmp_path / "bomb.png")


def test_the_pixel_limit_is_the_callers(tmp_path: Path) -> None:
    halves().save(tmp_path / "a.png")
    load_rgb(tmp_path / "a.png", max_pixels=800)
    with pytest.raises(ImageError, match="40 x 20"):
        load_rgb(tmp_path / "a.png", max_pixels=799)


def test_damaged_files_say_why(tmp_path: Path) -> None:
    noise_image(0, (200, 200)).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(ImageError, match="truncated"):
        load_rgb(tmp_path / "cut.jpg")
    (tmp_path / "text.jpg").write_text("dear diary")
    with pytest.raises(ImageError, match="not an image"):
        load_rgb(tmp_path / "text.jpg")
    (tmp_path / "empty.jpg").touch()
    with pytest.raises(ImageError, match="not an image"):
        load_rgb(tmp_path / "empty.jpg")
    with pytest.raises(ImageError, match="no such file"):
        load_rgb(tmp_path / "absent.jpg")


def test_mutated_files_never_raise_anything_else(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for suffix in (".jpg", ".png", ".gif", ".tif", ".webp"):
        path = tmp_path / f"a{suffix}"
        noise_image(1, (24, 24)).save(path)
        original = np.frombuffer(path.read_bytes(), np.uint8)
        for _ in range(40):
            data = original.copy()
            data[rng.integers(len(data), size=6)] = rng.integers(0, 256, 6)
            path.write_bytes(data.tobytes()[: int(rng.integers(1, len(data) + 1))])
            with suppress(ImageError):
                assert load_rgb(path, max_pixels=10_000).mode == "RGB"


def test_large_jpegs_are_decoded_at_a_fraction(tmp_path: Path) -> None:
    halves().resize((1600, 800)).save(tmp_path / "a.jpg")
    assert load_rgb(tmp_path / "a.jpg").size == (1600, 800)
    small = load_rgb(tmp_path / "a.jpg", enough=200)
    assert small.size == (400, 200)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((100, 50), (64, 32)),
        ((50, 100), (32, 64)),
        ((1, 1), (64, 64)),
        ((3, 3), (64, 64)),
        ((1000, 3), (64, 16)),
        ((60000, 1), (64, 16)),
    ],
)
def test_sizes(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert fit_long_side(size, 64, 16) == expected


def test_arrays_have_height_first() -> None:
    assert as_array(halves(), (30, 10)).shape == (10, 30, 3)


def test_an_eps_named_jpg_runs_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import EpsImagePlugin

    calls: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **o: calls.append(a))
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with Image.open(path) as image, suppress(Exception):
        image.load()
    assert len(calls) == 1  # as Pillow alone would
    with pytest.raises(ImageError, match="not an image"):
        load_rgb(path)
    assert len(calls) == 1


def test_a_pipe_named_jpg_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "photo.jpg")
    with pytest.raises(ImageError, match="not a regular file"):
        load_rgb(tmp_path / "photo.jpg")


PICTURE = noise_image(0, (60, 40))


def pixels(views: Views, image: Image.Image = PICTURE, name: str = "a") -> list[np.ndarray]:
    return [np.asarray(v) for v in views.all(image, name)]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(x.shape == y.shape and (x == y).all() for x, y in zip(a, b, strict=True))


def test_the_image_itself_comes_first() -> None:
    first, *views = pixels(Views(3))
    assert (first == np.asarray(PICTURE)).all()
    assert len(views) == 3
    assert not same(views[:1], views[1:2])


def test_no_views_by_default() -> None:
    assert len(pixels(Views())) == 1


def test_views_depend_on_seed_name_and_number_only() -> None:
    assert same(pixels(Views(2)), pixels(Views(3))[:3])
    assert not same(pixels(Views(2)), pixels(Views(2, seed=1)))
    assert not same(pixels(Views(2)), pixels(Views(2), name="b"))


@pytest.mark.parametrize("augmentation", sorted(AUGMENTATIONS))
def test_each_augmentation_can_be_used_alone(augmentation: str) -> None:
    results = pixels(Views(8, (augmentation,)))[1:]
    changed = [r for r in results if r.shape != (40, 60, 3) or (r != np.asarray(PICTURE)).any()]
    assert len(changed) >= (1 if augmentation == "flip" else 8)
    if augmentation == "crop":
        for r in results:
            height, width = r.shape[:2]
            assert 0.35 <= height * width / 2400 <= 1
    else:
        assert all(r.shape == (40, 60, 3) for r in results)


def test_flip_only_flips() -> None:
    flipped = np.asarray(PICTURE)[:, ::-1]
    for view in pixels(Views(6, ("flip",))):
        assert (view == np.asarray(PICTURE)).all() or (view == flipped).all()


def test_one_pixel_survives_every_augmentation() -> None:
    for view in pixels(Views(20), Image.new("RGB", (1, 1), (9, 9, 9))):
        assert view.shape == (1, 1, 3)


def test_wrong_augmentations_are_named() -> None:
    with pytest.raises(InputError, match="'zoom'"):
        Views(1, ("zoom",))
    with pytest.raises(InputError, match="repeat the image"):
        Views(1, ())
