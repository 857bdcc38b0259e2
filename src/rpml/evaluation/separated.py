"""What an embedding discounts, shown by examples: rows that were nearest and no longer are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rpml.estimator import RPML
from rpml.evaluation.metrics.label_free import NEAREST
from rpml.method.graph.heaps import nearest_rows
from rpml.runtime.rows import Array, sorted_sample, unit_rows

SHOWN = 3
MAX_ROWS = 20_000
MAX_QUERIES = 1000
Pair = tuple[int, int]


def separated_pairs(
    X: Array, Z: Array, rows: NDArray[np.intp], values: NDArray[np.generic] | None = None
) -> list[Pair]:
    """Return the most similar of some rows X that were nearest neighbors and are not near in Z.

    Pairs are given by the numbers `rows` of these rows. With the `values` of a nuisance, empty or
    -1 where unknown, only pairs that share its value are returned.
    """
    asked = sorted_sample(len(X), MAX_QUERIES, np.random.default_rng(0))
    k = min(NEAREST, len(X) - 1)
    units = (unit_rows(np.asarray(space, np.float32)) for space in (X, Z))
    before, after = (nearest_rows(space[asked], space, k, own=asked)[1] for space in units)
    nearest = before[:, 0]
    gone = ~(after == nearest[:, None]).any(axis=1)
    if values is not None:
        known = values != ("" if values.dtype.kind == "U" else -1)
        gone &= (values[asked] == values[nearest]) & known[asked]
    similarity = np.einsum("ij,ij->i", unit_rows(X[asked]), unit_rows(X[nearest]))
    pairs: list[Pair] = []
    seen: set[int] = set()
    for place in np.flatnonzero(gone)[np.argsort(-similarity[gone], kind="stable")].tolist():
        pair = int(asked[place]), int(nearest[place])
        if not seen.intersection(pair):
            seen.update(pair)
            pairs.append((int(rows[pair[0]]), int(rows[pair[1]])))
        if len(pairs) == SHOWN:
            break
    return pairs


def discounted_pairs(
    model: RPML, X: Array, values: NDArray[np.generic] | None = None
) -> list[Pair]:
    """Return such pairs among (a sample of) the rows of a fit; none if it is PCA."""
    if model.outcome_ == "PCA" or len(X) < 3:
        return []
    rows = sorted_sample(len(X), MAX_ROWS, np.random.default_rng(0))
    sample = np.asarray(X[rows])
    known = None if values is None else values[rows]
    return separated_pairs(sample, np.asarray(model.transform(sample)), rows, known)


def named_pairs(pairs: Sequence[Pair], ids: NDArray[np.object_] | None) -> list[list[str | int]]:
    """Return the pairs by their ids, or by row numbers from 0."""
    return [[row if ids is None else str(ids[row]) for row in pair] for pair in pairs]


def separated_question(pairs: Sequence[Sequence[object]]) -> str:
    """Return what named pairs are, and the question that they raise."""
    listed = "; ".join(f"{a} and {b}" for a, b in pairs)
    return (
        f"{listed} were nearest neighbors and are not among each other's {NEAREST} nearest now. "
        "Does their difference matter? Then use PCA, or say what belongs together (labels, "
        "groups, pairs)."
    )
