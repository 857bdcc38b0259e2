"""Validation of the parameters of a fit and of what is known of its rows."""

import re
import warnings
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from rpml.io.features import Features
from rpml.io.features.labels import read_links
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.pseudo_labels import CLUSTERINGS, is_array
from rpml.method.knowledge.constraints import as_labels, gather, row_indices
from rpml.method.objective.weights import WEIGHTS
from rpml.method.settings import FitInputs
from rpml.method.solver.training import given_subspace
from rpml.method.triplets.sampling import SAMPLERS
from rpml.method.whitening.groups import drop_singles, no_groups
from rpml.method.whitening.nuisance import Nuisance
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError, counted
from rpml.runtime.rows import AnyArray, Array, Indices, Labels, as_matrix, check_finite, float_dtype

MAX_CATEGORIES = 20  # distinct numbers up to which floats are categories
NUMBER_BINS = 4  # of a number, to tell rows of other values


def as_nuisance(nuisance: ArrayLike | None, n: int) -> Nuisance | None:
    """Return the columns of a nuisance of n rows, as codes or standardized numbers."""
    if nuisance is None:
        return None
    columns, codes = [], []
    for name, values in _columns(nuisance, n):
        column = _as_column(name, values, n)
        columns.append(column)
        codes.append(_binned(column) if column.dtype.kind == "f" else column)
    known = np.all([code >= 0 for code in codes], axis=0)
    if known.sum() < 2:
        raise ValueError("nuisance: no two rows have a value in every column.")
    joint = np.full(n, -1, np.intp)
    together = np.stack([code[known] for code in codes], axis=1)
    joint[known] = np.unique(together, axis=0, return_inverse=True)[1].ravel()
    return Nuisance(tuple(columns), joint)


def check_order(X: Any, queries: Any) -> None:
    """Raise ValueError if tables, or Features, have the same columns in another order."""
    keys = ("feature_names", "column_names", "columns")  # of files, of Arrow, and of others
    found = ([getattr(t, key, None) for key in keys] for t in (X, queries))
    own, others = (list(map(str, next((n for n in f if n is not None), ()))) for f in found)
    if own != others and sorted(own) == sorted(others):
        raise ValueError("queries have the columns of X in another order: give both the same one.")


def as_queries(queries: ArrayLike | None, X: Array) -> Array | None:
    """Return queries as rows of the width and precision of X."""
    if queries is None:
        return None
    rows = np.asarray(as_matrix(queries))
    if rows.ndim != 2 or rows.shape[1] != X.shape[1]:
        raise ValueError(
            f"queries must be rows of {X.shape[1]} columns, as X has, got the shape {rows.shape}."
        )
    if len(rows) == 0:
        raise ValueError("queries are empty: leave them out, or pass one query per row.")
    rows = rows.astype(float_dtype(X))
    check_finite(rows, "queries")
    return rows


def fit_knowledge(
    X: Array, nuisance: ArrayLike | None = None, queries: ArrayLike | None = None
) -> Json:
    """Return those arguments of `RPML.fit` that are given, checked, the nuisance as an array.

    For comparisons and recommendations, which fit some of the rows: see `known_subset`.
    """
    known: Json = {}
    if nuisance is not None:
        as_nuisance(nuisance, len(X))
        columns = [values.tolist() for _, values in _columns(nuisance, len(X))]
        known["nuisance"] = np.array(columns, object).T
    if queries is not None:
        known["queries"] = as_queries(queries, X)
    return known


def known_subset(known: Json, rows: AnyArray) -> Json:
    """Return what is known of some of the rows."""
    return {k: value[rows] if k == "nuisance" else value for k, value in known.items()}


def nuisance_values(known: Json, n: int) -> Indices | None:
    """Return the value of all columns of the nuisance of n rows, -1 where unknown."""
    nuisance = as_nuisance(known.get("nuisance"), n)
    return None if nuisance is None else nuisance.values


