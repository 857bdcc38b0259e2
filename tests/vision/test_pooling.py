"""Pooling against a slow, literal transcription of the published R-MAC."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rpml.vision.pooling import pool_maps, rmac_regions

Regions = list[tuple[int, int, int]]
sides = st.integers(1, 40)


def literal_regions(H: int, W: int, L: int) -> Regions:
    """(row, column, width) of each region, as the published code finds them."""
    ovr = 0.4
    steps = np.array([2, 3, 4, 5, 6, 7])
    w = min(W, H)
    b: Any = (max(H, W) - w) / (steps - 1)
    idx = int(np.argmin(np.abs(((w**2 - w * b) / w**2) - ovr)))
    Wd = Hd = 0
    if H < W:
        Wd = idx + 1
    elif H > W:
        Hd = idx + 1
    regions = []
    for level in range(1, L + 1):
        wl = math.floor(2 * w / (level + 1))
        wl2 = math.floor(wl / 2 - 1)
        b = 0 if level + Wd == 1 else (W - wl) / (level + Wd - 1)
        cen_w = np.floor(wl2 + np.arange(level + Wd) * b) - wl2
        b = 0 if level + Hd == 1 else (H - wl) / (level + Hd - 1)
        cen_h = np.floor(wl2 + np.arange(level + Hd) * b) - wl2
        for i in cen_h:
            for j in cen_w:
                if wl > 0:
                    regions.append((int(i), int(j), wl))
    return regions


def literal_rmac(x: np.ndarray, L: int = 3) -> np.ndarray:
    """One map (channels, H, W), region by region."""
    total = np.zeros(len(x))
    for i, j, w in literal_regions(*x.shape[1:], L):
        v = np.array([max(c[i : i + w, j : j + w].ravel()) for c in x], float)
        total += v / np.linalg.norm(v)
    return total / np.linalg.norm(total)


def listed(height: int, width: int, levels: int) -> Regions:
    return [
        (i, j, side)
        for side, rows, columns in rmac_regions(height, width, levels)
        for i in rows
        for j in columns
    ]


@given(sides, sides, st.integers(1, 4))
@settings(deadline=None)
def test_regions_are_the_published_ones(height: int, width: int, levels: int) -> None:
    assert listed(height, width, levels) == literal_regions(height, width, levels)


@given(sides, sides)
@settings(deadline=None)
def test_regions_lie_in_the_map_and_cover_its_longer_side(height: int, width: int) -> None:
    for i, j, side in listed(height, width, 3):
        assert side > 0
        assert 0 <= i <= height - side
        assert 0 <= j <= width - side
    side, rows, columns = rmac_regions(height, width, 3)[0]
    longer = rows if height > width else columns
    assert longer[0] == 0
    assert max(height, width) - side - longer[-1] <= 1


def test_overlap_of_usual_aspect_ratios_is_about_forty_percent() -> None:
    for height, width in ((8, 12), (12, 16), (11, 16), (7, 13)):
        side, _, columns = rmac_regions(height, width, 3)[0]
        steps = np.diff(columns)
        assert 0.2 <= 1 - steps.mean() / side <= 0.8


def test_thin_maps_leave_out_levels_of_no_width() -> None:
    assert [width for width, _, _ in rmac_regions(1, 9, 3)] == [1]
    assert [width for width, _, _ in rmac_regions(2, 9, 3)] == [2, 1, 1]


@given(sides, sides, st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_fast_rmac_equals_the_literal_one(height: int, width: int, seed: int) -> None:
    x = np.random.default_rng(seed).random((2, 5, height, width)) + 0.01
    fast = pool_maps(x.transpose(0, 2, 3, 1))
    assert np.allclose(fast, [literal_rmac(m) for m in x], atol=1e-12)


def test_other_poolings_equal_their_formulas() -> None:
    x = np.random.default_rng(1).standard_normal((3, 4, 5, 6))
    flat = x.reshape(3, 20, 6)

    def unit(v: np.ndarray) -> np.ndarray:
        return v / np.linalg.norm(v, axis=1, keepdims=True)

    assert np.allclose(pool_maps(x, "mac"), unit(flat.max(axis=1)))
    assert np.allclose(pool_maps(x, "average"), unit(flat.mean(axis=1)))
    gem = (np.maximum(flat, 0) ** 3).mean(axis=1) ** (1 / 3)
    assert np.allclose(pool_maps(x, "gem"), unit(gem))
    assert np.allclose(pool_maps(x * 1e200, "gem"), unit(gem))


def test_a_dead_map_gives_a_zero_vector_not_nan() -> None:
    for kind in ("rmac", "mac", "average", "gem"):
        assert not pool_maps(np.zeros((1, 4, 4, 3), np.float32), kind).any()
