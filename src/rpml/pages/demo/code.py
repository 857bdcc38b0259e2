"""Programs: learn from solutions of some problems, find those of others across languages."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rpml.io.datasets.solutions import Solutions, load_solutions
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.pages.demo.result import LEARNED, Embeddings, Findings, Note, fits_of, judge, learn

N_COMPONENTS = 32
BEFORE = "PCA"
_QUERIES, _SHOWN = 4, 5


def demonstrate(folder: Path, seed: int, note: Note) -> Findings:
    """Learn from solutions of some problems, find the solutions of others."""
    train, test = load_solutions()
    note(
        f"Learning from {len(train):,} programs that solve {len(set(train.problem))} problems in "
        f"{len(set(train.language))} languages, no labels; finding the solutions of "
        f"{len(set(test.problem))} other problems among {len(test):,} programs."
    )
    fits = fits_of(train.vectors, N_COMPONENTS, seed)
    rows, embeddings = learn(fits, test.vectors, test.problem, folder, seed)
    nearest = {name: _nearest(embeddings[name], 1)[:, 0] for name in (BEFORE, LEARNED)}
    same = {n: np.mean(test.language[rows] == test.language) for n, rows in nearest.items()}
    verdict = (
        f"{judge(rows, embeddings, test.problem)}. The nearest program is in the same language for "
        f"{same[BEFORE]:.0%} of the programs with {BEFORE} and for {same[LEARNED]:.0%} with RPML."
    )
    return Findings(rows, verdict, examples=_examples(embeddings, test, seed))


def _nearest(Z: NDArray[np.floating], k: int) -> NDArray[np.integer]:
    return nearest_neighbors(Z, k, metric="cosine").indices


def _examples(embeddings: Embeddings, test: Solutions, seed: int) -> str:
    """List what PCA and RPML find for random programs: problems and language numbers."""
    queries = np.sort(np.random.default_rng(seed).choice(len(test), _QUERIES, replace=False))
    neighbors = {name: _nearest(embeddings[name], _SHOWN) for name in (BEFORE, LEARNED)}
    lines = []
    for query in queries:
        lines.append(f"Nearest to {test.problem[query]} in language {test.language[query]}:")
        for name, nearest in neighbors.items():
            shown = (f"{test.problem[i]} ({test.language[i]})" for i in nearest[query])
            lines.append(f"  {name:5} {', '.join(shown)}")
    return "\n".join(lines)
