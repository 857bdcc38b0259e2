"""rpml benchmark and rpml figures, from images to results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.conftest import Run
from tests.vision.conftest import noise_image, tiny_network

invoke = Run().json


@pytest.fixture
def cub(tmp_path: Path) -> Path:
    """A miniature CUB: 8 classes of 8 images, half of them training classes."""
    root = tmp_path / "CUB_200_2011"
    names, labels = [], []
    for number in (1, 2, 50, 100, 101, 102, 150, 200):
        folder = root / "images" / f"{number:03d}.Bird"
        folder.mkdir(parents=True)
        base = np.asarray(noise_image(number, (40, 30)), float)
        for i in range(8):
            pixels = 0.7 * base + 0.3 * np.asarray(noise_image(1000 * number + i, (40, 30)))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
            names.append(f"{len(names) + 1} {number:03d}.Bird/{i}.png\n")
            labels.append(f"{len(labels) + 1} {number}\n")
    (root / "images.txt").write_text("".join(names))
    (root / "image_class_labels.txt").write_text("".join(labels))
    return root


@pytest.fixture
def network(tmp_path: Path) -> Path:
    return tiny_network(tmp_path / "tiny.onnx")


METHODS = ("--methods", "raw,pca,rpml", "--dim", 4)


def test_from_images_to_figures(cub: Path, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = ["benchmark", "cub", "--root", cub.parent, "--backbone", network, "-o", out]
    line += [*METHODS, "--scales", 64]
    assert "5,864 training images" in invoke(*line, code=2)["error"]
    fields = invoke(*line, "--incomplete")
    assert fields["rows"] == {"train": 32, "test": 32}
    assert fields["classes"] == {"train": 4, "test": 4}
    assert [r["method"] for r in fields["measured"]] == ["raw", "pca", "rpml"]
    assert len(fields["published"]) == 14
    assert fields["origin"]["recipe"]["scales"] == [64]
    assert len(fields["origin"]["backbone"]["sha256"]) == 64
    assert json.loads((out / "results.json").read_text())["measured"] == fields["measured"]
    assert "| *sRPML* |" in (out / "results.md").read_text()
    grid = Image.open(out / "figures" / "quad-grid.png")
    assert grid.size == (1400, 1400)  # 7 inches at 200 dpi
    assert "quad-grid.png" in fields["figures"]

    stamp = (out / "features.npy").stat().st_mtime_ns
    again = invoke(*line, "--incomplete", "--no-figures")
    assert (out / "features.npy").stat().st_mtime_ns == stamp
    assert again["measured"] == fields["measured"]
    assert "other data or settings" in invoke(*line, "--incomplete", "--seed", 1, code=2)["error"]
    invoke(*line, "--incomplete", "--seed", 1, "--force", "--no-figures")

    (cub / "images" / "200.Bird" / "3.png").write_text("bad")
    fewer = invoke(*line, "--incomplete", "--force", "--no-figures")
    assert fewer["origin"]["left_out"] == 1
    assert fewer["rows"] == {"train": 32, "test": 31}
    (cub / "images" / "200.Bird" / "3.png").unlink()
    assert "1 of 64 images are missing" in invoke(*line, "--incomplete", code=2)["error"]


def test_from_descriptors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(1, 13), 20)
    X = rng.normal(size=(13, 10))[y] + 0.4 * rng.normal(size=(240, 10))
    np.savez(tmp_path / "d.npz", rmac=X.astype(np.float16), y=y, train=y <= 6)
    line = ["benchmark", "cub", "--features", tmp_path / "d.npz", "--array", "rmac"]
    fields = invoke(*line, *METHODS, "-o", tmp_path / "out")
    assert fields["rows"] == {"train": 120, "test": 120}
    assert fields["figures"] == []
    whitened = invoke(*line, *METHODS, "--whiten", 6, "-o", tmp_path / "white")
    assert whitened["measured"][0]["dim"] == 6


def test_wrong_usage(tmp_path: Path, network: Path) -> None:
    out = ("-o", tmp_path / "out")
    assert "no dataset 'dogs'" in invoke("benchmark", "dogs", *out, code=2)["error"]
    assert "--root and --backbone" in invoke("benchmark", "cub", *out, code=2)["error"]
    line = ("benchmark", "cub", "--backbone", network, *out)
    assert "give --root and --backbone" in invoke(*line, code=2)["error"]
    assert "does not hold CUB" in invoke(*line, "--root", tmp_path, code=2)["error"]
    assert "no method 'x'" in invoke(*line, "--methods", "x", code=2)["error"]


def test_figures_of_any_image_set(cub: Path, network: Path, tmp_path: Path) -> None:
    invoke(
        *("features", cub / "images", "--backbone", network, "--scales", 64, "--folder-labels"),
        *("-o", tmp_path / "features.npy"),
    )
    line = ["figures", tmp_path / "features.npy", "--images", cub / "images"]
    line += ["-o", tmp_path / "figures"]
    drawn = invoke(*line, "--most", 30, "--width", "2.54cm", "--dpi", 100)["figures"]
    assert [Path(p).name for p in drawn] == ["map.png", "quad-grid.png"]
    assert Image.open(tmp_path / "figures" / "quad-grid.png").size == (100, 100)
    assert "exists" in invoke(*line, code=2)["error"]
    names = invoke(*line, "--labels", tmp_path / "features.labels.csv", "--force")["figures"]
    assert any("retrieval" in name for name in names)
    elsewhere = ["figures", tmp_path / "features.npy", "--images", cub]
    assert "is named like an id" in invoke(*elsewhere, "-o", tmp_path / "f", code=2)["error"]
    for option in (["--width", "wide"], ["--format", "gif"], ["--width", "0cm"]):
        invoke(*line, "--force", *option, code=2)
    assert not (tmp_path / "f").exists()
