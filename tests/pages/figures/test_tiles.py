"""Retrieval rows by rule, the quad-grid, the framework figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.figures import pictures_of, quad_grid
from rpml.pages.items import retrieval_queries
from rpml.pages.layout import grid_order, layout
from scripts.framework import framework_figure, tell_story


def points(noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(10), 8)
    return rng.normal(size=(10, 12))[y] + noise * rng.normal(size=(80, 12)), y


def nearest(Z: np.ndarray) -> np.ndarray:
    return nearest_neighbors(Z, 4, metric="cosine").indices


def literal_right(Z: np.ndarray, y: np.ndarray, query: int) -> int:
    """How many of the four nearest are of the query's class."""
    unit = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    order = [i for i in np.argsort(-(unit @ unit[query]), kind="stable") if i != query]
    return sum(y[i] == y[query] for i in order[:4])


def test_queries_follow_the_rule() -> None:
    Z, y = points(0.9)
    right = np.array([literal_right(Z, y, i) for i in range(80)])
    chosen = retrieval_queries(nearest(Z), y, 4)
    for queries, fits in zip(chosen, (right >= 3, right <= 1), strict=True):
        assert len(set(y[queries])) == len(queries) == 4
        for query in queries:
            assert fits[query]
            assert not fits[(y == y[query]) & (np.arange(80) < query)].any()


def test_no_failures_no_queries() -> None:
    Z, y = points(0.01)
    successes, failures = retrieval_queries(nearest(Z), y, 4)
    assert (len(successes), len(failures)) == (4, 0)
    few = np.arange(80) % 40  # two images per class: nothing can be right three times
    assert len(retrieval_queries(nearest(Z), few, 4)[1]) == 0


def test_retrieval_shows_one_query_per_label() -> None:
    labels = np.repeat(["a", "b", "c", "alone"], [8, 8, 8, 1])
    nearest = np.array(
        [
            [j for j in range(25) if j != i and labels[j] == labels[i]][:6] + [0] * 6
            for i in range(24)
        ]
        + [[0] * 12]
    )[:, :6]
    nearest[8:16] = 20  # everything labeled b fails
    successes, failures = retrieval_queries(nearest, labels, 5)
    assert sorted(labels[successes]) == ["a", "c"]
    assert labels[failures].tolist() == ["b"]


def test_unreadable_images_are_gray(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no")
    assert (pictures_of([tmp_path / "a.png", tmp_path / "b.png"])([0, 1], 8) == 128).all()


def test_grid_puts_similar_rows_together() -> None:
    Z, y = points(0.1)
    rng = np.random.default_rng(0)
    order, side = grid_order(layout(Z, rng), 50, rng)
    assert side == 8
    assert len(set(order.tolist())) == 64
    classes = y[order].reshape(8, 8)
    touching = np.mean(
        np.r_[(classes[1:] == classes[:-1]).ravel(), (classes[:, 1:] == classes[:, :-1]).ravel()]
    )
    assert touching > 0.5  # a tenth by chance


def test_grid_of_few_and_of_many() -> None:
    rng = np.random.default_rng(0)
    assert grid_order(np.eye(2), 50, rng)[1] == 1
    order, side = grid_order(rng.random((80, 2)), 5, rng)
    assert side == 5
    assert len(order) == 25


def test_quad_grid_is_laid_out_row_by_row() -> None:
    tiles = np.arange(4, dtype=np.uint8)[:, None, None, None] * np.ones((1, 3, 3, 3), np.uint8)
    picture = quad_grid(tiles, 2)
    assert picture.shape == (7, 7, 3)
    assert picture[0, 0, 0] == 0
    assert picture[0, 4, 0] == 1
    assert picture[4, 0, 0] == 2
    assert picture[3, 0, 0] == 255


def test_framework_figure_tells_a_real_fit(tmp_path: Path) -> None:
    story = tell_story()
    assert len(story.images) == len(story.labels) == len(story.before) == len(story.after)
    assert story.loss[-1] < story.loss[0]
    a, p, n = story.labels[story.triplet]
    assert a == p != n
    framework_figure(tmp_path / "framework.svg")
    assert (tmp_path / "framework.svg").read_text().startswith("<?xml")
