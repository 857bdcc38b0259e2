"""The map and the grid made from it."""

from __future__ import annotations

import numpy as np
import pytest

from rpml.pages.layout import grid_order, layout


def groups(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(3, 20))[y] * 3 + rng.normal(size=(n, 20)), y


def purity(points: np.ndarray, y: np.ndarray) -> float:
    """Share of points whose nearest other point is of their group."""
    square = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(square, np.inf)
    return float((y[square.argmin(axis=1)] == y).mean())


@pytest.mark.parametrize("landmarks", [600, 80])
def test_groups_stay_together_in_the_unit_square(
    landmarks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rpml.pages.layout.MAX_ROWS", landmarks)
    monkeypatch.setattr("rpml.pages.layout.LANDMARKS", landmarks)
    Z, y = groups(300)
    points = layout(Z, np.random.default_rng(0))
    assert points.shape == (300, 2)
    assert points.dtype == np.float32
    assert points.min() >= 0
    assert points.max() <= 1
    assert purity(points, y) > 0.95


def test_a_seed_decides_the_map() -> None:
    Z, _ = groups(120)
    one, two = (layout(Z, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one, two)


def test_a_start_keeps_the_orientation() -> None:
    Z, _ = groups(150)
    first = layout(Z, np.random.default_rng(0))
    again = layout(Z + 0.01, np.random.default_rng(1), start=first)
    assert np.corrcoef(first.ravel(), again.ravel())[0, 1] > 0.7


@pytest.mark.parametrize(
    "rows", [np.zeros((40, 3)), np.ones((5, 2)), np.eye(4), np.eye(3)[:2], np.ones((9, 1))]
)
def test_odd_rows_have_a_map(rows: np.ndarray) -> None:
    points = layout(rows, np.random.default_rng(0))
    assert points.shape == (len(rows), 2)
    assert np.isfinite(points).all()


def test_a_shuffled_grid_is_put_back() -> None:
    side = 7
    x, y = np.meshgrid((np.arange(side) + 0.5) / side, 1 - (np.arange(side) + 0.5) / side)
    cells = np.stack([x.ravel(), y.ravel()], axis=1)
    order = np.random.default_rng(0).permutation(side * side)
    found, _ = grid_order(cells[order], side, np.random.default_rng(0))
    assert np.array_equal(order[found], np.arange(side * side))


def test_every_point_gets_one_cell() -> None:
    points = np.random.default_rng(1).normal(size=(25, 2)) ** 3
    rng = np.random.default_rng(0)
    assert sorted(grid_order(points, 20, rng)[0]) == list(range(25))
    rows, side = grid_order(points, 4, rng)
    assert (len(set(rows.tolist())), side) == (16, 4)
