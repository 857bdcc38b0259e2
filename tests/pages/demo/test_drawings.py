"""The demonstration: its data, its features, its table, its picture."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from rpml import RPML
from rpml.evaluation.metrics import recall_at_k
from rpml.evaluation.registry import METHODS
from rpml.io.datasets.demos import (
    TRAINING,
    Drawings,
    gradient_histograms,
    load_drawings,
    random_views,
)
from rpml.pages import demo
from rpml.pages.demo import COMPARED, LEARNED, judge, run, text
from rpml.pages.figures import RIGHT, WRONG, retrieval_figure


@pytest.fixture(scope="module")
def drawings():
    return load_drawings()


def every_fourth_character():
    chosen = []
    for part in load_drawings():
        keep = part.character % 4 == 0
        chosen.append(Drawings(part.images[keep], part.character[keep], part.alphabet[keep]))
    return tuple(chosen)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The demonstration on a quarter of its characters, to be quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rpml.io.datasets.demos.load_drawings", every_fourth_character)
        return run(
            demo.demonstrate_drawings, tmp_path_factory.mktemp("demo") / "made" / "here", seed=1
        )


# --- data and features ---------------------------------------------------------------------


def test_drawings_are_twenty_a_character_on_disjoint_alphabets(drawings):
    train, test = drawings
    assert set(train.alphabet) == set(TRAINING)
    assert not set(train.alphabet) & set(test.alphabet)
    assert not set(train.character) & set(test.character)
    for part in drawings:
        assert np.all(np.unique(part.character, return_counts=True)[1] == 20)
        assert part.images.shape == (len(part.character), 28, 28)
        assert np.all(part.images.any(axis=(1, 2)))
        assert 0.02 < part.images.mean() < 0.2


def bar(angle, side=28):
    """A thick line through the middle."""
    down, right = np.indices((side, side)) - (side - 1) / 2
    return np.abs(down * np.cos(angle) - right * np.sin(angle)) < 2


def test_a_turned_bar_moves_its_edges_to_the_turned_direction():
    """An edge's gradient stands across the bar: a bar turned by one bin moves one bin on."""
    images = np.stack([bar(k * np.pi / 8) for k in range(8)])
    strength = (gradient_histograms(images) ** 2).reshape(8, 49, 8).sum(axis=1)
    assert strength.argmax(axis=1).tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


def test_histograms_stay_where_the_ink_is_and_ignore_flat_images():
    images = np.zeros((2, 28, 28))
    images[0, 3:7, 3:7] = 1
    grid = gradient_histograms(images).reshape(2, 7, 7, 8).sum(axis=3)
    assert np.unravel_index(grid[0].argmax(), (7, 7)) == (1, 1)
    assert np.all(grid[0, 4:, 4:] < 1e-3 * grid[0, 1, 1])
    assert np.all(grid[1] == 0)


def test_images_that_do_not_fit_the_grid_are_refused():
    with pytest.raises(ValueError, match="multiple of cells=7"):
        gradient_histograms(np.zeros((2, 30, 30)))


def test_views_are_small_changes_of_the_same_drawing(drawings):
    images = drawings[0].images[::100].astype(float)
    views = random_views(images, np.random.default_rng(0))
    assert views.shape == images.shape
    assert views.min() >= 0
    assert views.max() <= 1 + 1e-6
    ink = views.sum(axis=(1, 2)) / images.sum(axis=(1, 2))
    assert np.all((ink > 0.6) & (ink < 1.6))
    assert not np.allclose(views, images)
    assert np.array_equal(views, random_views(images, np.random.default_rng(0)))
    plain, turned = gradient_histograms(images), gradient_histograms(views)
    nearest = np.argmax(turned @ (plain / np.linalg.norm(plain, axis=1, keepdims=True)).T, axis=1)
    assert np.mean(nearest == np.arange(len(images))) > 0.9


def test_table_has_every_method_with_sound_scores(result):
    methods = [row["method"] for row in result["measured"]]
    titles = [METHODS[name].title for name in COMPARED[:-1]]
    assert methods == [*titles, LEARNED, demo.WITH_VIEWS]
    assert [row["dim"] for row in result["measured"]] == [392] + [demo.DRAWINGS_SIZE] * 6
    for row in result["measured"]:
        recall = [row[f"recall@{k}"] for k in (1, 2, 4, 8)]
        assert 0.3 < recall[0] < recall[1] < recall[2] < recall[3] < 1
        assert 0.4 < row["nmi"] < 1


