"""What a user knows of the rows, a nuisance or queries, in comparisons and recommendations."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpml.estimator import RPML
from rpml.estimator.knowledge import as_nuisance, as_queries, nuisance_table
from rpml.method.whitening.evidence import ScatterChoice
from rpml.runtime.context import Json
from rpml.runtime.rows import Array, RandomState, slices, unit_rows
from rpml.runtime.threads import times

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


def untrained_fit(
    X: Array, size: int, known: Json, random_state: RandomState
) -> tuple[RPML, ScatterChoice]:
    """Return a fit without its training, and its evidence, also of the knowledge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no iteration converges
        model = RPML(size, random_state=random_state, max_iter=0).fit(X, **known)
    assert model.whitening_ is not None
    return model, model.whitening_
