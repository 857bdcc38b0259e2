"""A few drawings of the demo data with pictures on disk and a model, for the page tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from rpml import RPML
from rpml.io.datasets.demos import gradient_histograms, load_drawings
from rpml.pages.explorer.catalog import Catalog, make_catalog, start_work
from rpml.pages.items import Items, make_items

HOSTILE = '<script>alert("x")</script>'


@dataclass(frozen=True)
class Sample:
    """Vectors, names, labels and pictures of some drawings, and a model fitted on them."""

    folder: Path
    X: np.ndarray
    ids: list[str]
    labels: list[str]
    model: RPML

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def items(self) -> Items:
        return make_items(len(self.X), self.ids, self.labels, self.images)


def make_sample(folder: Path, characters: int = 15) -> Sample:
    """Write pictures, features.npy, ids.txt, labels.txt and model.rpml into the folder."""
    drawings, _ = load_drawings()
    rows = np.flatnonzero(np.isin(drawings.character, np.unique(drawings.character)[:characters]))
    X = gradient_histograms(drawings.images[rows]).astype(np.float32)
    ids, labels = [], []
    for place, row in enumerate(rows):
        alphabet, character = drawings.alphabet[row], drawings.character[row]
        ids.append(f"{alphabet}/{character:03d}-{place % 20:02d}.png")
        labels.append(f"{alphabet} {character}")
        path = folder / "images" / ids[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.where(drawings.images[row], 30, 255).astype(np.uint8)).save(path)
    model = RPML(16, n_neighbors=15, max_iter=10, tol=1e-3, training="always", random_state=0).fit(
        X
    )
    np.save(folder / "features.npy", X)
    (folder / "ids.txt").write_text("\n".join(ids) + "\n", encoding="utf8")
    (folder / "labels.txt").write_text("\n".join(labels) + "\n", encoding="utf8")
    model.save(folder / "model.rpml", training=True)
    return Sample(folder, X, ids, labels, model)


def ready_catalog(sample: Sample) -> Catalog:
    """What the explorer shows of the sample, with clusters and maps ready."""
    made = make_catalog(sample.model, sample.X, sample.items, "features.npy")
    start_work(made, sample.X).join()
    return made
