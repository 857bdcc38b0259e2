"""The paper's pictures of the test images."""

from pathlib import Path

import numpy as np

from rpml.evaluation.protocol.descriptors import Descriptors
from rpml.pages.report.image_figures import draw_quad_grid, draw_retrievals, pictures_of
from rpml.runtime.rows import Array


def draw_figures(data: Descriptors, Z: Array, folder: Path, seed: int = 0) -> list[str]:
    """Retrieval rows and quad-grid of the test images; returns the names of the files."""
    if data.images is None:
        return []
    folder.mkdir(exist_ok=True)
    test = np.flatnonzero(~data.train)
    pictures = pictures_of([data.images[i] for i in test])
    written = draw_retrievals(Z, data.labels[test], pictures, folder)
    grid = folder / "quad-grid.png"
    draw_quad_grid(Z, pictures, grid, np.random.default_rng(seed))
    return [path.name for path in [*written, grid]]
