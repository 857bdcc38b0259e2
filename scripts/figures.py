"""Draw the pictures of README and docs, from the drawings that come with the package.

python scripts/figures.py            (writes docs/images)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from framework import framework_figure
from PIL import Image

from rpml import RPML
from rpml.io.datasets.demos import gradient_histograms, load_drawings
from rpml.pages.figures import FigureOptions, draw_figures

FOLDER = Path(__file__).parent.parent / "docs" / "images"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    framework_figure(FOLDER / "framework.png")
    train, test = load_drawings()
    model = RPML(64, random_state=0).fit(gradient_histograms(train.images))
    X = gradient_histograms(test.images)

    def pictures(rows, side):
        gray = (255 - 225 * np.asarray(test.images[rows], np.float64)).astype(np.uint8)
        drawn = (Image.fromarray(image).convert("RGB") for image in gray)  # dark on white
        return np.stack([np.asarray(d.resize((side, side), Image.LANCZOS)) for d in drawn])

    names = np.array([f"{a} {c}" for a, c in zip(test.alphabet, test.character, strict=True)])
    spaces = {"raw features": X, "RPML": model.transform(X)}
    draw_figures(spaces, FOLDER, names, pictures, FigureOptions(max_images=900))
    (FOLDER / "map.png").unlink()
    for name in ("framework", "quad-grid", "retrieval-successes", "retrieval-failures"):
        path = FOLDER / f"{name}.png"  # few colors: a fraction of the bytes, no visible loss
        Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


if __name__ == "__main__":
    main()
