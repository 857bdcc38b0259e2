"""How much of the embedding its first components hold: quality against size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpml.evaluation.metrics import first_hit_rank
from rpml.evaluation.metrics.label_free import neighbour_overlap
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.method.solver.prefix import sizes_below
from rpml.pages.report import charts
from rpml.pages.report.comparison import NEAREST, Space
from rpml.pages.report.sections import Figure

MEASURED = 3000


def prefix_sizes(size: int) -> list[int]:
    """8, 16, 32, ... and the size itself."""
    return [*reversed(sizes_below(size)), size]


def quality_by_size(
    space: Space, labels: NDArray[Any] | None, rng: np.random.Generator
) -> list[Figure]:
    """Neighbours kept and, with labels, Recall@1 of the first components, on a sample of the rows.

    Nothing where the embedding has no smaller size to offer.
    """
    sizes = prefix_sizes(space.size)
    if len(sizes) < 2:
        return []
    rows = np.sort(rng.permutation(len(space.vectors))[:MEASURED])
    vectors = space.vectors[rows]
    k = min(NEAREST, len(rows) - 1)
    found = [nearest_neighbors(vectors[:, :s], k, metric="cosine").indices for s in sizes]
    kept = [100 * float(neighbour_overlap(found[-1], one, k).mean()) for one in found]
    curves = {f"Of the {k} nearest at full size, kept (%)": kept}
    if labels is not None:
        hits = [first_hit_rank(vectors[:, :s], labels[rows]) < 1 for s in sizes]
        curves["Recall@1 (%)"] = [100 * float(hit.mean()) for hit in hits]
    names = [str(s) for s in sizes]
    return [
        Figure(
            heading,
            charts.line_chart(
                heading, [charts.Series(heading, "rpml", values)], "components", names=names
            ),
        )
        for heading, values in curves.items()
    ]
