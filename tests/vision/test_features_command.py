"""rpml features, as a user runs it."""

from __future__ import annotations

import csv
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rpml.io.features import read_features
from rpml.runtime.errors import InputError
from rpml.runtime.files import locked
from rpml.vision.images import AUGMENTATIONS
from tests.cli.conftest import Run
from tests.labels import read_labels
from tests.vision.conftest import noise_image

rpml = Run()


class Tool:
    """`rpml features PHOTOS --backbone NETWORK -o out/features.npy --scales 64`, and more."""

    def __init__(self, photos: Path, network: Path, out: Path) -> None:
        self.photos, self.network, self.out = photos, network, out
        out.mkdir()

    def __call__(self, *more: Any, code: int = 0, name: str = "features.npy") -> Any:
        line = ["features", self.photos, "--backbone", self.network, "-o", f"{self.out}/{name}"]
        return rpml.json(*line, "--scales", 64, *more, code=code)

    def rows(self, name: str) -> list[dict[str, str]]:
        with open(self.out / name, encoding="utf8", newline="") as file:
            return list(csv.DictReader(file))

    def files(self) -> list[str]:
        return sorted(p.name for p in self.out.iterdir())


@pytest.fixture
def tool(photos: Path, network: Path, tmp_path: Path) -> Tool:
    return Tool(photos, network, tmp_path / "out")


def test_a_looping_link_is_skipped(tool: Tool) -> None:
    os.symlink("loop.png", tool.photos / "train" / "loop.png")
    os.symlink("round", tool.photos / "round")
    summary = tool(code=3)
    assert (summary["images"], summary["left_out"]) == (15, 1)
    assert [row["id"] for row in tool.rows("features.failures.csv")] == ["train/loop.png"]


def test_features_and_ids(tool: Tool) -> None:
    summary = tool()
    assert summary["rows"] == summary["images"] == 15
    assert summary["dim"] == 6
    assert summary["images_per_second"] > 0
    assert tool.files() == ["features.ids.csv", "features.npy", "features.npy.manifest.json"]
    features = read_features(tool.out / "features.npy")
    assert features.values.shape == (15, 6)
    assert features.ids is not None
    assert list(features.ids) == [r["id"] for r in tool.rows("features.ids.csv")]
    assert features.ids[0] == "test/c/0.png"


@pytest.mark.parametrize("name", ["f.npz", "f.parquet", "f.csv", "shards/"])
def test_other_outputs_hold_the_same(tool: Tool, name: str, tmp_path: Path) -> None:
    tool()
    expected = read_features(tool.out / "features.npy")
    tool.out = tmp_path / "other"
    tool.out.mkdir()
    tool(name=name)
    tool("--force", name=name)
    found = read_features(tool.out / name)
    assert np.allclose(found.values, expected.values, atol=1e-6)
    assert found.ids is not None
    assert list(found.ids) == list(expected.ids)  # type: ignore[arg-type]


def test_existing_outputs_are_kept(tool: Tool) -> None:
    tool()
    assert "exists" in tool(code=2)["error"]
    tool("--force")


def test_two_outputs_fit_into_one_folder(tool: Tool) -> None:
    tool("--folder-labels", "--views", 1)
    before = {name: (tool.out / name).read_bytes() for name in tool.files()}
    tool("--folder-labels", name="second.npy")
    tool("--folder-labels", name="third.npz")
    assert [name for name in tool.files() if name.startswith("second.")] == [
        "second.ids.csv",
        "second.labels.csv",
        "second.npy",
        "second.npy.manifest.json",
    ]
    assert "third.ids.csv" not in tool.files()  # the archive holds them
    assert before == {name: (tool.out / name).read_bytes() for name in before}
    assert "choose another output" in tool(name="second.parquet", code=2)["error"]


def test_ids_are_replaced_only_with_force(tool: Tool) -> None:
    ids = tool.out / "features.ids.csv"
    ids.write_text("mine")
    assert "features.ids.csv exists" in tool(code=2)["error"]
    tool("--force")
    written = ids.read_text()
    ids.write_text("mine")
    assert "choose another output" in tool("--resume", code=2)["error"]
    assert ids.read_text() == "mine"
    ids.unlink()
    tool("--resume")
    assert ids.read_text() == written


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("table", ["labels", "groups", "failures"])
def test_foreign_files_are_never_touched(tool: Tool, table: str, force: list[str]) -> None:
    name = f"features.{table}.csv"
    (tool.out / name).write_text("mine")
    for options in ([], ["--folder-labels"], ["--views", 1]):
        assert name in tool(*options, *force, code=2)["error"]
    assert tool.files() == [name]
    assert (tool.out / name).read_text() == "mine"


