"""One cell of a comparison: a method with a dimension and a seed, scored on held-out rows.

A cell is a plain dict, ready for a line of JSON. `hits` has a hexadecimal digit per query: the
number of rows of other classes before the first right one, where 15 means 15 or more. Every
Recall@K up to 8 and every bootstrap can be computed from it. The digits of `kept` say how many of
the 10 nearest rows remain.
"""

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.evaluation.knowledge import recall_across
from rpml.evaluation.metrics import bounded_scores, first_hit_rank, kmeans_labels
from rpml.evaluation.metrics.label_free import (
    NEAREST,
    hubness_interval,
    neighbor_overlap,
    spectrum,
)
from rpml.evaluation.metrics.retrieval import KS
from rpml.evaluation.registry import Method
from rpml.evaluation.split import Split
from rpml.method.graph.neighbors import nearest_neighbors
from rpml.runtime.context import Json
from rpml.runtime.intervals import bounded
from rpml.runtime.rows import Array
from rpml.runtime.wording import one_line

_DEEPEST = 15
Cell = Json


def measure(split: Split, method: Method, dim: int, seed: int) -> Cell:
    """Fit, embed and score; if the method raises ValueError, `error` has the reason."""
    cell: Cell = {
        "method": method.name,
        "asked": dim,
        "seed": seed,
        "uses_labels": method.uses_labels,
    }
    try:
        fit, Z = split.embed(method, dim, seed)
    except ValueError as error:
        return {**cell, "error": one_line(error)}
    cell |= {"seconds": fit.seconds, "warnings": fit.warnings, "dim": Z.shape[1]}
    if isinstance(fit.estimator, RPML) and (choice := fit.estimator.whitening_) is not None:
        cell |= {} if choice.gain is None else bounded("rank_gain", choice.gain)
    cell.update(_without_labels(split.X_test, Z))
    if split.y_test is not None:
        cell.update(_with_labels(Z, split.y_test, seed))
        if split.values_test is not None:
            cell["recall@1 across"] = recall_across(Z, split.y_test, split.values_test)
    return cell


def _without_labels(X: Array, Z: Array) -> Cell:
    k = min(NEAREST, len(Z) - 1)
    before, after = (nearest_neighbors(rows, k, metric="cosine").indices for rows in (X, Z))
    overlap = neighbor_overlap(before, after, k)
    rank = spectrum(Z).effective_rank
    hubs = hubness_interval(after, k, np.random.default_rng(0))
    return {
        "neighbors_kept": float(overlap.mean()),
        "kept": "".join(f"{count:x}" for count in np.rint(overlap * k).astype(int)),
        **bounded("effective_rank", rank),
        **bounded("hubness", hubs),
    }


def _with_labels(Z: Array, y: Array, seed: int) -> Cell:
    ranks = first_hit_rank(Z, y)
    return {
        **bounded_scores(kmeans_labels(Z, y, seed), y),
        "hits": "".join(f"{rank:x}" for rank in np.minimum(ranks, _DEEPEST)),
        **{f"recall@{k}": float(np.mean(ranks < k)) for k in KS},
        **{f"recall@1 {name}": share for name, share in _by_frequency(ranks == 0, y).items()},
    }


def overlap_of(cell: Cell) -> NDArray[np.float64]:
    """Return the share of nearest rows that each query keeps."""
    counts = np.array([int(digit, 16) for digit in cell["kept"]])
    return np.asarray(counts / min(NEAREST, len(counts) - 1))


def hits_of(cell: Cell, k: int = 1) -> NDArray[np.bool_]:
    """Return which queries have a row of their own class among the k nearest."""
    return np.array([int(digit, 16) < k for digit in cell["hits"]])


def _by_frequency(hits: NDArray[np.bool_], y: Array) -> dict[str, float]:
    """Average R@1 over the classes of the rarest and of the most frequent third.

    Empty if all classes have the same size.
    """
    codes = np.unique(y, return_inverse=True)[1]
    sizes = np.bincount(codes)
    if sizes.min() == sizes.max():
        return {}
    by_class = np.bincount(codes, weights=hits) / sizes
    low, high = np.quantile(sizes, [1 / 3, 2 / 3])
    return {
        "rare": float(by_class[sizes <= low].mean()),
        "frequent": float(by_class[sizes >= high].mean()),
    }
