"""Validation of the parameters and of the inputs of a fit besides its rows."""

import re
import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from rpml.io.features import Features
from rpml.io.features.labels import read_links
from rpml.method.clustering.aas import AuthorityAscentShift
from rpml.method.clustering.pseudo_labels import CLUSTERINGS, is_array
from rpml.method.knowledge.constraints import as_labels, gather, row_indices
from rpml.method.objective.weights import WEIGHTS
from rpml.method.triplets.sampling import SAMPLERS
from rpml.method.whitening.groups import drop_singles, no_groups
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError
from rpml.runtime.rows import Labels
from rpml.runtime.wording import counted

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


def check_size(n_components: int | None, d: int) -> None:
    """Raise ValueError for more components than features."""
    if n_components is not None and n_components > d:
        raise ValueError(
            f"n_components={n_components} must not exceed the {counted(d, 'feature')} of X."
        )


def read_constraints(
    files: Mapping[str, str | Path | None],
    data: Features,
    y: ArrayLike | None = None,
    conflicts: str = "raise",
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
            UserWarning,
            stacklevel=3,
        )
    return labels


def as_groups(groups: ArrayLike | None, n: int) -> NDArray[np.intp]:
    """Return groups of n rows as numbers; -1 for none, and for a group of a single row."""
    if groups is None:
        return no_groups(n)
    shared = drop_singles(as_labels(groups, n, "groups"))
    if shared.max(initial=-1) < 0:
        warnings.warn("No two rows share a group, so the groups are ignored.", stacklevel=3)
    return shared


def as_pairs(pairs: ArrayLike | None, n: int, whiten: object = "auto") -> NDArray[np.intp] | None:
    """Return unique pairs of the n rows; None if there are none."""
    if pairs is None or (values := np.asarray(pairs)).size == 0:
        return None
    if values.ndim != 2 or values.shape[1] != 2 or values.dtype.kind not in "iuf":
        raise ValueError(
            f"pairs must be an array of 2 row indices per line, got {values.dtype} of shape "
            f"{values.shape}."
        )
    if whiten != "auto":
        raise ValueError(f"pairs are used by whiten='auto' only, not by whiten={whiten!r}.")
    rows = row_indices("pairs", values, n)
    alone = np.flatnonzero(rows[:, 0] == rows[:, 1])
    if len(alone):
        raise ValueError(f"pairs[{alone[0]}] = {rows[alone[0]].tolist()} links a row to itself.")
    unique = np.unique(np.sort(rows, axis=1), axis=0)
    if len(unique) < len(rows):
        repeated = len(rows) - len(unique)
        warnings.warn(
            f"{repeated} of {len(rows)} pairs left out, since each repeats another one.",
            UserWarning,
            stacklevel=3,
        )
    return unique


def read_pairs(path: str | Path, data: Features) -> NDArray[np.intp] | None:
    """Read the argument `pairs` of `RPML.fit` from a file; errors name the line."""
    links, lines = read_links(path, 2, len(data.values), data.ids, weighted=False)
    try:
        return as_pairs(links[:, :2], len(data.values))
    except ValueError as error:
        raise InputError(_by_line(str(error), {"pairs": (path, lines)})) from None


def check_clustering(clustering: object, n: int) -> None:
    """Raise ValueError for pseudo-labels that are not those of n rows, or settings of an AAS."""
    if isinstance(clustering, AuthorityAscentShift):
        clustering.check_parameters()
    if is_array(clustering):
        as_labels(np.asarray(clustering), n, "clustering")
