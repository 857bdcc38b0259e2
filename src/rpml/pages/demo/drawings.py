"""Handwritten characters: learn from some alphabets, score on others."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.io.datasets.descriptors import gradient_histograms
from rpml.io.datasets.omniglot import Drawings, load_drawings
from rpml.io.datasets.views import random_views
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.demo.result import (
    LEARNED,
    DemoRow,
    Embeddings,
    Findings,
    Fits,
    Note,
    fits_of,
    judge,
    learn,
)
from rpml.pages.figures.plots import retrieval_figure
from rpml.runtime.extras import MissingExtraError
from rpml.runtime.rows import Array
from rpml.runtime.wording import counted

N_COMPONENTS = 64
WITH_VIEWS = "RPML with views"
VIEWS = 2  # random views per drawing, passed as groups to WITH_VIEWS
_QUERIES = 10


def demonstrate(folder: Path, seed: int, note: Note) -> Findings:
    """Learn from drawings, score on new alphabets, draw the results."""
    train, test = load_drawings()
    X, X_new = (gradient_histograms(part.images) for part in (train, test))
    note(
        f"Learning from {len(X):,} drawings of {_listed(train.alphabet)} characters, no labels; "
        f"scoring on {len(X_new):,} of {_listed(test.alphabet)} characters."
    )
    rows, embeddings = learn(_methods(X, train.images, seed), X_new, test.character, folder, seed)
    verdict = (
        f"{judge(rows, embeddings, test.character)}, and RPML told of {VIEWS} random views of each "
        f"drawing gives {100 * rows[-1].recall[1]:.1f}."
    )
    picture = _draw(folder / "neighbors.png", test, embeddings, rows, seed, note)
    return Findings(rows, verdict, picture)


def _methods(X: Array, images: NDArray[np.bool_], seed: int) -> Fits:
    """Return the fits to compare, and that of RPML to the drawings and their views."""
    rng = np.random.default_rng(seed)
    views = [gradient_histograms(random_views(images, rng)) for _ in range(VIEWS)]
    groups = np.tile(np.arange(len(X)), VIEWS + 1)
    with_views = RPML(N_COMPONENTS, random_state=seed)
    own = partial(with_views.fit, np.concatenate([X, *views]), groups=groups)
    return fits_of(X, N_COMPONENTS, seed) | {WITH_VIEWS: own}


def _listed(alphabet: NDArray[np.generic]) -> str:
    *most, last = dict.fromkeys(alphabet.tolist())
    return f"{', '.join(most)} and {last}"


def _draw(
    path: Path, test: Drawings, embeddings: Embeddings, rows: list[DemoRow], seed: int, note: Note
) -> Path | None:
    """Draw random queries, one per character, with their neighbors by raw features and RPML."""
    rng = np.random.default_rng(seed)
    firsts = np.unique(test.character, return_index=True)[1]
    queries = np.sort(rng.choice(firsts, _QUERIES, replace=False)) + rng.integers(20, size=_QUERIES)
    neighbors = {}
    for row in rows:
        if row.method in (rows[0].method, LEARNED):
            nearest = nearest_neighbors(embeddings[row.method], 8, metric="cosine").indices
            title = (
                f"{row.method}, {counted(row.dim, 'dimension')}: Recall@1 {100 * row.recall[1]:.1f}"
            )
            neighbors[title] = nearest[queries].astype(np.intp)
    try:
        names = np.array([f"{a} {c}" for a, c in zip(test.alphabet, test.character, strict=True)])
        figure = retrieval_figure(test.images, names, queries, neighbors, width=12)
        figure.savefig(path, dpi=100)
    except MissingExtraError as error:
        note(f"No picture: {error}.")
        return None
    return path
