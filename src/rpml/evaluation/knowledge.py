"""What a user knows of the rows, a nuisance or queries, in comparisons and recommendations."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.estimator import RPML
from rpml.estimator.knowledge import as_nuisance, as_queries, nuisance_table
from rpml.method.whitening.scatter_choice import NuisanceEvidence
from rpml.runtime.blas import times
from rpml.runtime.context import Json
from rpml.runtime.rows import Array, RandomState, slices, unit_rows

BLOCK = 1024  # rows


def fit_knowledge(
    X: Array, nuisance: ArrayLike | None = None, queries: ArrayLike | None = None
) -> Json:
    """Return those arguments of `RPML.fit` that are given, checked, the nuisance as an array."""
    known: Json = {}
    if nuisance is not None:
        as_nuisance(nuisance, len(X))
        known["nuisance"] = nuisance_table(nuisance, len(X))
    if queries is not None:
        known["queries"] = as_queries(queries, X)
    return known


def subset(known: Json, rows: NDArray[np.generic]) -> Json:
    """Return what is known of some of the rows."""
    return {k: value[rows] if k == "nuisance" else value for k, value in known.items()}


def nuisance_values(known: Json, n: int) -> NDArray[np.intp] | None:
    """Return the value of all columns of the nuisance of n rows, -1 where unknown."""
    nuisance = as_nuisance(known.get("nuisance"), n)
    return None if nuisance is None else nuisance.values


def recall_across(Z: Array, y: Array, values: NDArray[np.intp]) -> float:
    """Return the Recall@1 among rows of other known values, of the rows that have a right one."""
    rows, hits, count = unit_rows(np.asarray(Z, np.float32)), 0, 0
    for part in slices(len(rows), BLOCK):
        similarity = times(rows[part], rows.T)
        other = (values[part, None] != values) & (values >= 0) & (values[part, None] >= 0)
        same = y[part, None] == y
        asked = (other & same).any(axis=1)
        nearest = np.where(other, similarity, -np.inf).argmax(axis=1)
        hits += int((same[np.arange(len(same)), nearest] & asked).sum())
        count += int(asked.sum())
    return hits / count if count else float("nan")


def untrained_fit(X: Array, size: int, known: Json, random_state: RandomState) -> RPML:
    """Return a fit without its training, which says whether the knowledge is used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no iteration converges
        return RPML(size, random_state=random_state, max_iter=0).fit(X, **known)


def knowledge_evidence(
    X: Array, size: int, known: Json, random_state: RandomState
) -> NuisanceEvidence:
    """Return what a fit to the rows says of the knowledge."""
    choice = untrained_fit(X, size, known, random_state).whitening_
    assert choice is not None
    assert choice.nuisance is not None
    return choice.nuisance