def test_a_table_corrected_by_hand_is_not_overwritten(tool: Tool) -> None:
    tool("--folder-labels")
    tool("--folder-labels", "--force")
    (tool.out / "features.labels.csv").write_text("id,label\nmine\n")
    assert "features.labels.csv" in tool("--folder-labels", "--force", code=2)["error"]
    assert "features.labels.csv" in tool("--force", code=2)["error"]
    assert (tool.out / "features.labels.csv").read_text() == "id,label\nmine\n"


def spoil(photos: Path) -> None:
    (photos / "text.jpg").write_text("dear diary")
    noise_image(1, (200, 200)).save(photos / "cut.jpg")
    (photos / "cut.jpg").write_bytes((photos / "cut.jpg").read_bytes()[:3000])
    os.symlink(photos / "nowhere", photos / "gone.png")
    noise_image(2, (3, 2)).save(photos / "tïny name.png")
    noise_image(3, (300, 1)).save(photos / "thin.png")
    noise_image(4, (250, 200)).save(photos / "huge.png")


def test_bad_files_are_listed_and_the_rest_goes_on(tool: Tool) -> None:
    spoil(tool.photos)
    summary = tool("--max-pixels", 45000, code=3)
    assert summary["left_out"] == 4
    assert summary["rows"] == 17
    failures = {r["id"]: r["reason"] for r in tool.rows("features.failures.csv")}
    assert set(failures) == {"text.jpg", "cut.jpg", "gone.png", "huge.png"}
    assert "--max-pixels" in failures["huge.png"]
    assert "truncated" in failures["cut.jpg"]
    ids = [r["id"] for r in tool.rows("features.ids.csv")]
    assert "tïny name.png" in ids
    assert len(np.load(tool.out / "features.npy")) == len(ids) == 17
    for name in failures:
        (tool.photos / name).unlink()
    tool("--force")
    assert "features.failures.csv" not in tool.files()


def test_strict_stops(tool: Tool) -> None:
    spoil(tool.photos)
    error = tool("--strict", code=2)["error"]
    assert any(name in error for name in ("text.jpg", "cut.jpg", "gone.png"))
    assert "features.npy" not in tool.files()


def test_nothing_usable(tool: Tool) -> None:
    for path in tool.photos.rglob("*.png"):
        path.write_text("no")
    assert "none of 15 images" in tool(code=2)["error"]
    assert len(tool.rows("features.failures.csv")) == 15


def test_views_and_groups(tool: Tool) -> None:
    assert tool("--views", 2)["rows"] == 45
    groups = tool.rows("features.groups.csv")
    assert [g["group"] for g in groups] == [str(i) for i in range(15) for _ in range(3)]
    assert [g["id"] for g in groups] == [r["id"] for r in tool.rows("features.ids.csv")]
    first = np.load(tool.out / "features.npy")
    for augmentation in AUGMENTATIONS:
        tool("--views", 2, "--augmentations", augmentation, "--force")
        assert not np.array_equal(np.load(tool.out / "features.npy"), first)
    tool("--views", 2, "--force")
    assert np.array_equal(np.load(tool.out / "features.npy"), first)
    assert (
        "no augmentation 'zoom'" in tool("--views", 1, "--augmentations", "zoom", code=2)["error"]
    )


def test_averaged_views(tool: Tool) -> None:
    assert tool("--views", 2, "--average-views")["rows"] == 15
    assert not (tool.out / "features.groups.csv").exists()
    averaged = np.load(tool.out / "features.npy")
    tool("--force")
    assert not np.allclose(np.load(tool.out / "features.npy"), averaged, atol=1e-3)
    assert "give --views" in tool("--average-views", "--force", code=2)["error"]


def test_fit_takes_the_groups(tool: Tool) -> None:
    tool("--views", 3)
    line = ["fit", "features.npy", "-o", "model.rpml", "--dim", 3, "--neighbors", 5]
    line += ["--groups", "features.groups.csv"]
    paths = [tool.out / part if "." in str(part) else part for part in line]
    assert rpml.json(*paths)["rows"] == 60


def test_folder_labels(tool: Tool) -> None:
    tool("--folder-labels")
    assert {r["label"] for r in tool.rows("features.labels.csv")} == {"a", "b", "c"}


