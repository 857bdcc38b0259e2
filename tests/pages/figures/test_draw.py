"""Figures for papers from Python: formats, sizes, names and colors."""

import re
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rpml.pages.figures import (
    NAMES,
    PALETTE,
    RIGHT,
    TILE,
    WRONG,
    FigureOptions,
    draw_figures,
    pictures_of,
)
from rpml.runtime.errors import InputError


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All figures of 80 rows in all formats."""
    folder = tmp_path_factory.mktemp("figures")
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 8)
    X = rng.normal(size=(10, 12))[y] + 0.9 * rng.normal(size=(80, 12))
    names = np.array([f"_bird ${c}$ & <co>" for c in y])
    paths = [folder / f"{c}.jpg" for c in y]
    for c in range(10):
        Image.new("RGB", (30, 20), (c * 20, 100, 100)).save(folder / f"{c}.jpg")
    options = FigureOptions(("pdf", "svg", "png"), width=3.0, dpi=100, n_queries=3, max_images=25)
    spaces = {"raw": X, "mine": X[:, :8]}
    written = draw_figures(spaces, folder / "out", names, pictures_of(paths), options)
    expected = {f"{name}.{kind}" for name in NAMES for kind in options.formats}
    assert {path.name for path in written} == expected
    return folder / "out"


def test_every_format_has_the_width(drawn: Path) -> None:
    for path in drawn.iterdir():
        data = path.read_bytes()
        if path.suffix == ".png":
            assert Image.open(path).size[0] == 300
        elif path.suffix == ".svg":
            assert 'width="216pt"' in data.decode("utf8")
        else:
            assert data.startswith(b"%PDF")
            assert re.search(rb"/MediaBox \[ ?0 0 216", data)


def test_class_names_are_text_as_they_are(drawn: Path) -> None:
    for name in ("map", "retrieval-successes"):
        svg = (drawn / f"{name}.svg").read_text(encoding="utf8")
        for title in ("raw", "mine"):
            assert f">{title}</text>" in svg
        assert ">_bird" in svg
    assert "_bird $3$ &amp; &lt;co&gt;" in (drawn / "map.svg").read_text(encoding="utf8")


def test_successes_are_mostly_green_and_failures_red(drawn: Path) -> None:
    shares = []
    for name in ("successes", "failures"):
        pixels = np.asarray(Image.open(drawn / f"retrieval-{name}.png").convert("RGB"), int)
        panel = pixels[:, pixels.shape[1] // 2 :].reshape(-1, 3)  # that of the last space
        near = [np.abs(panel - color).max(axis=1) <= 2 for color in (RIGHT, WRONG)]
        shares.append([int(part.sum()) for part in near])
    assert shares[0][0] > 2 * shares[0][1]
    assert shares[1][1] > 2 * shares[1][0]


@pytest.mark.parametrize(
    "wrong", [{"formats": ("gif",)}, {"formats": ()}, {"width": 0}, {"dpi": 9**9}]
)
def test_wrong_options_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError):
        FigureOptions(**wrong)


# --- colors -----------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
SIMULATED = {
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
}
LAB = np.array([[0.4122, 0.5363, 0.0515], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
OKLAB = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])


def perceived(colors: list[str], deficiency: str) -> np.ndarray:
    """Oklab coordinates of colors as a reader with a deficiency sees them."""
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.array(SIMULATED[deficiency]).T, 0, 1)
    return np.cbrt(seen @ LAB.T) @ OKLAB.T


def palettes() -> dict[str, list[str]]:
    script = files("rpml.pages").joinpath("static/legend.js").read_text(encoding="utf8")
    found = re.findall(r"const (LIGHT|DARK) = \[(.*?)\]", script, re.DOTALL)
    return {name: re.findall(r"#\w{6}", colors) for name, colors in found}


@pytest.mark.parametrize("deficiency", SIMULATED)
@pytest.mark.parametrize("theme", ["LIGHT", "DARK"])
def test_colors_stay_apart_without_red_or_green_cones(theme: str, deficiency: str) -> None:
    lab = perceived(palettes()[theme], deficiency)
    gaps = np.linalg.norm(lab[:, None] - lab, axis=2) + np.eye(len(lab))
    assert gaps.min() > 0.1, np.unravel_index(gaps.argmin(), gaps.shape)
    assert len(lab) == 8


def test_the_figures_have_the_colors_of_the_pages() -> None:
    assert list(PALETTE) == palettes()["LIGHT"]


def test_names_of_classes_are_wrapped_before_they_are_cut() -> None:
    from rpml.pages.figures import _wrapped

    assert _wrapped("001.Black_footed_Albatross", 10) == "001.Black_\nfooted_\nAlbatross"
    assert _wrapped("card", 10) == "card"
    assert _wrapped("Albatross_of_the_far_southern_oceans_and_islands", 9).endswith("…")
    assert max(map(len, _wrapped("Albatrosses, wandering ones", 9).split("\n"))) == 9


def test_rows_without_a_label_are_no_class(tmp_path: Path) -> None:
    """They are gray on the map, and neither queries nor answers."""
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee"], 20)
    X = rng.normal(size=(2, 6))[(y == "bee").astype(int)] + 0.1 * rng.normal(size=(40, 6))
    y = np.where(np.arange(40) % 4 == 0, "-1", y)
    asked: list[int] = []

    def pictures(rows: list[int], side: int) -> np.ndarray:
        asked.extend(rows if side == TILE else [])
        return np.zeros((len(rows), side, side, 3), np.uint8)

    options = FigureOptions(("svg",), width=3.0, n_queries=2)
    draw_figures({"raw": X}, tmp_path, y, pictures, options)
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", (tmp_path / "map.svg").read_text())
    assert shown == ["raw", "ant", "bee", "none"]
    assert asked
    assert not set(asked) & set(np.flatnonzero(y == "-1").tolist())


def test_classes_whose_shortened_names_are_equal_stay_apart(tmp_path: Path) -> None:
    """And so do a class called "none" and the rows without a label."""
    X = np.random.default_rng(0).normal(size=(40, 6))
    long = ["a" * 45 + "1", "a" * 45 + "2", "none", ""]
    draw_figures({"raw": X}, tmp_path, np.repeat(long, 10), None, FigureOptions(("svg",), 3.0))
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", (tmp_path / "map.svg").read_text())
    assert sorted(shown) == ["a" * 39 + "…", "a" * 39 + "…", "none", "none", "raw"]
