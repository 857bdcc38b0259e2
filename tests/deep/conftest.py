"""Tiny images, a tiny network and made-up activations: everything in seconds."""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason="the extra 'deep' is not installed")
pytest.importorskip("pytorch_metric_learning", reason="the extra 'deep' is not installed")

from rpml.deep.embedder import Embedder, frozen_descriptors, linear_start
from rpml.method.whitening.linear_map import identity

CHANNELS, WIDTH = 6, 16
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # has the rarer methods
torch.set_num_threads(1)  # tiny tensors: threads that wait for each other cost 20 times the work


class MadeUp:
    """Activations around one center a class, views with more noise; as a cache gives them."""

    n_views = 3

    def __init__(self, classes: int = 8, each: int = 10, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.classes = np.repeat(np.arange(classes), each)
        centers = rng.standard_normal((classes, 1, CHANNELS, 4, 4))
        noise = rng.standard_normal((len(self.classes), self.n_views, CHANNELS, 4, 4))
        self.maps = (centers[self.classes] + noise).astype(np.float32)

    def __len__(self) -> int:
        return len(self.classes)

    def load(self, rows, views):
        return torch.from_numpy(self.maps[rows, views])


def tiny_upper() -> torch.nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            OrderedDict(conv=torch.nn.Conv2d(CHANNELS, WIDTH, 3, padding=1), relu=torch.nn.ReLU())
        )


@pytest.fixture(scope="session")
def inputs() -> MadeUp:
    return MadeUp()


@pytest.fixture(scope="session")
def start(inputs):
    """(embedder, frozen descriptors) on the made-up activations."""
    plain = Embedder(tiny_upper(), "mac", identity(WIDTH, True), np.eye(WIDTH))
    frozen = frozen_descriptors(plain, inputs)
    fitted = linear_start(frozen, 4, seed=0)
    return Embedder(tiny_upper(), "mac", fitted.preprocessing_, fitted.components_.T), frozen


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """train/ and test/ with a folder per class: stripes whose direction and color are the class."""
    rng = np.random.default_rng(0)
    for side, classes in (("train", "abcd"), ("test", "ef")):
        for c in classes:
            folder = tmp_path / "photos" / side / c
            folder.mkdir(parents=True)
            for i in range(6):
                striped(ord(c) - ord("a"), rng).save(folder / f"{i}.png")
    return tmp_path / "photos"


def striped(kind: int, rng: np.random.Generator) -> Image.Image:
    y, x = np.mgrid[:40, :40] / 40
    angle = kind * np.pi / 6
    wave = np.sin(2 * np.pi * 3 * (x * np.cos(angle) + y * np.sin(angle)) + rng.uniform(0, 6))
    color = np.array([1 + kind % 3, 2, 3 - kind % 3]) / 4
    pixels = 128 + 90 * wave[..., None] * color + rng.normal(0, 12, (40, 40, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