def _columns(nuisance: Any, n: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and the values of each column of a series, a table, or an array."""
    if hasattr(nuisance, "columns"):  # pandas, polars
        names = getattr(nuisance, "column_names", nuisance.columns)  # of Arrow and of others
        table = {f"nuisance column {name!r}": nuisance[name] for name in names}
    else:
        values = nuisance if isinstance(nuisance, np.ndarray) else np.asarray(nuisance, object)
        values = np.asarray(nuisance) if hasattr(nuisance, "dtype") else values
        if values.ndim == 2:
            table = {f"nuisance column {i}": values[:, i] for i in range(values.shape[1])}
        else:
            table = {"nuisance": nuisance}
    if not table:
        raise ValueError("nuisance has no columns: leave it out.")
    for name, column in table.items():
        values = np.asarray(column)
        if values.dtype.kind == "O":
            values = _typed(values)
        if values.shape != (n,):
            raise ValueError(
                f"{name} must have one value per row ({n}), got the shape {values.shape}."
            )
        yield name, values


def _typed(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers among objects, such as a column of a mixed table, as numbers."""
    present = [value for value in values.ravel().tolist() if value is not None]
    if present and all(isinstance(v, int | float) and not isinstance(v, bool) for v in present):
        if all(isinstance(value, int) for value in present) and len(present) == values.size:
            return values.astype(np.int64)
        return np.array([np.nan if v is None else v for v in values.tolist()], np.float64)
    return values


def _as_column(name: str, values: NDArray[Any], n: int) -> NDArray[Any]:
    """Return categories as codes and numbers standardized."""
    if values.dtype.kind == "f":
        known = np.isfinite(values)
        if len(np.unique(values[known])) > MAX_CATEGORIES:
            numbers = values.astype(np.float64)
            numbers[~known] = np.nan
            numbers -= numbers[known].mean()
            return np.asarray(numbers / numbers[known].std())
        codes = np.full(n, -1, np.intp)
        codes[known] = np.unique(values[known], return_inverse=True)[1]
    elif values.dtype.kind == "b":
        codes = values.astype(np.intp)
    else:
        codes = as_labels(values, n, name)
    distinct = len(np.unique(codes[codes >= 0]))
    if distinct < 2:
        what = "no value" if distinct == 0 else "one value for all rows"
        raise ValueError(f"{name} has {what}: there is nothing to tell apart, leave it out.")
    if distinct == (codes >= 0).sum():
        raise ValueError(
            f"{name} has another value for each of {counted(distinct, 'row')}: it must be shared "
            "by rows; pass numbers, such as a length, as floats."
        )
    return codes


def _binned(column: Array) -> Indices:
    """Return the quarter of the numbers that each is in, -1 where there is none."""
    known = np.isfinite(column)
    edges = np.quantile(column[known], np.arange(1, NUMBER_BINS) / NUMBER_BINS)
    return np.where(known, np.searchsorted(edges, np.where(known, column, 0.0)), -1)


CONSTRAINTS: dict[str, list[object]] = {
    "n_components": [Interval(Integral, 1, None, closed="left"), None],
    "weight": [StrOptions(set(WEIGHTS))],
    "solver": [StrOptions({"cg", "stochastic", "gd"})],
    "training": [StrOptions({"auto", "always"})],
    "alpha": [Interval(Real, 0, 90, closed="neither")],
    "clustering": [StrOptions(set(CLUSTERINGS)), HasMethods("fit_predict"), "array-like"],
    "n_neighbors": [Interval(Integral, 1, 2**31, closed="both")],
    "triplets_per_anchor": [Interval(Integral, 1, 10**4, closed="both")],
    "max_triplets": [Interval(Integral, 1, 2**31, closed="both")],
    "sampler": [StrOptions(set(SAMPLERS))],
    "init": [StrOptions({"pca", "random"}), "array-like"],
    "normalize_input": ["boolean"],
    "whiten": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both"), None],
    "center": [Interval(Real, 0, 1, closed="both")],
    "weight_ridge": [Interval(Real, 0, None, closed="left"), None],
    "max_iter": [Interval(Integral, 0, 10**6, closed="both")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "batch_size": [Interval(Integral, 3, 2**31, closed="both")],
    "n_epochs": [Interval(Integral, 1, 10**4, closed="both")],
    "batch_steps": [Interval(Integral, 1, 10**4, closed="both")],
    "average": ["boolean"],
    "mining": [StrOptions({"all", "semi-hard", "hard"})],
    "normalize": ["boolean"],
    "use_labels": ["boolean"],
    "subsample": [Interval(Integral, 3, None, closed="left"), None],
    "memory_limit": [Interval(Integral, 1, None, closed="left"), None],
    "n_jobs": [
        Interval(Integral, None, -1, closed="right"),
        Interval(Integral, 1, None, closed="left"),
        None,
    ],
    "verbose": [Interval(Integral, 0, None, closed="left"), "boolean"],
    "callback": [callable, None],
    "random_state": ["random_state"],
}
ROWS_PER_LINE = {"must_link": 2, "cannot_link": 2, "comparisons": 3}


def fit_inputs(model: Any, X: Array, y: ArrayLike | None, **known: Any) -> FitInputs:
    """Return the inputs of a fit to X; ValueError if one of them or a setting does not fit X.

    `known` are the other arguments of `RPML.fit`. Of rows on a cluster, X has shape and dtype.
    """
    n, d = X.shape
    check_size(model.n_components, d)
    if isinstance(model.clustering, AuthorityAscentShift):
        model.clustering.check_parameters()
    if is_array(model.clustering):
        as_labels(np.asarray(model.clustering), n, "clustering")
    if not isinstance(model.init, str):  # refused before the whitening, not after it
        given_subspace(model.init, d if model.whiten is None else None, model.n_components)
    classes = as_classes(y, n) if model.use_labels else None
    inputs = FitInputs(
        as_groups(known.pop("groups", None), n),
        pairs=as_pairs(known.pop("pairs", None), n),
        nuisance=as_nuisance(known.pop("nuisance", None), n),
        queries=as_queries(known.pop("queries", None), X),
        supervision=gather(classes, n, **known),
    )
    for name in ("pairs", "nuisance", "queries"):
        if model.whiten != "auto" and getattr(inputs, name) is not None:
            raise ValueError(f"whiten={model.whiten!r} cannot use {name}, whiten='auto' can.")
    return inputs


def check_size(n_components: int | None, d: int) -> None:
    if n_components is not None and n_components > d:
        raise ValueError(
            f"n_components={n_components} must not exceed the {counted(d, 'feature')} of X."
        )


def read_constraints(
    files: Mapping[str, str | Path | None], data: Features, y: ArrayLike | None, conflicts: str
) -> Json:
    """Read the constraint arguments of `RPML.fit` from files.

    `files` maps must_link, cannot_link and comparisons to paths or None; rows are given by the ids
    of `data`. Contradictions, also with the labels `y`, raise an InputError that names file and
    line.
    """
    n = len(data.values)
    read = {
        name: read_links(path, width, n, data.ids)
        for name, width in ROWS_PER_LINE.items()
        if (path := files.get(name)) is not None
    }
    constraints = {name: links for name, (links, _) in read.items()}
    if conflicts != "weight":  # with which the fit says what it leaves out
        try:
            gather(None if y is None else as_labels(y, n), n, **constraints, conflicts=conflicts)
        except ValueError as error:
            places = {name: (files[name], lines) for name, (_, lines) in read.items()}
            raise InputError(_by_line(str(error), places)) from None
    return {**constraints, "conflicts": conflicts} if read else {}


def _by_line(text: str, places: Mapping[str, tuple[str | Path | None, list[int]]]) -> str:
    """Replace the library's must_link[3] by the line of the file."""

    def place(match: re.Match[str]) -> str:
        path, lines = places[match[1]]
        shown = ", ".join(str(lines[int(i)]) for i in match[2].split(","))
        return f"{path}: line {shown}"

    text = re.sub(rf"({'|'.join(places)})\[([\d, ]+)\]", place, text)
    return text.replace("set conflicts='weight'", "pass --conflicts weight").rstrip(".")


def as_classes(y: ArrayLike | None, n: int) -> Labels | None:
    """Return the classes of n rows as numbers; warn if there are none."""
    labels = None if y is None else as_labels(y, n, "y")
    if labels is None or labels.max() < 0:
        what = "is not given" if labels is None else "has no label"
        warnings.warn(
            f"use_labels=True, but y {what}: the fit learns without labels. Pass y, or set "
            "use_labels=False.",
            stacklevel=4,
        )
    return labels


def as_groups(groups: ArrayLike | None, n: int) -> Indices:
    """Return groups of n rows as numbers; -1 for none, and for a group of a single row."""
    if groups is None:
        return no_groups(n)
    shared = drop_singles(as_labels(groups, n, "groups"))
    if shared.max(initial=-1) < 0:
        warnings.warn("No two rows share a group, so the groups are ignored.", stacklevel=4)
    return shared


def as_pairs(pairs: ArrayLike | None, n: int) -> Indices | None:
    """Return unique pairs of the n rows; None if there are none."""
    if pairs is None or (values := np.asarray(pairs)).size == 0:
        return None
    if values.ndim != 2 or values.shape[1] != 2 or values.dtype.kind not in "iuf":
        raise ValueError(
            f"pairs must be an array of 2 row indices per line, got {values.dtype} of shape "
            f"{values.shape}."
        )
    rows = row_indices("pairs", values, n)
    alone = np.flatnonzero(rows[:, 0] == rows[:, 1])
    if len(alone):
        raise ValueError(f"pairs[{alone[0]}] = {rows[alone[0]].tolist()} links a row to itself.")
    unique = np.unique(np.sort(rows, axis=1), axis=0)
    if len(unique) < len(rows):
        repeated = len(rows) - len(unique)
        warnings.warn(
            f"{repeated} of {len(rows)} pairs left out, since each repeats another one.",
            stacklevel=4,
        )
    return unique


def read_pairs(path: str | Path, data: Features) -> Indices | None:
    """Read the argument `pairs` of `RPML.fit` from a file; errors name the line."""
    links, lines = read_links(path, 2, len(data.values), data.ids, weighted=False)
    try:
        return as_pairs(links[:, :2], len(data.values))
    except ValueError as error:
        raise InputError(_by_line(str(error), {"pairs": (path, lines)})) from None