@pytest.mark.slow
def test_on_all_drawings_learning_beats_pca(tmp_path):
    measured = run(demo.demonstrate_drawings, tmp_path)["measured"]
    recall = {row["method"]: row["recall@1"] for row in measured}
    assert recall["RPML"] > recall["PCA"] > recall["random projection"]


def test_files_are_written_and_can_be_read(result):
    assert result["picture"] is not None
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    stored = json.loads(Path(result["table"]).read_text(encoding="utf8"))
    assert stored["measured"][-1]["recall@1"] == result["measured"][-1]["recall@1"]
    assert RPML.load(result["model"]).components_.shape[0] == demo.DRAWINGS_SIZE


def test_verdict_is_one_honest_sentence(result):
    said = result["verdict"]
    assert said.startswith("RPML ")
    assert said.endswith(".")
    for row in (result["measured"][0], *result["measured"][-2:]):
        assert f"{100 * row['recall@1']:.1f}" in said


def row_of(name, recall):
    return {"method": name, "dim": 8, "recall@1": recall}


NOISE = {"raw": 0.2, "PCA": 0.4, "RPML": 0.2}


@pytest.mark.parametrize(
    ("learned", "alternative", "opening"),
    [
        ("good", "bad", "RPML helped"),
        ("bad", "good", "RPML did not help"),
        ("good", "good", "RPML made no difference"),
    ],
)
def test_verdict_follows_the_hits(learned, alternative, opening):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 10)
    centers = rng.normal(size=(30, 8))
    kinds = {
        "good": centers[y] + 0.1 * rng.normal(size=(300, 8)),
        "bad": rng.normal(size=(300, 8)),
    }
    shown = {"raw": "good", "PCA": alternative, "RPML": learned, demo.WITH_VIEWS: "good"}
    embeddings = {name: kinds[kind] for name, kind in shown.items()}
    recall = {"good": 1.0, "bad": 0.05}
    rows = [row_of(name, recall[kind]) for name, kind in shown.items()]
    assert judge(rows, embeddings, y).startswith(opening)


def test_the_gain_is_the_difference_of_the_two_recalls():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), np.arange(2, 22))  # classes of unequal size
    noise = rng.normal(size=(len(y), 6))
    embeddings = {name: np.eye(20)[y][:, :6] + s * noise for name, s in NOISE.items()}
    rows = [row_of(name, recall_at_k(Z, y, ks=(1,))[1]) for name, Z in embeddings.items()]
    figures = r"is ([\d.]+) against ([\d.]+) .* gain of ([+-][\d.]+)"
    learned, best, gain = map(float, re.search(figures, judge(rows, embeddings, y)).groups())
    assert gain == pytest.approx(learned - best, abs=0.11)


def test_the_text_has_the_table_the_verdict_and_the_files(result):
    shown = text(result)
    for word in ("R@1", "NMI", "half-whitened", "neighbors.png", result["verdict"]):
        assert word in shown


def test_without_the_extra_the_run_goes_on_and_says_why(tmp_path, monkeypatch, drawings):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = []
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(len(drawings[1].images), 4))
    rows = [row_of(name, 0.5) for name in ("raw features", LEARNED)]
    embeddings = {row["method"]: Z for row in rows}
    assert demo._draw(tmp_path, drawings[1], embeddings, rows, 0, said.append) is None
    assert not list(tmp_path.iterdir())
    assert said == ["No picture: the picture needs the extra 'report': pip install 'rpml[report]'."]


# --- the picture ---------------------------------------------------------------------------


def test_frames_are_green_for_right_and_red_for_wrong(tmp_path):
    from matplotlib.image import imread

    images = np.zeros((4, 28, 28))
    classes = np.array([0, 0, 1, 1])
    path = tmp_path / "rows.png"
    found = {"first": np.array([[1, 1]]), "second": np.array([[2, 1]])}
    # a width at which a side of a picture is 100 pixels: query, two panels of two, two spaces
    width = 1.06 + 4 * 1.06 + 0.35 + 0.35
    retrieval_figure(images.__getitem__, classes, np.array([0]), found, width).savefig(
        path, dpi=100
    )
    pixels = (imread(path)[..., :3] * 255).round().astype(int).reshape(-1, 3)
    right, wrong = (np.sum(np.all(np.abs(pixels - c) <= 1, axis=1)) for c in (RIGHT, WRONG))
    frame = 100 * 100 - 88 * 88
    assert right == pytest.approx(3 * frame, rel=0.1)
    assert frame < wrong < 1.5 * frame  # and a corner
