"""Linear maps between encoders, so that an old index can answer queries of a new encoder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from rpml.estimator import RPML
from rpml.estimator.fitted import calibrate, rebuild_model
from rpml.method.graph.heaps import nearest_rows
from rpml.runtime.errors import counted
from rpml.runtime.intervals import Interval, interval
from rpml.runtime.rows import Array, Indices, as_matrix, sorted_sample, unit_rows

PENALTIES = (None, 1e-3, 1e-2, 1e-1, 1.0)  # None: orthogonal
MIN_PAIRS, MAX_PAIRS, MAX_HELD_OUT = 20, 20_000, 1000
NEAREST = 10
ROUNDING = 1e-6  # of unit rows in single precision


@dataclass(frozen=True)
class Bridge:
    """The map from the new space to the old one, and its quality on held-out pairs."""

    model: RPML
    """`transform` maps vectors of the new encoder to unit rows in the old space."""
    method: str
    """"orthogonal" or "ridge"."""
    penalty: float | None
    """Penalty of ridge regression, in units of the mean variance per feature."""
    neighbors_kept: Interval
    """Share of the old vector's 10 nearest old rows that the mapped vector finds too, with its 95%
    interval."""
    encoder_overlap: Interval
    """The same share between the two original spaces: how far the encoders agree."""
    n_pairs: int
    n_held_out: int


def learn_bridge(old: ArrayLike, new: ArrayLike, random_state: int = 0) -> Bridge:
    """Learn the map from the vectors of a new encoder to those of an old one.

    Orthogonal Procrustes and ridge regressions are fitted to 80% of the pairs. Half of the rest
    selects one of them, the other half measures how many neighbors are kept. The selected map is
    then fitted to all pairs.

    Parameters
    ----------
    old : array-like of shape (n_pairs, n_old_features)
        The vectors in the index.
    new : array-like of shape (n_pairs, n_new_features)
        The same items in the same order, from the new encoder; a few thousand are enough, and at
        most 20,000 are used.
    random_state : int, default=0
        Seed of the split.

    Returns
    -------
    Bridge

    Notes
    -----
    Rows are scaled to unit norm on both sides, so the map is for cosine similarities.
    """
    spaces = _paired(old, new)
    rng = np.random.default_rng(random_state)
    sampled = sorted_sample(len(spaces[0]), MAX_PAIRS, rng)
    Y, X = (unit_rows(np.asarray(rows[sampled], np.float64)) for rows in spaces)
    for name, rows in (("old", Y), ("new", X)):
        if np.ptp(rows, axis=0).max() < ROUNDING:
            raise ValueError(f"All {name} vectors point in one direction: none is a neighbor.")
    order = rng.permutation(len(X))
    n_held_out = min(len(X) // 5, MAX_HELD_OUT)
    held_out, learned = order[:n_held_out], order[n_held_out:]
    choosing, testing = np.array_split(held_out, 2)
    maps = {penalty: _fit(X[learned], Y[learned], penalty) for penalty in PENALTIES}
    shares = {p: _neighbors_kept(X[choosing] @ W, Y, Y, choosing).mean() for p, W in maps.items()}
    penalty = max(shares, key=lambda p: shares[p])
    method = "orthogonal" if penalty is None else "ridge"
    share = interval(_neighbors_kept(X[testing] @ maps[penalty], Y, Y, testing), rng)
    overlap = interval(_neighbors_kept(X[testing], X, Y, testing), rng)
    message = (
        f"bridge between encoders by {method} map: {share.value:.1%} of the neighbors kept "
        f"(95% interval {share.low:.1%} to {share.high:.1%})"
    )
    model = _as_model(_fit(X, Y, penalty), X, message)
    return Bridge(model, method, penalty, share, overlap, len(X), len(testing))


def _paired(old: ArrayLike, new: ArrayLike) -> tuple[Array, Array]:
    first, second = (
        check_array(as_matrix(rows), dtype="numeric", input_name=name, ensure_all_finite=True)
        for name, rows in (("old", old), ("new", new))
    )
    if len(first) != len(second):
        raise ValueError(
            f"There are {len(first)} old and {len(second)} new rows: they must be the same items "
            "in the same order."
        )
    if len(first) < MIN_PAIRS:
        raise ValueError(f"Got {counted(len(first), 'pair')}: a bridge needs at least {MIN_PAIRS}.")
    return first, second


def _fit(X: Array, Y: Array, penalty: float | None) -> Array:
    """Solve X @ W = Y for W with orthonormal rows or columns, or by ridge regression."""
    if penalty is None:
        U, strength, Vt = np.linalg.svd(X.T @ Y, full_matrices=False)
        significant = strength > 1e-9 * strength[0]
        return np.asarray(U[:, significant] @ Vt[significant])
    moments = X.T @ X
    ridge = penalty * np.trace(moments) / len(moments)
    return np.asarray(np.linalg.solve(moments + ridge * np.eye(len(moments)), X.T @ Y))


def _neighbors_kept(queries: Array, rows: Array, Y: Array, own: Indices) -> Array:
    """Return the share of the nearest rows of Y[own] in Y that each query also has in `rows`."""
    neighbors, expected = (
        nearest_rows(unit_rows(asked), among, NEAREST, own=own)[1]
        for asked, among in ((queries, rows), (Y[own], Y))
    )
    return np.asarray((neighbors[:, :, None] == expected[:, None]).any(axis=1).mean(axis=1))


def _as_model(W: Array, X: Array, message: str) -> RPML:
    """Return the map x -> u(u(x) @ W) as a model, with the SVD factors of W as its arrays."""
    U, strength, Vt = np.linalg.svd(W, full_matrices=False)
    arrays = {
        "mean": np.zeros(len(W), np.float32),
        "matrix": (U * strength).astype(np.float32),
        "components": np.ascontiguousarray(Vt.T, np.float32),
    }
    metadata = {
        "settings": {"n_components": W.shape[1]},
        "preprocessing": {"unit_input": True, "unit_output": False},
        "normalize": True,
        "feature_names": None,
        "training": {"n_iter": 0, "converged": True, "message": message, "history": {}},
    }
    model = rebuild_model(RPML, arrays, metadata, "the bridge")
    calibrate(model, X @ W)
    return model