def test_a_table_that_a_failure_left_of_an_earlier_run_is_refused_and_removed(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("--folder-labels")
    labels = tool.out / "features.labels.csv"
    ids = read_features(tool.out / "features.npy").ids

    def unlink(*args: object, **options: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        assert "Input/output" in tool("--force", "--views", 1, code=2)["error"]
    assert labels.exists()
    with pytest.raises(InputError, match="other features"):
        read_labels(labels, 15, ids)
    tool("--resume", "--views", 1)
    assert not labels.exists()


def test_shards_have_their_tables_in_the_folder(tool: Tool) -> None:
    tool("--folder-labels", "--views", 1, name="shards/")
    folder = tool.out / "shards"
    assert tool.files() == ["shards"]
    names = {"rpml.json", "part-00000.npy", "part-00000.ids.csv", "groups.csv", "labels.csv"}
    assert {path.name for path in folder.iterdir()} == names
    features = read_features(folder)
    assert len(read_labels(folder / "labels.csv", 30, features.ids)) == 30
    assert "images_per_second" not in tool(
        "--folder-labels", "--views", 1, "--resume", name="shards/"
    )
    (folder / "groups.csv").write_text("mine")
    os.utime(folder / "groups.csv", ns=(2**62, 2**62))
    assert "groups.csv is there" in tool("--force", name="shards/", code=2)["error"]


def test_whitening_is_learned_on_the_training_split_only(tool: Tool) -> None:
    tool("--whiten", 4, "--whiten-on", "train/*")
    whitened = np.load(tool.out / "features.npy")
    stored = np.load(tool.out / "features.whitening.npz")
    for path in (tool.photos / "test").rglob("*.png"):
        noise_image(77, (33, 50)).save(path)
    tool("--whiten", 4, "--whiten-on", "train/*", "--force")
    again = np.load(tool.out / "features.npy")
    assert np.array_equal(np.load(tool.out / "features.whitening.npz")["matrix"], stored["matrix"])
    assert np.array_equal(again[5:], whitened[5:])
    assert not np.array_equal(again[:5], whitened[:5])
    tool("--whitening", tool.out / "features.whitening.npz", "--force")
    assert np.allclose(np.load(tool.out / "features.npy"), again, atol=1e-6)


def test_whitening_errors_come_before_the_work(tool: Tool) -> None:
    assert "more images than dimensions" in tool("--whiten", 15, code=2)["error"]
    assert "no image matches" in tool("--whiten", 2, "--whiten-on", "x*", code=2)["error"]
    assert "give one" in tool("--whiten", 2, "--whitening", "w.npz", code=2)["error"]
    assert "no such file" in tool("--whitening", "w.npz", code=2)["error"]


def test_wrong_usage(tool: Tool, tmp_path: Path) -> None:
    assert "--scales must be positive integers" in tool("--scales", "big", code=2)["error"]
    assert "pooling must be" in tool("--pool", "max", code=2)["error"]
    line = ["features", tool.photos, "--backbone", tool.network, "-o", "-"]
    assert "standard output" in rpml.refused(*line)
    (tmp_path / "empty").mkdir()
    tool.photos = tmp_path / "empty"
    assert "holds no images" in tool(code=2)["error"]


def test_a_killed_run_continues_with_the_same_result(tool: Tool, tmp_path: Path) -> None:
    for i in range(600):
        noise_image(i, (30, 20)).save(tool.photos / f"{i:03d}.png")
    tool()
    whole, tool.out = tool.out, tmp_path / "killed"
    tool.out.mkdir()
    line = [Path(sys.executable).with_name("rpml"), "features", tool.photos, "--scales", "64"]
    line += ["--backbone", tool.network, "-o", tool.out / "features.npy"]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    parts = tool.out / "features.npy.parts"
    deadline = time.monotonic() + 60
    while not list(parts.glob("part-*")) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    locks = sorted(path.name for path in tool.out.glob(".features.*.rpml-new"))
    assert len(locks) == 2
    assert tool.files() == [*locks, "features.npy.parts"]
    assert "--resume" in tool(code=2)["error"]
    assert "scales" in tool("--resume", "--scales", 80, code=2)["error"]
    assert "images_per_second" not in tool("--resume")
    assert not parts.exists()
    before = (tool.out / "features.npy").stat().st_mtime_ns
    assert "images_per_second" not in tool("--resume")  # it is complete
    assert (tool.out / "features.npy").stat().st_mtime_ns == before
    for name in ("features.npy", "features.ids.csv"):
        assert (tool.out / name).read_bytes() == (whole / name).read_bytes()
    manifests = []
    for folder in (tool.out, whole):
        manifest = json.loads((folder / "features.npy.manifest.json").read_text(encoding="utf8"))
        manifests.append(manifest)
    assert manifests[0] == manifests[1]


def test_two_runs_of_one_name_do_not_mix_their_tables(tool: Tool) -> None:
    with locked(tool.out / "features.ids.csv"):  # as a run of features.npz holds it
        assert "features.ids.csv is being written by process" in tool(code=2)["error"]
    assert tool.files() == []
